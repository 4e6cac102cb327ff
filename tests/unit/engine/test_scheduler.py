"""Who runs next."""

import pytest

from workers.engine.scheduler import Plan, Scheduler


def test_one_prompt_a_step_and_never_more_than_the_rows() -> None:
    scheduler = Scheduler(2)
    for name in "abc":
        scheduler.add(name)
    assert scheduler.plan() == Plan(prefill=("a",))
    assert scheduler.plan() == Plan(prefill=("b",), decode=("a",))
    assert scheduler.plan() == Plan(decode=("a", "b"))
    scheduler.remove("a")
    assert scheduler.plan() == Plan(prefill=("c",), decode=("b",))
    assert scheduler.num_running == 2


def test_one_that_waits_can_be_removed() -> None:
    scheduler = Scheduler(1)
    for name in "abc":
        scheduler.add(name)
    scheduler.plan()
    scheduler.remove("b")
    scheduler.remove("a")
    assert scheduler.plan() == Plan(prefill=("c",))


def test_nobody_waits() -> None:
    assert Scheduler(1).plan() == Plan()


def test_no_rows_is_no_engine() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Scheduler(0)
