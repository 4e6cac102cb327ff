"""One run inside the engine: its tokens, its counters and its clock."""

import itertools
import statistics
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from models.events import Passes, StopReason, Timing, TokenPicked
from models.sampling import MAX_NEW_TOKENS, Settings
from workers.engine.constraint import Allowances, Mask, Matcher
from workers.engine.stopping import Decision, Match, StepFacts, decide
from workers.engine.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Request:
    """What the engine is asked to run."""

    sequence_id: str
    prompt_token_ids: tuple[int, ...]
    settings: Settings  # with its seed
    generated: tuple[int, ...] = ()  # tokens that an earlier attempt has saved
    given: tuple[int, ...] | None = None  # the tokens of a text that is scored; None for a run that picks its own
    user: str = ""  # who asks: rows are shared out fairly between users
    opening: tuple[int, ...] = ()  # of a branch: tokens that its output begins with; then it picks its own

    @classmethod
    def to_score(
        cls,
        sequence_id: str,
        prompt_token_ids: tuple[int, ...],
        settings: Settings,
        *,
        given: tuple[int, ...],
        generated: tuple[int, ...] = (),
    ) -> Self:
        """A run over a given text. It ends where the text does: its budget is the text, and no other rule of
        `settings` stops it. A text beyond every budget is admission's to refuse."""
        budget = min(len(given), MAX_NEW_TOKENS)
        whole = settings.with_changes(stop=[], stop_token_ids=[], max_tokens=budget)
        return cls(sequence_id, prompt_token_ids, whole, generated, given)


@dataclass(frozen=True, slots=True)
class Limits:
    """The checkpoint's part of the stop rules."""

    context_length: int
    end_token_ids: frozenset[int]


class Sequence:
    """State of one run. Saved tokens are read back through the same rules that new ones meet."""

    def __init__(
        self,
        request: Request,
        limits: Limits,
        *,
        transcript: Transcript,
        banned_ids: frozenset[int] = frozenset(),
        matcher: Matcher | None = None,
    ) -> None:
        """`matcher`: the constraint of the settings before the first token. Raises ConstraintError for saved tokens
        that break it."""
        self.request = request
        self.limits = limits
        self.transcript = transcript
        self.banned_ids = banned_ids
        self.is_searched = _is_searched(request, matcher)
        # Before any token: a search begins there, whatever was saved.
        self.first_matcher = matcher.fork() if matcher is not None and self.is_searched else None
        given = request.opening or None if request.given is None else request.given
        self._matcher = matcher if request.given is None else None
        self._allowances = None if matcher is None or given is None else Allowances(matcher.fork(), given)
        self.stop_token_ids = frozenset(request.settings.stop_token_ids)
        self.prompt_ids = np.array(request.prompt_token_ids, dtype=np.int64)  # read by the stages at every step
        # The tokens that stand in place of picks: None where it picks, as a branch does after its opening.
        self.given_ids = None if given is None else np.array(given, dtype=np.int64)
        self.output_ids: list[int] = []
        self.interrupts: set[StopReason] = set()
        self.counters = Counters()
        self.decision: Decision | None = None  # set once the run has ended by its own rules
        for token_id in request.generated:
            self.accept(token_id, None)
            if self.decision is not None:
                break

    @property
    def sequence_id(self) -> str:
        return self.request.sequence_id

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @property
    def cached_ids(self) -> tuple[int, ...]:
        """The tokens that a prefill computes: the prompt and what was saved."""
        if self.is_searched:
            return self.request.prompt_token_ids
        return self.request.prompt_token_ids + tuple(self.output_ids)

    @property
    def position(self) -> int:
        """The output position that is picked next."""
        return len(self.output_ids)

    @property
    def is_opening(self) -> bool:
        """Whether the next tokens are those that a branch was given."""
        return self.request.given is None and self.given_ids is not None

    def allowed_at(self, position: int) -> Mask | None:
        """What the constraint allows at the next position, or at any position of a given text; None without one, and
        for a search, in which that differs from beam to beam."""
        if self._allowances is not None:
            return self._allowances.at(position)
        return None if self._matcher is None or self.is_searched else self._matcher.allowed()

    def accept(self, token_id: int, token: TokenPicked | None) -> None:
        """Append a picked token (or a saved one, without its event) and apply the stop rules."""
        if self._matcher is not None:
            self._matcher.accept(token_id)
        self.output_ids.append(token_id)
        if self.request.given is None and len(self.output_ids) == len(self.request.opening):
            self.given_ids = self._allowances = None
        self.check(token_id, self.transcript.read(token_id, token))

    def check(self, token_id: int | None = None, match: Match | None = None) -> None:
        """Apply the stop rules to the state after a step that picked `token_id`, or none."""
        settings = self.settings
        self.decision = decide(
            StepFacts(
                num_generated=len(self.output_ids),
                max_tokens=settings.max_tokens,
                num_positions=len(self.request.prompt_token_ids) + len(self.output_ids),
                context_length=self.limits.context_length,
                token_id=token_id,
                end_token_ids=self.limits.end_token_ids,
                stop_token_ids=self.stop_token_ids,
                ignore_eos=settings.ignore_eos or self.request.given is not None,
                match=match,
                is_constraint_complete=self._matcher is not None and self._matcher.is_complete,
            )
        )


def _is_searched(request: Request, matcher: Matcher | None) -> bool:
    """Whether the tokens come from a beam search, which always begins with the prompt. Not where there are none."""
    if request.settings.num_beams == 1 or request.settings.max_tokens == 0 or request.given is not None:
        return False
    return matcher is None or not matcher.is_complete


@dataclass(slots=True)
class Counters:
    """Passes and times of this attempt. Times are seconds of the engine's clock."""

    began_s: float | None = None  # its prefill
    prefill_ms: float | None = None
    num_prefill: int = 0
    num_decode: int = 0
    num_computed: int = 0  # positions of prefill passes
    num_prompt_computed: int = 0  # of them, the prompt's
    token_times_s: list[float] = field(default_factory=list)

    def begin(self, now_s: float) -> None:
        """Its prefill begins; one that begins again has begun already."""
        if self.began_s is None:
            self.began_s = now_s

    def elapsed_ms(self, now_s: float) -> float:
        """Since the attempt began its prefill."""
        return round((now_s - (now_s if self.began_s is None else self.began_s)) * 1000, 3)

    def passes(self) -> Passes:
        return Passes(self.num_prefill, self.num_decode, self.num_prompt_computed)

    def timing(self) -> Timing:
        """The engine's part of the run's timing; queue, load and first delivery are known elsewhere."""
        times = self.token_times_s
        if len(times) < 2:
            return Timing(prefill_ms=self.prefill_ms)
        decode_s = times[-1] - times[0]
        gaps_ms = [(b - a) * 1000 for a, b in itertools.pairwise(times)]
        return Timing(
            prefill_ms=self.prefill_ms,
            decode_ms=round(decode_s * 1000, 3),
            tokens_per_s=round((len(times) - 1) / decode_s, 3) if decode_s > 0 else None,
            itl_ms={f"p{p}": _percentile(gaps_ms, p) for p in (50, 95, 99)},
        )


def _percentile(values: list[float], percent: int) -> float:
    """By linear interpolation between the two nearest ranks, rounded to a microsecond."""
    if len(values) == 1:
        return round(values[0], 3)
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 3)
