"""What a run tells the world while it lives: frozen values, one encoder, one decoder.

The events of a run are numbered by `seq` from 0 without a gap: one `Started`, one `Prefilled`, a `TokenPicked` for
every generated token, a `Resumed` for every later attempt, and exactly one `Ended` at the end. A beam search tells its
winner's tokens when it is over, and then, in one `BeamsTraced`, how it came to them.

Laws that readers may rely on:

- the `text` of the tokens, joined, plus `Ended.tail` is the run's text, and a text that was sent is never taken back;
- log-probabilities are natural logs rounded to 6 decimals at their source, so stream, table, page and JSON hold the
  same number; a removed token has none (`None`) and names the stage that removed it;
- the JSON is strict: no NaN, no Infinity, and one zero, because SQLite does not keep the sign of -0.0.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from models.beams import BeamsTraced
from models.errors import EventError

Kind = TypeVar("Kind")

MAX_CAUSES: Final = 8
"""A common word may have stood in hundreds of places; the latest few explain as much, and `num_causes` has the rest."""


class Status(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)


class RunKind(StrEnum):
    """What a run does with its prompt."""

    GENERATE = "generate"  # it continues it
    SCORE = "score"  # it reads a given text after it


class StopReason(StrEnum):
    """Why a run ended: the closed list, in the order in which the reasons are tried at each step."""

    EOS = "eos"
    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    CONSTRAINT_COMPLETE = "constraint_complete"
    MAX_TOKENS = "max_tokens"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    WORKER_LOST = "worker_lost"
    ERROR_NUMERICAL = "error:numerical"
    ERROR_OUT_OF_MEMORY = "error:out_of_memory"
    ERROR_CHECKPOINT = "error:checkpoint"
    ERROR_INTERNAL = "error:internal"

    @property
    def status(self) -> Status:
        """The terminal state that goes with this reason."""
        if self is StopReason.CANCELLED:
            return Status.CANCELLED
        if self is StopReason.WORKER_LOST or self.value.startswith("error:"):
            return Status.FAILED
        return Status.FINISHED


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token that could have been picked at a position."""

    token_id: int
    piece: str  # the token alone, for display; the exact bytes belong to the vocabulary
    raw_logprob: float | None  # None only where the checkpoint itself gave minus infinity
    logprob: float | None  # processed; None when removed
    removed_by: str | None  # the stage that removed it
    penalty: float  # change of its logit by bias and penalties, before temperature; 0 when untouched
    noise: float | None  # G(seed, position, token id); None where nothing is drawn (greedy)
    num_causes: int = 0  # places in prompt + output that count against it under the active penalties
    causes: tuple[int, ...] = ()  # the latest MAX_CAUSES of them, 0 for the first token of the prompt


@dataclass(frozen=True, slots=True)
class Others:
    """The probability mass of every token that is not among the candidates, so that shown masses sum to 1."""

    raw: float
    processed: float


@dataclass(frozen=True, slots=True)
class Tax:
    """What a constraint took from the raw distribution at one position."""

    bits: float  # -log2 of the raw probability of all that it allowed
    displaced: int | None  # the most probable raw token, where the constraint removed it


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has claimed the run."""

    checkpoint: str
    device: str
    dtype: str
    prompt_token_ids: tuple[int, ...]
    queue_ms: float  # as in Timing
    load_ms: float
    prompt_text: str | None = None  # a chat as its template gives it; None for a raw prompt


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the KV cache."""

    num_prompt_tokens: int
    num_computed: int  # positions computed by this run's own prefill passes
    num_passes: int
    prefill_ms: float
    kv_bytes: int
    is_whole: bool = False  # the checkpoint takes any prompt in one pass, and goes on by single positions


@dataclass(frozen=True, slots=True)
class TokenPicked:
    """One generated token with everything that is shown for it."""

    position: int  # 0 for the first generated token
    token_id: int
    piece: str  # text that the detokenizer released for this token; "" while a character is incomplete
    token_bytes: bytes  # the token's own bytes, exact
    text: str  # the part of `piece` that belongs to the run's text
    visible: bool  # False for an end token, and for a token withheld by a stop string
    withheld: bool  # True when a stop string cut this token away, wholly
    raw_logprob: float
    logprob: float | None  # processed; None for a given token that the settings make impossible
    rank: int  # 1-based among raw log-probabilities; ties share the better rank
    rank_processed: int
    entropy: float  # nats, raw distribution
    entropy_processed: float  # nats, processed distribution
    kept: dict[str, int]  # truncating stage -> tokens kept after it
    removed_mass: dict[str, float]  # truncating stage -> raw probability it removed
    candidates: tuple[Candidate, ...]  # by raw log-probability, best first
    others: Others
    elapsed_ms: float  # since the attempt began its prefill; engine clock
    tax: Tax | None = None  # where the run has a constraint


@dataclass(frozen=True, slots=True)
class Resumed:
    """A later attempt goes on from the saved tokens."""

    from_position: int


@dataclass(frozen=True, slots=True)
class NearMiss:
    """How close a stop string came to matching."""

    stop: str
    num_matched: int  # characters of `stop` that the text ended with at its best
    position: int | None  # token at which that happened


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The one reason why a run ended, and the evidence."""

    reason: StopReason
    matched: str | None = None  # the stop string
    token_id: int | None = None  # the end or stop token
    span: tuple[int, int] | None = None  # the match's characters in the text as it would be without the cut
    withheld: int = 0  # tokens that are not in the text, wholly, because of the match
    also: tuple[StopReason, ...] = ()  # other reasons that were true at the same step
    misses: tuple[NearMiss, ...] = ()
    message: str | None = None  # for errors: the sentence for the person


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in milliseconds. `None` where the run ended before there was such a thing."""

    queue_ms: float | None = None  # submit to the first claim, without `load_ms`
    load_ms: float | None = None  # the part of that wait in which the worker loaded its checkpoint
    prefill_ms: float | None = None
    decode_ms: float | None = None  # first token to last token
    ttft_ms: float | None = None  # submit to first token published
    tokens_per_s: float | None = None  # decode only: (tokens - 1) / decode time
    itl_ms: dict[str, float] | None = None  # inter-token latency: p50, p95, p99


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward passes that this run took part in, over all its attempts."""

    prefill: int = 0
    decode: int = 0
    prompt_tokens_computed: int = 0  # positions of the prompt alone, each time that they were computed

    def __add__(self, other: "Passes") -> "Passes":
        return Passes(
            self.prefill + other.prefill,
            self.decode + other.decode,
            self.prompt_tokens_computed + other.prompt_tokens_computed,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event of a run."""

    status: Status
    stop: StopRecord
    tail: str  # text after the last token's: U+FFFD for bytes that never became a character
    num_tokens: int
    passes: Passes
    kv_positions: int  # held at the end; of a beam search those of all its beams together
    kv_bytes: int
    timing: Timing = field(default_factory=Timing)


Payload = Started | Prefilled | TokenPicked | Resumed | BeamsTraced | Ended

EVENT_TYPES: Final[dict[str, type[Any]]] = {
    "started": Started,
    "prefilled": Prefilled,
    "token": TokenPicked,
    "resumed": Resumed,
    "beams": BeamsTraced,
    "ended": Ended,
}
_TYPE_NAMES: Final = {cls: name for name, cls in EVENT_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Event:
    """A payload with its place in the run's history."""

    run_id: str
    attempt: int
    seq: int
    payload: Payload

    @property
    def type(self) -> str:
        return _TYPE_NAMES[type(self.payload)]

    def encode(self) -> bytes:
        """Strict JSON, UTF-8. Raises TypeError for a value that JSON cannot hold."""
        payload = msgspec.Raw(_ENCODER.encode(self.payload))
        return _ENCODER.encode(_Envelope(self.run_id, self.attempt, self.seq, self.type, payload))

    @classmethod
    def decode(cls, data: bytes | str) -> "Event":
        """The inverse of `encode`; unknown fields of a newer writer are ignored. Raises EventError for all else."""
        try:
            envelope = _ENVELOPES.decode(data)
            if envelope.type not in _PAYLOADS:
                told = f"A run tells of {envelope.type[:40]!r}, which this version does not know"
                raise EventError(f"{told}; what wrote it is newer, so update this one.")
            payload = _PAYLOADS[envelope.type].decode(envelope.payload)
        except (ValueError, RecursionError) as exc:
            raise EventError(f"An event of a run cannot be read: {exc}. It was damaged, or is none.") from exc
        return cls(envelope.run_id, envelope.attempt, envelope.seq, payload)


class _Envelope(msgspec.Struct, frozen=True):
    """An event whose payload is still text: its type says how to read it."""

    run_id: str
    attempt: int
    seq: int
    type: str
    payload: msgspec.Raw


_ENCODER: Final = msgspec.json.Encoder()
_ENVELOPES: Final = msgspec.json.Decoder(_Envelope)
_PAYLOADS: Final = {name: msgspec.json.Decoder[Any](cls) for name, cls in EVENT_TYPES.items()}


def to_json(value: Any) -> Any:
    """A payload (or any value of this module) as plain JSON values; bytes become base64 text."""
    return msgspec.json.decode(_ENCODER.encode(value))


def from_json(kind: type[Kind], value: Any) -> Kind:
    """The inverse of `to_json` for a dataclass of this module. Raises ValueError for what is none."""
    return msgspec.convert(value, type=kind)
