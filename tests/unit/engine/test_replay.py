"""The replay: what recomputing everything at each position gives, in bounded passes."""

import numpy as np
import pytest
import torch

from models.errors import NumericalError, PromptError
from models.sampling import Settings
from tests.fakes import scripted
from tests.fakes.phrases import FOX, ids, saying
from workers.engine import oracle, replay
from workers.engine.checkpoint import Checkpoint
from workers.engine.coverage import coverage
from workers.engine.influence import influence
from workers.engine.replay import Replay
from workers.engine.what_if import what_if

OUTPUT = [(13 * i) % 400 for i in range(45)]


@pytest.mark.parametrize("span_positions", [1, 7, 32])
def test_every_position_is_the_one_that_is_computed_anew(tiny: Checkpoint, span_positions: int) -> None:
    prompt = tiny.encode("the quick brown fox")
    with torch.inference_mode():
        spans = list(Replay(tiny, prompt, OUTPUT).spans(46, span_positions=span_positions))
    assert [n for span in spans for n in span.positions] == list(range(46))
    assert max(len(span.logits) for span in spans) == span_positions
    logits = torch.cat([span.logits for span in spans]).numpy()
    for position in (0, 1, 7, 33, 45):
        expected = oracle.raw_logits(tiny, [*prompt, *OUTPUT[:position]])
        np.testing.assert_allclose(logits[position], expected, atol=1e-4)


def test_a_long_prompt_is_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "CHUNK_POSITIONS", 3)
    checkpoint = saying(FOX)
    list(Replay(checkpoint, ids("the quick brown fox the quick"), ids(FOX)).spans(6))
    assert checkpoint.network.num_positions == [3, 3, 5]


def test_no_pass_over_a_long_text_is_longer_than_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each of the three looks at, at most: a chunk of the prompt, or a span's logits."""
    monkeypatch.setattr(replay, "CHUNK_POSITIONS", 16)
    values = Settings(seed=1, top_p=0.9, repetition_penalty=1.1)
    for look in (what_if, coverage, influence):
        checkpoint = saying(FOX)
        look(checkpoint, [5] * 20, [6] * 200, values)  # type: ignore[operator]
        assert max(checkpoint.network.num_positions) <= replay.SPAN_POSITIONS
        assert sum(checkpoint.network.num_positions) in (219, 220)


def test_nothing_is_computed_where_nothing_is_asked() -> None:
    checkpoint = saying(FOX)
    assert list(Replay(checkpoint, [5], []).spans(0)) == []
    assert checkpoint.network.num_positions == []


def test_a_fault_names_its_position() -> None:
    checkpoint = saying(FOX, at_3=scripted.gives_nan)
    with pytest.raises(NumericalError, match="output position 3"):
        list(Replay(checkpoint, ids("the"), ids(FOX)).spans(6))


@pytest.mark.parametrize(
    ("prompt", "output", "words"),
    [
        ([], [5], "the prompt is empty"),
        ([5] * 5, [5] * 5, "have 10 tokens and scripted has room for 9"),
        ([5], [99_999], "token id 99999 is outside the vocabulary"),
    ],
)
def test_a_run_that_cannot_be_of_this_checkpoint(prompt: list[int], output: list[int], words: str) -> None:
    with pytest.raises(PromptError, match=words):
        Replay(saying(FOX, context_length=9), prompt, output)
