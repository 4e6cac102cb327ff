"""The figures of an arm that tables, cells and charts show: one list, so that all of them show the same numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.compare import figures
from app.render.text import count, decimal, milliseconds
from app.verdicts import Interval, interval
from models.events import Ended, TokenPicked


class Measured(Protocol):
    """A run that can be measured while it goes on."""

    tokens: list[TokenPicked]
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run. `digits` after the point; `is_judged`: arms are compared by it."""

    key: str
    title: str
    digits: int
    is_judged: bool = False
    is_time: bool = False  # in ms


MEASURES: Final = (
    Measure("tokens", "tokens", 0, is_judged=True),
    Measure("mean_logprob", "mean raw logprob", 3, is_judged=True),
    Measure("perplexity", "raw perplexity", 2),
    Measure("distinct_2", "distinct-2", 2, is_judged=True),
    Measure("ttft_ms", "TTFT", 0, is_time=True),
    Measure("tokens_per_s", "tok/s", 1),
)
JUDGED: Final = tuple(m for m in MEASURES if m.is_judged)


def measure(run: Measured) -> dict[str, float | None]:
    """Every figure of one run by its key; None where there is none yet."""
    found = figures(run.tokens)
    timing = run.ended.timing if run.ended else None
    return {
        "tokens": found.num_tokens,
        "mean_logprob": found.mean_logprob,
        "perplexity": found.perplexity,
        "distinct_2": found.distinct.get(2),
        "ttft_ms": timing.ttft_ms if timing else None,
        "tokens_per_s": timing.tokens_per_s if timing else None,
    }


def shown(one: Measure, value: float | None) -> str:
    """A figure as text; "" for none."""
    if value is None:
        return ""
    if one.is_time:
        return milliseconds(value)
    # A mean number of tokens is no whole number.
    is_whole = one.digits == 0 and value == int(value)
    return count(int(value)) if is_whole else decimal(value, one.digits or 1)


def interval_of(samples: Sequence[Mapping[str, float | None]], one: Measure) -> Interval | None:
    """The 95 % interval of a figure's mean over seeds; None for fewer than two values."""
    return interval(values_of(samples, one))


def values_of(samples: Sequence[Mapping[str, float | None]], one: Measure) -> list[float]:
    """The values that there are, in the order of the seeds."""
    return [value for sample in samples if (value := sample[one.key]) is not None]
