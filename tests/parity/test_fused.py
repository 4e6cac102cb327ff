"""The compiled step against the network, and against itself: alone, in a batch, as part of a chunk."""

import copy
from collections.abc import Iterator
from itertools import count

import pytest
import torch

from tests.fakes.checkpoints import VOCAB_SIZE
from tests.fakes.families import FAMILIES
from workers.engine.fused import MOST_POSITIONS
from workers.engine.kernels.attention import BAND, PIECE
from workers.engine.ragged import Pass
from workers.engine.runner import Runner

NUM_POSITIONS = 2 * PIECE + 60
CHUNKS = (1, BAND - 1, MOST_POSITIONS, BAND, 1, BAND + 1)


@pytest.fixture(scope="module", params=[name for name, family in FAMILIES.items() if family.is_fused])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    checkpoint = FAMILIES[request.param].load(tmp_path_factory.mktemp("fused") / "tiny")
    assert checkpoint.info.is_fused
    return Runner(checkpoint)


def token_ids(seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB_SIZE, (NUM_POSITIONS,), generator=generator).tolist()


def chunks(ids: list[int]) -> Iterator[list[int]]:
    start = 0
    for number in count():
        size = CHUNKS[number % len(CHUNKS)]
        if start >= len(ids):
            return
        yield ids[start : start + size]
        start += size


def by_chunks(runner: Runner, ids: list[int]) -> torch.Tensor:
    cache = runner.new_cache()
    return torch.cat([runner.extend(cache, chunk) for chunk in chunks(ids)])


def assert_as_exact_as_the_network(runner: Runner, ids: list[int], logits: torch.Tensor) -> None:
    """Of all that float32 rounds in a random network, over positions it was not made for, the kernels' part is no
    larger than the network's own: both are held against the same network in float64."""
    exact = copy.deepcopy(runner._network).double()(input_ids=torch.tensor([ids])).logits[0, -len(logits) :]
    own = runner.uncached(ids, num_kept=len(logits))

    def error(answer: torch.Tensor) -> float:
        return float((answer.double().log_softmax(-1) - exact.log_softmax(-1)).abs().max())

    assert error(logits) < 2 * error(own) < 1e-3


@torch.inference_mode()
def test_chunks_give_what_the_network_gives(runner: Runner) -> None:
    ids = token_ids(1)
    assert_as_exact_as_the_network(runner, ids, by_chunks(runner, ids))


@torch.inference_mode()
def test_a_position_is_the_same_alone_and_in_a_chunk(runner: Runner) -> None:
    ids = token_ids(2)
    cache = runner.new_cache()
    one_by_one = torch.cat([runner.decode(cache, token_id) for token_id in ids])
    assert one_by_one.equal(by_chunks(runner, ids))


@torch.inference_mode()
def test_a_sequence_is_the_same_alone_and_beside_others(runner: Runner) -> None:
    """Others decode, and bring chunks, before it and behind it."""
    ids, others = token_ids(3), [token_ids(seed) for seed in (4, 5, 6)]
    cache, beside = runner.new_cache(), [runner.new_cache() for _ in others]
    together = []
    for number, chunk in enumerate(chunks(ids)):
        passes = [
            Pass(other, [text[other.num_positions : other.num_positions + size]])
            for other, text, size in zip(beside, others, (1, 3, 1 + number % 9), strict=True)
        ]
        passes.insert(number % 4, Pass(cache, [chunk], num_kept=len(chunk)))
        answer = runner.run(passes)[number % 4]
        assert isinstance(answer, torch.Tensor)
        together.append(answer)
    assert torch.cat(together).equal(by_chunks(runner, ids))


@torch.inference_mode()
def test_a_chunk_may_follow_what_the_network_computed(runner: Runner) -> None:
    ids = token_ids(7)
    cache = runner.new_cache()
    runner.prefill(cache, ids[:300])  # more than a short step takes
    rest = torch.cat([runner.extend(cache, ids[start : start + 40]) for start in range(300, len(ids), 40)])
    assert_as_exact_as_the_network(runner, ids, rest)
