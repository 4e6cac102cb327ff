"""The engine without a queue: a request comes in as a line of JSON, the events of its run come out."""

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from models.chat import Chat
from models.errors import PromptError
from models.events import Ended, Event, Payload, Started, TokenPicked
from models.grammar import check_constraint
from models.sampling import Settings
from workers.engine.admission import admit
from workers.engine.catalog import Catalog, CatalogEntry, prepare
from workers.engine.checkpoint import Checkpoint, load_checkpoint
from workers.engine.engine import Engine, Request
from workers.prepare import ProgressLine
from workers.settings import WorkerSettings

_FIELDS = {"prompt", "messages", "settings", "checkpoint", "run_id", "given_text", "arms"}


def open_local_runs(settings: WorkerSettings) -> "LocalRuns":
    """Local runs over the operator's checkpoints. Raises SettingError."""
    torch.set_num_threads(settings.threads)
    return LocalRuns(Catalog.parse(settings.checkpoints, settings.data), _loader(settings))


class LocalRuns:
    """Loads each checkpoint that is asked for once, and does one run after the other."""

    def __init__(self, catalog: Catalog, load: Callable[[CatalogEntry], Checkpoint]) -> None:
        self._catalog = catalog
        self._load = load
        self._engines: dict[str, Engine] = {}

    def run(self, line: bytes, *, default_id: str) -> Iterator[Event]:
        """The events of the request in `line`. Raises DecodeLabError before the first of them.

        The settings under its `arms` are those of requests to come: they are checked as its own are, so that nothing
        runs where one of them would be refused.
        """
        began_s = time.perf_counter()
        values = _read_request(line)
        settings, *later = [_settings(arm) for arm in (values.get("settings", {}), *values.get("arms", []))]
        loading_s = time.perf_counter()
        engine = self._engine(values.get("checkpoint"))
        load_ms = _ms_since(loading_s)
        run_id = values.get("run_id") or default_id
        for arm in later:
            admit(engine.checkpoint, _engine_request(engine.checkpoint, run_id, values, arm)[1])
        text, request = _engine_request(engine.checkpoint, run_id, values, settings)
        engine.add(request)
        info = engine.checkpoint.info
        prompt_ids = request.prompt_token_ids
        yield Event(run_id, 1, 0, Started(info.name, info.device, info.dtype, prompt_ids, 0.0, load_ms, text))
        first_ms: float | None = None
        for seq, payload in enumerate(_payloads(engine), start=1):
            if first_ms is None and isinstance(payload, TokenPicked):
                first_ms = _ms_since(began_s)
            if isinstance(payload, Ended):
                timing = replace(payload.timing, queue_ms=0.0, load_ms=load_ms, ttft_ms=first_ms)
                payload = replace(payload, timing=timing)
            yield Event(run_id, 1, seq, payload)

    def _engine(self, name: str | None) -> Engine:
        entry = self._catalog.entry(name)
        if entry.name not in self._engines:
            self._engines[entry.name] = Engine(self._load(entry))
        return self._engines[entry.name]


def _settings(values: dict[str, Any]) -> Settings:
    """Settings with a seed, whose constraint is one. Raises SettingError."""
    settings = Settings.parse(values)
    if settings.seed is None:
        settings = settings.with_changes(seed=secrets.randbits(64))
    if settings.constraint is not None:
        check_constraint(settings.constraint)
    return settings


def _engine_request(
    checkpoint: Checkpoint, run_id: str, values: dict[str, Any], settings: Settings
) -> tuple[str | None, Request]:
    """A chat as its template gives it, or None; and what the engine is to do."""
    text, prompt_ids = _prompt(checkpoint, values, settings)
    given_text = values.get("given_text")
    if given_text is None:
        return text, Request(run_id, prompt_ids, settings)
    given = checkpoint.encode(given_text, parse_special=settings.parse_special, continues=True)
    return text, Request.to_score(run_id, prompt_ids, settings, given=given)


def _loader(settings: WorkerSettings) -> Callable[[CatalogEntry], Checkpoint]:
    def load(entry: CatalogEntry) -> Checkpoint:
        line = ProgressLine(sys.stderr)
        prepare(entry, line)
        line.finish()
        return load_checkpoint(entry, device=settings.device, dtype=settings.dtype)

    return load


def _prompt(checkpoint: Checkpoint, values: dict[str, Any], settings: Settings) -> tuple[str | None, tuple[int, ...]]:
    """A chat as its template gives it, or None; and the prompt's ids."""
    if values.get("messages") is None:
        return None, checkpoint.encode(values["prompt"], parse_special=settings.parse_special)
    prompt = checkpoint.encode_chat(Chat.parse(values["messages"]))
    return prompt.text, prompt.token_ids


def _payloads(engine: Engine) -> Iterator[Payload]:
    while engine.has_work:
        for output in engine.step():
            yield output.payload


def _read_request(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as exc:
        raise PromptError(f"a request is not valid JSON: {exc}") from exc
    if not isinstance(values, dict):
        raise PromptError("a request must be an object")
    if values.get("messages") is None and not isinstance(values.get("prompt"), str):
        raise PromptError('a request must have a "prompt" that is text, or "messages"')
    if unknown := sorted(set(values) - _FIELDS):
        raise PromptError(f"a request has the fields {', '.join(sorted(_FIELDS))}, not {unknown[0]}", field=unknown[0])
    if not isinstance(values.get("given_text"), str | None):
        raise PromptError("the text to score must be text", field="text")
    if not isinstance(values.get("arms", []), list):
        raise PromptError('"arms" must be a list of settings', field="arms")
    return values


def _ms_since(began_s: float) -> float:
    return round((time.perf_counter() - began_s) * 1000, 3)
