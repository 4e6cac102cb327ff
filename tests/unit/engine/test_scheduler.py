"""Who runs next."""

import pytest

from workers.engine.scheduler import CHUNK_POSITIONS, Chunk, Plan, Scheduler


def whole(sequence_id: str, num_positions: int = 1) -> Chunk:
    return Chunk(sequence_id, 0, num_positions, is_last=True)


def test_one_prompt_a_step_and_never_more_than_the_rows() -> None:
    scheduler = Scheduler(2)
    for name in "abc":
        scheduler.add(name, 1)
    assert scheduler.plan() == Plan(prefill=whole("a"))
    assert scheduler.plan() == Plan(prefill=whole("b"), decode=("a",))
    assert scheduler.plan() == Plan(decode=("a", "b"))
    scheduler.remove("a")
    assert scheduler.plan() == Plan(prefill=whole("c"), decode=("b",))
    assert scheduler.num_running == 2


def test_one_that_waits_can_be_removed() -> None:
    scheduler = Scheduler(1)
    for name in "abc":
        scheduler.add(name, 1)
    scheduler.plan()
    scheduler.remove("b")
    scheduler.remove("a")
    assert scheduler.plan() == Plan(prefill=whole("c"))


def test_nobody_waits() -> None:
    assert Scheduler(1).plan() == Plan()


def test_no_rows_is_no_engine() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Scheduler(0)


def test_a_long_prompt_takes_its_steps_and_the_others_go_on() -> None:
    scheduler = Scheduler(3)
    scheduler.add("a", 1)
    scheduler.add("b", 2 * CHUNK_POSITIONS + 1)
    scheduler.add("c", CHUNK_POSITIONS)
    assert scheduler.plan() == Plan(prefill=whole("a"))
    assert scheduler.plan() == Plan(Chunk("b", 0, CHUNK_POSITIONS, is_last=False), ("a",))
    assert scheduler.num_running == 2
    assert scheduler.plan() == Plan(Chunk("b", CHUNK_POSITIONS, 2 * CHUNK_POSITIONS, is_last=False), ("a",))
    assert scheduler.plan() == Plan(Chunk("b", 2 * CHUNK_POSITIONS, 2 * CHUNK_POSITIONS + 1, is_last=True), ("a",))
    assert scheduler.plan() == Plan(whole("c", CHUNK_POSITIONS), ("a", "b"))
    assert scheduler.plan() == Plan(decode=("a", "b", "c"))


def test_a_checkpoint_that_cannot_go_on_from_a_chunk_has_none() -> None:
    scheduler = Scheduler(1, prefills_whole=True)
    scheduler.add("a", 3 * CHUNK_POSITIONS + 1)
    assert scheduler.plan() == Plan(whole("a", 3 * CHUNK_POSITIONS + 1))
    assert scheduler.plan() == Plan(decode=("a",))


def test_a_prompt_can_be_removed_half_way() -> None:
    scheduler = Scheduler(1)
    scheduler.add("a", 5 * CHUNK_POSITIONS)
    scheduler.add("b", 1)
    scheduler.plan()
    scheduler.remove("a")
    assert scheduler.plan() == Plan(prefill=whole("b"))
    assert scheduler.num_running == 1
