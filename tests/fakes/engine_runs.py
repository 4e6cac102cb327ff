"""Runs through the engine alone, told as one value."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from models.beams import BeamsTraced
from models.events import Ended, Prefilled, TokenPicked
from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Output, Request


@dataclass(frozen=True)
class Told:
    """Everything that the engine said of one sequence."""

    prefilled: Prefilled | None
    tokens: tuple[TokenPicked, ...]
    ended: Ended
    beams: BeamsTraced | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token.token_id for token in self.tokens)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens) + self.ended.tail


def request(
    checkpoint: Checkpoint,
    prompt: str | Sequence[int],
    *,
    sequence_id: str = "a",
    generated: Sequence[int] = (),
    **settings: Any,
) -> Request:
    """A request with these settings, all others neutral; the seed is 7 unless it is given."""
    effective = Settings.parse({"seed": 7, **settings})
    if isinstance(prompt, str):
        prompt = checkpoint.encode(prompt, parse_special=effective.parse_special)
    return Request(sequence_id, tuple(prompt), effective, tuple(generated))


def run(checkpoint: Checkpoint, prompt: str | Sequence[int], **options: Any) -> Told:
    """One sequence in an engine of its own."""
    engine = Engine(checkpoint)
    engine.add(request(checkpoint, prompt, **options))
    return told(drain(engine))["a"]


def drain(engine: Engine) -> list[Output]:
    """Step until nothing is left."""
    outputs: list[Output] = []
    while engine.has_work:
        outputs.extend(engine.step())
    return outputs


def told(outputs: Iterable[Output]) -> dict[str, Told]:
    """The outputs of several sequences, sorted out. Each must have exactly one end, as its last word."""
    by_id: dict[str, list[Any]] = {}
    for output in outputs:
        by_id.setdefault(output.sequence_id, []).append(output.payload)
    result = {}
    for sequence_id, payloads in by_id.items():
        *others, ended = payloads
        prefilled = [p for p in others if isinstance(p, Prefilled)]
        tokens = tuple(p for p in others if isinstance(p, TokenPicked))
        assert isinstance(ended, Ended)
        beams = [p for p in others if isinstance(p, BeamsTraced)]
        assert others == [*prefilled, *tokens, *beams]
        assert len(prefilled) <= 1
        assert len(beams) <= 1
        result[sequence_id] = Told(prefilled[0] if prefilled else None, tokens, ended, beams[0] if beams else None)
    return result


def assert_as_alone(checkpoint: Checkpoint, prompt: str, cases: Mapping[str, dict[str, Any]], **common: Any) -> None:
    """Runs with these settings, all in one engine at once, are each what it is in an engine of its own."""
    engine = Engine(checkpoint, num_rows=len(cases))
    for name, case in cases.items():
        engine.add(request(checkpoint, prompt, sequence_id=name, **common, **case))
    together = told(drain(engine))
    for name, case in cases.items():
        assert_alike(together[name], run(checkpoint, prompt, **common, **case))


def assert_alike(one: Told, other: Told, *, within: float = 1e-4) -> None:
    """The same run but for its times: the same tokens and ending, the same numbers up to the order of additions."""
    assert one.ended.stop == other.ended.stop
    assert one.ended.kv_bytes == other.ended.kv_bytes
    assert_alike_tokens(one.tokens, other.tokens, within=within)
    assert (one.beams is None) == (other.beams is None)
    if one.beams is not None and other.beams is not None:
        assert_alike_lineages(one.beams, other.beams, within=within)


def assert_alike_lineages(one: BeamsTraced, other: BeamsTraced, *, within: float) -> None:
    """The same beams in every step, up to the order of additions."""
    assert (one.beam_indices, one.num_steps) == (other.beam_indices, other.num_steps)
    assert one.sequence_score == pytest.approx(other.sequence_score, abs=within)
    for mine, its in zip(one.steps, other.steps, strict=True):
        for a, b in zip((*mine.beams, *mine.finished), (*its.beams, *its.finished), strict=True):
            assert (a.parent, a.token_id) == (b.parent, b.token_id)
            assert (a.total, a.score) == pytest.approx((b.total, b.score), abs=within)


def assert_alike_tokens(ones: Sequence[TokenPicked], others: Sequence[TokenPicked], *, within: float = 1e-4) -> None:
    """The same tokens, and the same numbers up to `within`."""
    assert [exactly(t) for t in ones] == [exactly(t) for t in others]
    for a, b in zip(ones, others, strict=True):
        theirs = {c.token_id: c for c in b.candidates}
        both = [(c, theirs[c.token_id]) for c in a.candidates if c.token_id in theirs]
        numbers = [(mine.raw_logprob, its.raw_logprob) for mine, its in both]
        numbers += [(mine.logprob, its.logprob) for mine, its in both]
        numbers += [(a.entropy, b.entropy), (a.others.raw, b.others.raw), (a.others.processed, b.others.processed)]
        for mine, its in numbers:
            assert mine == pytest.approx(its, abs=within)


def exactly(token: TokenPicked) -> tuple[object, ...]:
    """What does not depend on the last bits of any number."""
    return token.position, token.token_id, token.text, token.visible, token.rank, tuple(token.removed_mass)
