"""Who runs next, over how many positions."""

import pytest

from workers.engine.scheduler import CHUNK_POSITIONS, LEAST_POSITIONS, Chunk, Plan, Scheduler, budget_beside


def whole(sequence_id: str, num_positions: int = 1) -> Chunk:
    return Chunk(sequence_id, 0, num_positions, is_last=True)


def added(num_rows: int, lengths: dict[str, int], **options: bool | float) -> Scheduler:
    scheduler = Scheduler(num_rows, **options)  # type: ignore[arg-type]
    for name, num_positions in lengths.items():
        scheduler.add(name, num_positions)
    return scheduler


def test_never_more_than_the_rows() -> None:
    scheduler = added(2, {"a": 1, "b": 1, "c": 1})
    assert scheduler.plan() == Plan((whole("a"), whole("b")))
    assert scheduler.plan() == Plan(decode=("a", "b"))
    scheduler.remove("a")
    assert scheduler.plan() == Plan((whole("c"),), decode=("b",))
    assert scheduler.num_running == 2


def test_one_that_waits_can_be_removed() -> None:
    scheduler = added(1, {"a": 1, "b": 1, "c": 1})
    scheduler.plan()
    scheduler.remove("b")
    scheduler.remove("a")
    assert scheduler.plan() == Plan((whole("c"),))


def test_nobody_waits() -> None:
    assert Scheduler(1).plan() == Plan()


def test_no_rows_is_no_engine() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Scheduler(0)


def test_a_long_prompt_takes_short_steps_beside_others_and_long_ones_alone() -> None:
    beside = budget_beside(1)
    scheduler = added(2, {"a": CHUNK_POSITIONS + 1, "b": 2 * beside + 1})
    assert scheduler.plan() == Plan((Chunk("a", 0, CHUNK_POSITIONS, is_last=False),))
    assert scheduler.plan() == Plan(
        (Chunk("a", CHUNK_POSITIONS, CHUNK_POSITIONS + 1, is_last=True), whole("b", 2 * beside + 1))
    )
    scheduler.remove("b")
    scheduler.add("c", 2 * beside + 1)
    assert scheduler.plan() == Plan((Chunk("c", 0, beside, is_last=False),), ("a",))
    assert scheduler.plan() == Plan((Chunk("c", beside, 2 * beside, is_last=False),), ("a",))
    assert scheduler.num_running == 2
    last = Chunk("c", 2 * beside, 2 * beside + 1, is_last=True)
    assert scheduler.plan() == Plan((last,), ("a",))
    assert scheduler.plan() == Plan(decode=("a", "c"))


def test_short_prompts_share_a_step_up_to_its_budget() -> None:
    scheduler = added(9, dict.fromkeys("abcd", 16))
    scheduler.add("first", 1)
    scheduler.plan()
    for name in "efg":
        scheduler.add(name, budget_beside(5) // 2)
    plan = scheduler.plan()
    assert [chunk.sequence_id for chunk in plan.prefill] == ["e", "f"]


def test_a_chunk_is_shorter_where_much_must_be_attended_to() -> None:
    """At 4 times the budget's positions, each of which adds a quarter of the budget's share, a position costs twice."""
    scheduler = added(1, {"a": 6 * CHUNK_POSITIONS}, attention_share=1 / (4 * CHUNK_POSITIONS))
    lengths = []
    while not (plan := scheduler.plan()).decode:
        (chunk,) = plan.prefill
        assert chunk.stop - chunk.start in (
            int(CHUNK_POSITIONS / (1 + chunk.start / (4 * CHUNK_POSITIONS))),
            6 * CHUNK_POSITIONS - chunk.start,
        )
        lengths.append(chunk.stop - chunk.start)
    assert sum(lengths) == 6 * CHUNK_POSITIONS
    assert lengths[0] == CHUNK_POSITIONS
    assert lengths == [lengths[0], *sorted(lengths[1:-1], reverse=True), lengths[-1]]


def test_no_chunk_is_all_overhead() -> None:
    scheduler = added(1, {"a": 1000}, attention_share=1000.0)
    scheduler.plan()
    (chunk,) = scheduler.plan().prefill
    assert chunk.stop - chunk.start == LEAST_POSITIONS


def test_a_checkpoint_that_cannot_go_on_from_a_chunk_has_none() -> None:
    scheduler = added(1, {"a": 3 * CHUNK_POSITIONS + 1}, prefills_whole=True)
    assert scheduler.plan() == Plan((whole("a", 3 * CHUNK_POSITIONS + 1),))
    assert scheduler.plan() == Plan(decode=("a",))


def test_a_prompt_can_be_removed_half_way() -> None:
    scheduler = added(1, {"a": 5 * CHUNK_POSITIONS, "b": 1})
    scheduler.plan()
    scheduler.remove("a")
    assert scheduler.plan() == Plan((whole("b"),))
    assert scheduler.num_running == 1


def test_what_is_shared_is_not_planned() -> None:
    scheduler = added(3, {"a": 40, "b": 40})
    plan = scheduler.plan({"a": 0, "b": 39}.__getitem__)
    assert plan.prefill == (whole("a", 40), Chunk("b", 39, 40, is_last=True))


def test_one_that_can_soon_share_waits_and_keeps_its_place() -> None:
    scheduler = added(3, {"a": 40, "b": 40, "c": 1})
    assert scheduler.plan({"a": 0, "b": None}.__getitem__).prefill == (whole("a", 40),)
    plan = scheduler.plan({"b": 39, "c": 0}.__getitem__)
    assert plan == Plan((Chunk("b", 39, 40, is_last=True), whole("c")), ("a",))


def test_one_user_does_not_keep_others_waiting() -> None:
    scheduler = Scheduler(3)
    for name in "abcd":
        scheduler.add(name, 1, user="many")
    for name in "xy":
        scheduler.add(name, 1, user="few")
    plan = scheduler.plan()
    assert [chunk.sequence_id for chunk in plan.prefill] == ["a", "x", "b"]
    scheduler.remove("a")
    assert [chunk.sequence_id for chunk in scheduler.plan().prefill] == ["c"]  # one row each: the first of them
    scheduler.remove("x")
    assert [chunk.sequence_id for chunk in scheduler.plan().prefill] == ["y"]


def test_one_that_loses_its_row_is_the_next_and_begins_anew() -> None:
    scheduler = added(2, {"a": 1, "b": 1, "c": 1})
    scheduler.plan()
    scheduler.put_back("b", 7)
    assert scheduler.num_running == 1
    assert scheduler.plan() == Plan((whole("b", 7),), ("a",))


def test_the_budget_of_a_quiet_step_is_never_below_that_of_a_busy_one() -> None:
    assert all(budget_beside(number) <= CHUNK_POSITIONS for number in range(1000))
