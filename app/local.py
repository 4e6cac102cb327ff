"""Runs without the stack: the worker side as a child process, by module name, whose events come back as lines.

Nothing is saved. The child answers the requests in turn, one run after the other.
"""

import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from app.record import RunDetail
from app.run_json import from_events
from app.settings import AppSettings
from models.chat import Chat
from models.errors import DecodeLabError, RefusedError, UnavailableError
from models.events import Ended, Event, Passes, Status, StopReason, StopRecord, TokenPicked
from models.sampling import Settings


class LocalError(DecodeLabError):
    """What the child refused, with its own code."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "The local run failed.")), field=error.get("field"))
        self._code = str(error.get("code", "internal"))

    def as_dict(self) -> dict[str, Any]:
        return {"error": {"code": self._code, "message": self.message, "field": self.field}}


def run_local(
    app_settings: AppSettings,
    prompt: str | Chat,
    arms: Sequence[Settings],
    *,
    checkpoint: str | None,
    given_text: str | None = None,
) -> Generator[Event, None, None]:
    """The events of one run an arm, in turn: it continues the prompt, or scores a given text after it.

    `settings.seed` must be set. All arms are checked before the first of them runs.

    Raises LocalError for what the child refuses, UnavailableError where it cannot run. Closing the iterator ends it.
    """
    asked = {"messages": prompt.as_list()} if isinstance(prompt, Chat) else {"prompt": prompt}
    requests = [
        {
            **asked,
            "run_id": local_id(index),
            "settings": arm.as_dict(),
            "checkpoint": checkpoint,
            "given_text": given_text,
        }
        for index, arm in enumerate(arms)
    ]
    requests[0]["arms"] = _unlike(arms)
    with _child(app_settings) as ask:
        for request in requests:
            yield from ask(request)


def _unlike(arms: Sequence[Settings]) -> list[dict[str, Any]]:
    """The settings that differ from those of the first arm, each once: what is refused does not depend on a seed."""
    first, *others = [orjson.dumps({**arm.as_dict(), "seed": 0}) for arm in arms]
    return [orjson.loads(values) for values in dict.fromkeys(others) if values != first]


def local_id(index: int) -> str:
    """The id of the run of arm `index`."""
    return f"local-{index}"


def cancelled(events: Sequence[Event], num_arms: int) -> list[Event]:
    """The endings of the runs that had not ended, some not even begun, when the person stopped all of them."""
    endings = []
    for run_id in map(local_id, range(num_arms)):
        told = [event for event in events if event.run_id == run_id]
        if not told or not isinstance(told[-1].payload, Ended):
            ended = Ended(
                status=Status.CANCELLED,
                stop=StopRecord(StopReason.CANCELLED),
                tail="",
                num_tokens=sum(isinstance(event.payload, TokenPicked) for event in told),
                passes=Passes(),
                kv_positions=0,
                kv_bytes=0,
            )
            endings.append(Event(run_id, 1, len(told), ended))
    return endings


def collect(
    app_settings: AppSettings,
    prompt: str | Chat,
    arms: Sequence[Settings],
    events: Sequence[Event],
    *,
    checkpoint: str | None,
) -> list[RunDetail]:
    """The runs of `run_local`'s events, in the order of the arms, as runs that continue the prompt."""
    name = checkpoint or app_settings.default_checkpoint or ""
    by_run: dict[str, list[Event]] = {}
    for event in events:
        by_run.setdefault(event.run_id, []).append(event)
    return [
        from_events(run_id, prompt, arm, checkpoint=name, events=found)
        for (run_id, found), arm in zip(by_run.items(), arms, strict=True)
    ]


_Ask = Callable[[dict[str, Any]], Iterator[Event]]


@contextmanager
def _child(app_settings: AppSettings) -> Iterator[_Ask]:
    """A function that gives the child a request and the events of its run.

    One request at a time: were all of them written first, both sides would wait for each other once the pipes are full.
    """
    command = [sys.executable, "-m", "workers.local"]
    child = subprocess.Popen(
        command,
        env=app_settings.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C on the terminal is this process's to handle
    )
    if child.stdin is None or child.stdout is None:
        raise RefusedError("The local engine has no pipes.")
    requests_out, lines = child.stdin, child.stdout

    def ask(request: dict[str, Any]) -> Iterator[Event]:
        with suppress(BrokenPipeError):  # a child that is gone has said why, or its output ends
            requests_out.write(orjson.dumps(request) + b"\n")
            requests_out.flush()
        return _until_ended(lines)

    try:
        yield ask
    finally:
        with suppress(BrokenPipeError):
            requests_out.close()
        lines.close()
        child.terminate()
        child.wait()


def _until_ended(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of one run.

    Raises LocalError for the child's own, EventError for a line that is no event, UnavailableError where the lines end
    too early.
    """
    for line in filter(bytes.strip, lines):
        if line.startswith(b'{"error"'):
            raise LocalError(orjson.loads(line)["error"])
        event = Event.decode(line)
        yield event
        if isinstance(event.payload, Ended):
            return
    raise UnavailableError("The local engine ended before the run did; its messages are above.")
