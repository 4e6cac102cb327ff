"""The growing cache: every position that was ever put in, in order, and a truthful account of the bytes."""

import pytest
import torch

from tests.fakes.engine_runs import run
from workers.engine.cache import GrowingLayer, SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.runner import Runner


@pytest.mark.parametrize("chunks", [[1], [300], [255, 1, 1], [1] * 600, [256, 256, 1], [7, 1, 500, 1, 1]])
def test_what_goes_in_is_there(chunks: list[int]) -> None:
    layer = GrowingLayer()
    whole = torch.arange(2 * 3 * sum(chunks) * 4, dtype=torch.float32).reshape(2, 3, -1, 4)
    start = 0
    for size in chunks:
        part = whole[:, :, start : start + size]
        start += size
        keys, values = layer.update(part, -part)
        assert torch.equal(keys, whole[:, :, :start])
        assert torch.equal(values, -whole[:, :, :start])
        assert layer.get_seq_length() == start


def test_room_is_doubled_and_not_made_anew_at_each_step() -> None:
    layer = GrowingLayer()
    layer.update(torch.zeros(1, 1, 200, 4), torch.zeros(1, 1, 200, 4))
    places = set()
    for _ in range(1000):
        keys, _ = layer.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        places.add(keys.untyped_storage().nbytes())
    assert len(places) == 3


def test_the_account_is_layers_heads_size_positions(tiny: Checkpoint) -> None:
    runner = Runner(tiny)
    cache = runner.new_cache()
    with torch.inference_mode():
        runner.prefill(cache, tiny.encode("the quick brown fox"))
        runner.decode(cache, 5)
    assert isinstance(cache, SequenceCache)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers.layers)
    assert cache.num_positions == 5
    assert cache.num_bytes == held == tiny.info.kv_bytes(5)
    assert cache.num_allocated_bytes == tiny.info.kv_bytes(256)


def test_a_run_is_billed_for_the_positions_it_held(tiny: Checkpoint) -> None:
    got = run(tiny, "the quick brown", max_tokens=5, ignore_eos=True)
    assert got.ended.kv_positions == 3 + 5 - 1  # the last token was picked and never fed
    assert got.ended.kv_bytes == tiny.info.kv_bytes(7)
