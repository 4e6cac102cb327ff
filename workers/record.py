"""What one run has told so far, folded event by event: text, figures, what is not saved yet. Plain Python."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from models.beams import BeamsTraced
from models.events import Ended, Event, Passes, Prefilled, Started, StopRecord, TokenPicked
from workers.engine.scheduler import num_chunks, num_score_passes


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a run: valid while the row still names this attempt and this owner."""

    run_id: str
    attempt: int
    owner: str

    @property
    def sequence_id(self) -> str:
        """The attempt's name in the engine."""
        return f"{self.run_id}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued run before its claim."""

    is_suspect: bool  # its last attempt did not bring it on, as far as the database knows
    is_arm: bool  # of a comparison


@dataclass(frozen=True, slots=True)
class Claim:
    """A run as its new owner finds it. Ages are in the database's clock and never negative."""

    lease: Lease
    checkpoint: str
    prompt: str
    settings: dict[str, object]
    user: str  # who asked for it, as far as that is known: its comparison, or itself, where it has no owner
    is_cancel_requested: bool
    queued_s: float  # submit to the first claim
    running_s: float  # since the first claim
    ttft_ms: float | None
    milestones: tuple[Event, ...]
    tokens: tuple[Event, ...]
    given_text: str | None = None  # of a run that scores it
    messages: list[Any] | None = None  # of a chat, whose prompt they are
    prompt_ids: tuple[int, ...] | None = None  # of a branch, known before its first claim: its parent's
    opening: tuple[int, ...] = ()  # of a branch: the tokens that its output begins with
    damage: str | None = None  # what is wrong with the saved history, whose whole part is in the two above


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures over all generated tokens, for search and sort; raw distribution, nats."""

    mean_logprob: float | None = None
    min_logprob: float | None = None
    max_rank: int | None = None
    mean_entropy: float | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What the database does not have yet."""

    tokens: tuple[Event, ...]
    milestones: tuple[Event, ...] | None  # all of them, when one is new
    num_tokens: int  # of the run so far, these included
    ttft_ms: float | None


@dataclass(slots=True)
class Record:
    """A run's history in the order of `seq`."""

    run_id: str
    is_score: bool = False
    is_searched: bool = False  # its tokens come from a beam search
    num_given: int = 0  # tokens of a branch's opening
    milestones: list[Event] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    next_seq: int = 0
    ttft_ms: float | None = None
    _texts: list[str] = field(default_factory=list)
    _unsaved: list[Event] = field(default_factory=list)
    _has_new_milestone: bool = False
    _sum_logprob: float = 0.0
    _sum_entropy: float = 0.0
    _min_logprob: float | None = None
    _max_rank: int | None = None
    _num_tokens_by_attempt: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of_saved(cls, claim: Claim) -> "Record":
        """The record that the database holds."""
        is_score = claim.given_text is not None
        is_searched = not is_score and claim.settings.get("num_beams", 1) != 1
        record = cls(
            claim.lease.run_id,
            is_score=is_score,
            is_searched=is_searched,
            num_given=len(claim.opening),
            ttft_ms=claim.ttft_ms,
        )
        record.add_all(sorted((*claim.milestones, *claim.tokens), key=lambda event: event.seq))
        record.mark_saved()
        return record

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Append the next event. Raises ValueError when its number is not the next one."""
        if event.seq != self.next_seq:
            raise ValueError(f"event {event.seq} of run {self.run_id} came where {self.next_seq} was due")
        self.next_seq += 1
        if isinstance(event.payload, TokenPicked):
            self._unsaved.append(event)
            self._fold(event.payload)
            self._num_tokens_by_attempt[event.attempt] = self._num_tokens_by_attempt.get(event.attempt, 0) + 1
        else:
            self.milestones.append(event)
            self._has_new_milestone = True

    def _fold(self, token: TokenPicked) -> None:
        self.token_ids.append(token.token_id)
        self._texts.append(token.text)
        self._sum_logprob += token.raw_logprob
        self._sum_entropy += token.entropy
        self._min_logprob = min(token.raw_logprob, self._min_logprob or 0.0)
        self._max_rank = max(token.rank, self._max_rank or 1)

    @property
    def num_unsaved(self) -> int:
        """Events that the database does not have."""
        return len(self._unsaved) + self._has_new_milestone

    def unsaved(self) -> Batch:
        return Batch(
            tokens=tuple(self._unsaved),
            milestones=tuple(self.milestones) if self._has_new_milestone else None,
            num_tokens=len(self.token_ids),
            ttft_ms=self.ttft_ms,
        )

    def mark_saved(self) -> None:
        self._unsaved.clear()
        self._has_new_milestone = False

    @property
    def started(self) -> Started | None:
        return next((e.payload for e in self.milestones if isinstance(e.payload, Started)), None)

    @property
    def prefilled(self) -> Prefilled | None:
        return next((e.payload for e in self.milestones if isinstance(e.payload, Prefilled)), None)

    @property
    def beams(self) -> BeamsTraced | None:
        return next((e.payload for e in self.milestones if isinstance(e.payload, BeamsTraced)), None)

    @property
    def ended(self) -> Ended | None:
        return next((e.payload for e in self.milestones if isinstance(e.payload, Ended)), None)

    @property
    def text(self) -> str:
        """The run's text: that of its tokens, and the tail once it has ended."""
        tail = self.ended.tail if self.ended else ""
        return "".join(self._texts) + tail

    @property
    def summary(self) -> Summary:
        count = len(self.token_ids)
        if not count:
            return Summary()
        return Summary(
            mean_logprob=round(self._sum_logprob / count, 6),
            min_logprob=self._min_logprob,
            max_rank=self._max_rank,
            mean_entropy=round(self._sum_entropy / count, 6),
        )

    def ended_without_engine(self, stop: StopRecord) -> Ended:
        """The ending of a run that no engine can end: its saved tokens, whatever they are, and the reason."""
        kv_positions, kv_bytes = self._known_cache()
        return Ended(
            status=stop.reason.status,
            stop=stop,
            tail="",
            num_tokens=len(self.token_ids),
            passes=self._known_passes(),
            kv_positions=kv_positions,
            kv_bytes=kv_bytes,
        )

    def of_whole_run(self, ended: Ended, *, attempt: int) -> Ended:
        """What the engine says of its own attempt, with the passes of the earlier ones and the cache that there was.

        The engine's own account stands where its cache held as much as is known of: it knows windows and states.
        """
        whole = replace(ended, passes=self._known_passes(before=attempt) + ended.passes)
        kv_positions, kv_bytes = self._known_cache()
        if ended.kv_positions >= kv_positions:
            return whole
        return replace(whole, kv_positions=kv_positions, kv_bytes=kv_bytes)

    def _known_passes(self, *, before: int | None = None) -> Passes:
        """Those that the events tell of, over the attempts `before` one.

        An attempt prefills what there is when it begins, and takes a pass for every token after its first; where a text
        is scored, for every few. A beam search begins with the prompt each time.

        What told of nothing is not counted, because nobody knows of it: a later attempt that was lost before its first
        token, the decode passes of a beam search that was lost before its end, passes whose tokens were not told. A
        beam search whose tokens were told without its lineage took at least the passes that are counted, and so did a
        later attempt's prefill, whose chunks may have been short; what of it was shared is counted as computed. Events
        from before there was `is_whole` tell it only of prompts longer than a chunk.
        """
        prefilled = self.prefilled
        if prefilled is None:
            return Passes()
        total, num_tokens = Passes(), 0
        for attempt in sorted({self._prefilled_by, *self._num_tokens_by_attempt}):
            if before is not None and attempt >= before:
                break
            num_own = self._num_tokens_by_attempt.get(attempt, 0)
            num_prefill, num_prompt = prefilled.num_passes, prefilled.num_prompt_tokens
            if attempt == self._prefilled_by:
                num_prompt = min(num_prompt, prefilled.num_computed)  # it may have shared the rest
            if attempt != self._prefilled_by and not self.is_searched:
                num_prefill = 1 if self._is_whole else num_chunks(prefilled.num_prompt_tokens + num_tokens)
            num_tokens += num_own
            num_read, num_decode = self._passes_after_prefill(num_own, num_tokens)
            total += Passes(num_prefill + num_read, num_decode, num_prompt)
        return total

    def _passes_after_prefill(self, num_own: int, num_tokens: int) -> tuple[int, int]:
        """Prefill and decode passes of an attempt that told `num_own` tokens and left `num_tokens` in all."""
        num_further = max(0, num_own - 1)
        # Of the tokens after the first, those that an opening gave; several of them take one pass.
        num_given = min(num_further, max(0, self.num_given - (num_tokens - num_own) - 1))
        if self.is_score:
            return (num_further if self._is_whole else num_score_passes(num_further)), 0
        if self.is_searched and num_own:
            return 0, (self.beams.num_steps if self.beams else num_tokens) - 1
        return (num_given if self._is_whole else num_score_passes(num_given)), num_further - num_given

    @property
    def _is_whole(self) -> bool:
        """Whether the checkpoint takes what it prefills in one pass."""
        prefilled = self.prefilled
        return prefilled is not None and (
            prefilled.is_whole or prefilled.num_passes < num_chunks(prefilled.num_computed)
        )

    @property
    def _prefilled_by(self) -> int:
        return next(e.attempt for e in self.milestones if isinstance(e.payload, Prefilled))

    def _known_cache(self) -> tuple[int, int]:
        """Positions and bytes of the cache after the last token: that token itself was never in it.

        The bytes are those of a cache that forgets nothing; layers with a window or a state may have held less.
        """
        prefilled = self.prefilled
        if prefilled is None:
            return 0, 0
        num_positions = prefilled.num_prompt_tokens + max(0, len(self.token_ids) - 1)
        return num_positions, prefilled.kv_bytes * num_positions // prefilled.num_prompt_tokens
