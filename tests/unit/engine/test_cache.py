"""The growing cache: every position that was ever put in, in order, and a truthful account of the bytes."""

import pytest
import torch
from transformers.cache_utils import DynamicLayer

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


def test_room_is_added_in_steps_and_not_made_anew_at_each_position() -> None:
    layer = GrowingLayer()
    layer.update(torch.zeros(1, 1, 200, 4), torch.zeros(1, 1, 200, 4))
    places = set()
    for _ in range(1000):
        keys, _ = layer.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        places.add(keys.untyped_storage().nbytes())
    assert len(places) == 7
    assert max(places) <= 1.3 * 1200 * 4 * 4


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


@pytest.mark.parametrize(
    "orders",
    [
        [[0, 0, 0], [2, 0, 0], [1, 1, 2]],
        [[0, 0], [1, 0], [0, 1], [1, 1]],
        [[0, 0], [1, 0, 1, 1], [3, 2, 1, 0], [0]],  # more rows than before, and fewer
        [[0], [0, 0], [0]],
    ],
)
@pytest.mark.parametrize("num_shared", [1, 255, 256, 300])
def test_rows_are_copies_of_those_they_continue(orders: list[list[int]], num_shared: int) -> None:
    layer, plain = GrowingLayer(), DynamicLayer()
    new = torch.arange(3 * num_shared * 4, dtype=torch.float32).reshape(1, 3, num_shared, 4)
    for rows in orders:
        for each in (layer, plain):
            each.update(new, -new)
            each.reorder_cache(torch.tensor(rows))
        assert torch.equal(layer.keys, plain.keys)
        assert torch.equal(layer.values, plain.values)
        new = torch.arange(3 * len(rows) * 4, dtype=torch.float32).reshape(-1, 3, 1, 4) + 0.5 * layer.get_seq_length()
    keys, values = layer.update(new, -new)
    expected, _ = plain.update(new, -new)
    assert torch.equal(keys, expected)
    assert torch.equal(values, -expected)


def test_what_all_rows_share_is_not_copied_again() -> None:
    layer = GrowingLayer()
    layer.update(torch.zeros(1, 1, 200, 4), torch.zeros(1, 1, 200, 4))
    layer.reorder_cache(torch.tensor([0, 0]))
    layer.keys[1, 0, :200] = 1.0  # no copy of it would leave this
    layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    layer.reorder_cache(torch.tensor([0, 0]))
    assert bool((layer.keys[1, 0, :200] == 1.0).all())


@pytest.mark.parametrize("num_beams", [2, 5])
def test_a_search_is_billed_for_every_beam(tiny: Checkpoint, num_beams: int) -> None:
    got = run(tiny, "the quick brown", num_beams=num_beams, max_tokens=5, ignore_eos=True)
    assert got.ended.kv_positions == num_beams * 7
    assert got.ended.kv_bytes == tiny.info.kv_bytes(num_beams * 7)
