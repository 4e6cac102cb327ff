"""A worker's record of itself: what is read back, also from an older or a newer worker; and the bytes of a cache."""

import dataclasses

import orjson
import pytest

from models.presence import LayerMemory, WorkerPresence
from tests.fakes.scripted_runs import checkpoint_info

# Worked by hand: one layer with 2 heads of 12 in float32 that forgets nothing, two that remember 7 positions, and one
# with a state of 4,608 bytes.
MIXED = (LayerMemory(1, 192), LayerMemory(2, 192, 7), LayerMemory(1, state_bytes=4608))


def presence(**changes: object) -> WorkerPresence:
    return WorkerPresence("w", "host", 1, "2026-01-01T00:00:00Z", 2, 0, checkpoint_info(**changes), {"torch": "2"})


def test_what_is_written_is_read_back() -> None:
    worker = presence(memory=MIXED, prefills_whole=True, alone_because="it is so", is_fused=True)
    assert WorkerPresence.decode(worker.encode()) == worker
    assert not worker.checkpoint.can_batch


def test_an_older_workers_record_is_read_with_the_defaults() -> None:
    values = orjson.loads(presence().encode())
    for name in ("memory", "prefills_whole", "chat_template_digest", "alone_because", "is_fused"):
        del values["checkpoint"][name]
    read = WorkerPresence.decode(orjson.dumps(values))
    assert read == presence()
    assert (read.checkpoint.memory, read.checkpoint.can_batch) == ((), True)
    assert read.checkpoint.kv_bytes(10) == 30 * 2 * 3 * 64 * 10 * 4


def test_what_only_a_newer_worker_says_is_ignored() -> None:
    values = orjson.loads(presence(memory=MIXED).encode())
    values["checkpoint"]["memory"][0]["color"] = values["checkpoint"]["color"] = values["color"] = "blue"
    assert WorkerPresence.decode(orjson.dumps(values)) == presence(memory=MIXED)


@pytest.mark.parametrize("memory", [7, [7], [{}], {"a": 1}])
def test_a_record_without_sense_is_refused(memory: object) -> None:
    values = orjson.loads(presence().encode())
    values["checkpoint"]["memory"] = memory
    with pytest.raises(ValueError, match="no worker's presence"):
        WorkerPresence.decode(orjson.dumps(values))


@pytest.mark.parametrize(
    ("num_positions", "expected"),
    [(0, 0), (1, 192 + 2 * 192 + 4608), (7, 7 * 192 + 2 * 7 * 192 + 4608), (100, 100 * 192 + 2 * 7 * 192 + 4608)],
)
def test_a_window_and_a_state_do_not_grow_for_ever(num_positions: int, expected: int) -> None:
    assert checkpoint_info(memory=MIXED).kv_bytes(num_positions) == expected


def test_layers_are_plain_values() -> None:
    assert dataclasses.asdict(LayerMemory(1, 192, 7)) == {
        "num_layers": 1,
        "bytes_per_position": 192,
        "max_positions": 7,
        "state_bytes": 0,
    }
