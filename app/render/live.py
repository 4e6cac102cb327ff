"""A run as the page knows it so far: events go in one by one, values for the page's parts come out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from app.render.ending import ending
from app.render.lineage import lineage
from app.render.loop import loop_fold
from app.render.passes import passes_strip
from app.render.text import count, milliseconds, sendable
from app.render.timing import cache_line, figures, gaps_chart, waterfall
from app.render.tokens import line
from models.beams import BeamsTraced
from models.events import Ended, Event, Prefilled, Resumed, Started, TokenPicked
from models.sampling import Settings

_QUIET_STEP_S: Final = 5


@dataclass(slots=True)
class RunView:
    """The fold of a run's events and of the waits between them. `apply` and `wait` alone change it."""

    run_id: str
    settings: Settings | None = None
    is_scored: bool = False  # its text was given
    fork_position: int | None = None  # of a branch
    tokens: list[TokenPicked] = field(default_factory=list)
    lines: str = ""
    started: Started | None = None
    prefilled: Prefilled | None = None
    num_resumed: int = 0
    beams: BeamsTraced | None = None
    ended: Ended | None = None
    quiet_s: float = 0.0  # since the last event

    def wait(self, seconds: float) -> None:
        """Nothing came for so long."""
        self.quiet_s += seconds

    def apply(self, event: Event) -> None:
        self.quiet_s = 0.0
        match event.payload:
            case TokenPicked() as token:
                self.tokens.append(token)
                self.lines += line(token)
            case Started() as started:
                self.started = started
            case Prefilled() as prefilled:
                self.prefilled = prefilled
            case Resumed():
                self.num_resumed += 1
            case BeamsTraced() as beams:
                self.beams = beams
            case Ended() as ended:
                self.ended = ended
            case _:
                assert_never(event.payload)

    @property
    def state(self) -> str:
        return "ended" if self.ended else "running" if self.started else "queued"

    def strip(self) -> dict[str, Any]:
        """The token strip's value: it grows at the end of `lines` and is otherwise a few short words."""
        return {
            "run": self.run_id,
            "lines": self.lines,
            "state": self.state,
            "note": self.note(),
            "tail": sendable(self.ended.tail) if self.ended else "",
            "fork": self.fork_position,
        }

    def note(self) -> str:
        """What the run is doing, in words. Plain text."""
        if self.ended is not None:
            return ""
        if self.started is None:
            return f"Queued: waiting for a worker.{self._quiet()}"
        resumed = f" Resumed {count(self.num_resumed, 'time')} after a worker was lost." if self.num_resumed else ""
        if self.tokens:
            return f"Running.{resumed}{self._quiet()}"
        if self.prefilled is None:
            return f"Prefill over {count(len(self.started.prompt_token_ids), 'prompt token')}.{resumed}{self._quiet()}"
        doing = "decoding"
        if self._num_beams > 1:
            doing = f"searching with {self._num_beams} beams, whose best text comes at the end"
        return f"Prompt read in {milliseconds(self.prefilled.prefill_ms)}; {doing}.{resumed}"

    @property
    def _num_beams(self) -> int:
        return self.settings.num_beams if self.settings else 1

    @property
    def _read_too(self) -> str:
        if self.is_scored:
            return "the given text"
        return "the tokens that it was given" if self.fork_position is not None else ""

    def _quiet(self) -> str:
        """How long nothing came, in steps of five seconds, and what happens if that has a reason."""
        seconds = int(self.quiet_s // _QUIET_STEP_S) * _QUIET_STEP_S
        if not seconds:
            return ""
        return f" Nothing new for {seconds} s; should its worker be lost, another goes on from here."

    def facts(self) -> str:
        """The stop record, timing and cache of an ended run as HTML; empty before."""
        if self.ended is None:
            return ""
        timing = self.ended.timing
        resumed = ""
        if self.num_resumed:
            resumed = f'<p class="dl-soft">Resumed {count(self.num_resumed, "time")} after a worker was lost.</p>'
        cache = cache_line(self.ended, self.prefilled, num_beams=self._num_beams, read_too=self._read_too)
        return (
            f'<div class="dl-facts-block">{ending(self.ended, self.settings, is_scored=self.is_scored)}'
            f"{resumed}{figures(timing)}"
            f"{waterfall(timing, is_shown_late=self._num_beams > 1)}{gaps_chart(self.tokens)}"
            f"{passes_strip(self.ended, self.prefilled, num_beams=self._num_beams)}{cache}"
            f"{lineage(self.beams, self._pieces())}"
            f"{loop_fold(self.started, self.prefilled, self.tokens, self.ended)}</div>"
        )

    def _pieces(self) -> dict[int, str]:
        """The texts of the tokens that the records name, by id."""
        if self.beams is None:
            return {}
        return {c.token_id: c.piece for token in self.tokens for c in token.candidates}


def view_of(run_id: str, events: Sequence[Event], settings: Settings | None) -> RunView:
    """The view after all of `events`."""
    view = RunView(run_id, settings)
    for event in events:
        view.apply(event)
    return view
