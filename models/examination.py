"""What looks back at a saved run with the network: what can be asked, and what each question is answered with.

Frozen values with strict JSON (`encode`, `decode`), as between the page and a worker. Log-probabilities are natural.
Positions count output tokens, 0 for the first one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, TypeVar

import msgspec

from models.errors import DecodeLabError
from models.events import StopReason
from models.sampling import Settings

MAX_POSITIONS: Final = 4096
"""Tokens of prompt and text together that are looked back at: their keys and values are beside those of all runs."""

_Answer = TypeVar("_Answer")


class Question(StrEnum):
    """What can be asked of a saved run."""

    INFLUENCE = "influence"
    WHAT_IF = "what_if"
    COVERAGE = "coverage"
    CACHE_CHECK = "cache_check"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a run that has ended, plain JSON as it goes to a worker."""

    run_id: str
    question: Question
    settings: dict[str, Any] | None = None  # of a what-if; the others ask under the run's own

    def as_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "question": self.question.value, "settings": self.settings}

    @classmethod
    def parse(cls, values: Any) -> "Asked":
        """The inverse of `as_dict`. Raises ValueError."""
        return msgspec.convert(values, type=cls)

    def settings_or(self, own: Settings) -> Settings:
        """The settings that are asked about. Raises SettingError."""
        return own if self.settings is None else Settings.parse(self.settings)


@dataclass(frozen=True, slots=True)
class ControlInfluence:
    """What one active control did, in output positions."""

    control: str
    num_changed: int  # another kept set, or another logit of a kept token
    num_decided: int  # another pick

    @property
    def did_nothing(self) -> bool:
        return not self.num_changed and not self.num_decided


@dataclass(frozen=True, slots=True)
class Influence:
    """What the active controls did to a run. Empty for neutral settings."""

    num_positions: int
    controls: tuple[ControlInfluence, ...]

    @property
    def idle(self) -> tuple[str, ...]:
        """The controls that did nothing."""
        return tuple(control.control for control in self.controls if control.did_nothing)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One position of the saved run under the new settings."""

    position: int
    token_id: int  # saved
    logprob: float | None  # processed, of the saved token under the new settings; None where they remove it
    picked_id: int  # what the same noise picks after the saved prefix


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where a fresh run leaves the saved one. A list of tokens that ends here has None."""

    position: int
    saved_id: int | None
    fresh_id: int | None
    fresh_stop: StopReason | None  # why the fresh run has ended, where it has


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A saved run under other settings."""

    alternatives: tuple[Alternative, ...]  # one for each saved token
    first_difference: FirstDifference | None  # None: a fresh run has the same tokens


@dataclass(frozen=True, slots=True)
class Reach:
    """How far each control may go at one position. None for all where the settings remove the token before."""

    position: int
    token_id: int
    top_k: int | None  # the smallest that keeps the token
    top_p: float | None  # the smallest that keeps it; 0 where every one does
    min_p: float | None  # the largest that keeps it; 0 where only the neutral one does


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """At this value of the control, and up to the next point's, so many of the text's tokens are permitted."""

    value: float
    share: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """The reach at every position of a text."""

    reaches: tuple[Reach, ...]

    @property
    def top_k_curve(self) -> tuple[CurvePoint, ...]:
        """From the tightest value on: the share rises with k."""
        return self._curve(reach.top_k for reach in self.reaches)

    @property
    def top_p_curve(self) -> tuple[CurvePoint, ...]:
        """From the tightest value on: the share rises with p."""
        return self._curve(reach.top_p for reach in self.reaches)

    @property
    def min_p_curve(self) -> tuple[CurvePoint, ...]:
        """From the tightest value on, which is the largest: the share rises as the value falls."""
        negated = (None if reach.min_p is None else -reach.min_p for reach in self.reaches)
        return tuple(CurvePoint(-point.value + 0.0, point.share) for point in self._curve(negated))

    def _curve(self, limits: Iterable[float | None]) -> tuple[CurvePoint, ...]:
        """The share of positions whose limit is at most a value, for each value at which it changes."""
        points, num_permitted = [], 0
        for value, equal in groupby(sorted(limit for limit in limits if limit is not None)):
            num_permitted += sum(1 for _ in equal)
            points.append(CurvePoint(value, num_permitted / len(self.reaches)))
        return tuple(points)


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """What the cache changed."""

    num_positions: int  # of the run
    num_checked: int  # the first so many of them
    largest_difference: float  # nats, over all tokens of the vocabulary, raw
    largest_at: int | None  # its position; None where none was checked
    changed_picks: tuple[int, ...]  # positions where the settings and their seed pick another token


Answer = Influence | WhatIf | Coverage | CacheCheck


def encode(answer: Answer | DecodeLabError) -> bytes:
    """An answer, or what stands in its way, as strict JSON."""
    if isinstance(answer, DecodeLabError):
        return msgspec.json.encode(answer.as_dict())
    return msgspec.json.encode({"answer": answer})


def decode(data: bytes, kind: type[_Answer]) -> _Answer:
    """The inverse of `encode` for an answer of `kind`. Raises the error that was encoded; ValueError for neither."""
    values = msgspec.json.decode(data)
    if not isinstance(values, dict):
        raise ValueError("this is no answer of a worker")
    if isinstance(error := values.get("error"), dict):
        raise error_of(error)
    return msgspec.convert(values.get("answer"), type=kind)


def error_of(values: dict[str, Any]) -> DecodeLabError:
    """The error with the `code`, `message` and `field` of `DecodeLabError.as_dict`; the base where the code is none of
    the tree, or of several."""
    kind = _BY_CODE.get(str(values.get("code")), DecodeLabError)
    field = values.get("field")
    return kind(str(values.get("message", "")), field=None if field is None else str(field))


def _tree(kind: type[DecodeLabError]) -> Iterable[type[DecodeLabError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


# The first one of a code is the one nearest to the root.
_BY_CODE: Final = {kind.code: kind for kind in reversed(list(_tree(DecodeLabError)))}
