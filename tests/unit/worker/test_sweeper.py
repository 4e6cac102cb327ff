"""What the sweeper decides, over fakes of what it looks at: which runs it leaves, requeues and ends."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pytest

from models.errors import BrokerUnavailableError, DatabaseUnavailableError
from models.events import Event, StopReason, StopRecord
from tests.fakes.events import ended
from workers.overdue import ExpiredLease, QueuedRun
from workers.sweeper import Patience, Sweeper, WaitingMessages


@dataclass
class FakeOverdue:
    expired: list[ExpiredLease] = field(default_factory=list)
    queued: list[QueuedRun] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    untold: list[Event] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)
    enqueued: list[str] = field(default_factory=list)
    is_away: bool = False

    def expired_leases(self) -> list[ExpiredLease]:
        return self.expired

    def requeue(self, expired: ExpiredLease) -> bool:
        self.requeued.append(expired.run_id)
        return expired.run_id != "taken"

    def queued_since(self, age_s: float) -> list[QueuedRun]:
        return self.queued

    def mark_enqueued(self, run_id: str) -> None:
        self.enqueued.append(run_id)

    def cancelled_in_queue(self) -> list[str]:
        if self.is_away:
            raise DatabaseUnavailableError("away")
        return self.cancelled

    def unpublished_endings(self, age_s: float) -> list[Event]:
        return self.untold


@dataclass
class FakeRecovery:
    ended: dict[str, StopReason] = field(default_factory=dict)
    told: list[tuple[str, int]] = field(default_factory=list)
    broken: str = ""
    messages: dict[str, str | None] = field(default_factory=dict)

    def cancel_queued(self, run_id: str) -> bool:
        return self.end_expired(run_id, StopRecord(StopReason.CANCELLED))

    def end_expired(self, run_id: str, stop: StopRecord) -> bool:
        if run_id == self.broken:
            raise ValueError("damaged")
        self.ended[run_id] = stop.reason
        self.messages[run_id] = stop.message
        return True

    def tell(self, event: Event, *, fence: int) -> None:
        self.told.append((event.run_id, fence))


@dataclass
class Scene:
    overdue: FakeOverdue = field(default_factory=FakeOverdue)
    recovery: FakeRecovery = field(default_factory=FakeRecovery)
    waiting: set[str] = field(default_factory=set)
    sent: list[tuple[str, str]] = field(default_factory=list)
    queue_is_away: bool = False
    lease_rest_s: float = 0.0

    def sweeper(self) -> Sweeper:
        return Sweeper(
            self.overdue,
            self.recovery,
            waiting=lambda checkpoint: self.waiting,
            enqueue=self.send,
            patience=Patience(max_attempts=3, requeue_after_s=15, lease_rest_s=self.lease_rest_s),
        )

    def send(self, run_id: str, checkpoint: str) -> None:
        if self.queue_is_away:
            raise BrokerUnavailableError("away")
        self.sent.append((run_id, checkpoint))


@pytest.fixture
def scene() -> Iterator[Scene]:
    return Scene()


def lease(run_id: str, attempt: int = 1, *, productive: int = 0, cancelled: bool = False) -> ExpiredLease:
    return ExpiredLease(run_id, "c", attempt, cancelled, productive)


def test_an_expired_lease_is_requeued_ended_or_cancelled(scene: Scene) -> None:
    scene.overdue.expired = [lease("first"), lease("second", 2), lease("third", 3), lease("unwanted", cancelled=True)]
    scene.sweeper().sweep()
    assert scene.overdue.requeued == ["first", "second"]
    assert scene.sent == [("first", "c"), ("second", "c")]
    assert scene.recovery.ended == {"third": StopReason.WORKER_LOST, "unwanted": StopReason.CANCELLED}


@pytest.mark.parametrize(
    ("attempt", "productive", "is_given_up"),
    [
        (2, 0, False),
        (3, 0, True),
        (3, 1, True),
        (3, 2, False),  # it went on in its last attempt but one: another run may have killed the worker since
        (3, 3, False),
        (9, 9, False),
        (9, 7, True),
        (10, 10, True),  # however it goes on, this is enough
    ],
)
def test_a_run_is_given_up_when_its_attempts_bear_nothing(
    scene: Scene, attempt: int, productive: int, is_given_up: bool
) -> None:
    scene.overdue.expired = [lease("run", attempt, productive=productive)]
    scene.sweeper().sweep()
    assert (scene.recovery.ended == {"run": StopReason.WORKER_LOST}) is is_given_up
    assert (scene.overdue.requeued == ["run"]) is not is_given_up


def test_the_message_says_the_number_of_attempts(scene: Scene) -> None:
    scene.overdue.expired = [lease("run", 4, productive=2)]
    scene.sweeper().sweep()
    assert "after 4 attempts" in (scene.recovery.messages["run"] or "")


def test_a_run_that_somebody_else_requeued_is_not_sent(scene: Scene) -> None:
    scene.overdue.expired = [lease("taken"), lease("mine")]
    scene.sweeper().sweep()
    assert scene.sent == [("mine", "c")]


def test_only_runs_without_a_message_are_sent_again(scene: Scene) -> None:
    scene.overdue.queued = [QueuedRun("lost", "c"), QueuedRun("patient", "c"), QueuedRun("other", "d")]
    scene.waiting = {"patient"}
    scene.sweeper().sweep()
    assert scene.sent == [("lost", "c"), ("other", "d")]
    assert scene.overdue.enqueued == ["lost", "other"]


def test_a_message_that_was_not_sent_is_not_noted(scene: Scene) -> None:
    scene.overdue.queued = [QueuedRun("lost", "c")]
    scene.queue_is_away = True
    with pytest.raises(BrokerUnavailableError):
        scene.sweeper().sweep()
    assert scene.overdue.enqueued == []


def test_an_untold_ending_is_told_through_the_fence_that_its_writer_left(scene: Scene) -> None:
    scene.overdue.untold = [Event("run", 2, 9, ended())]
    scene.sweeper().sweep()
    assert scene.recovery.told == [("run", 3)]


def test_one_damaged_run_does_not_keep_the_others_waiting(scene: Scene) -> None:
    scene.recovery.broken = "damaged"
    scene.overdue.cancelled = ["damaged", "next"]
    scene.overdue.expired = [lease("damaged", 3), lease("last", 3)]
    scene.sweeper().sweep()
    assert scene.recovery.ended == {"next": StopReason.CANCELLED, "last": StopReason.WORKER_LOST}


def test_after_an_outage_of_the_database_leases_get_time_to_be_renewed(scene: Scene) -> None:
    scene.lease_rest_s = 60
    scene.overdue.expired = [lease("alive")]
    scene.overdue.is_away = True
    sweeper = scene.sweeper()
    with pytest.raises(DatabaseUnavailableError):
        sweeper.sweep()
    scene.overdue.is_away = False
    sweeper.sweep()
    assert scene.overdue.requeued == []
    scene.sweeper().sweep()
    assert scene.overdue.requeued == ["alive"]


def message(arguments: object) -> bytes:
    """As kombu writes it."""
    return orjson.dumps({"body": base64.b64encode(orjson.dumps([arguments, {}, {}])).decode(), "headers": {}})


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"body": 7}',
        b'{"body": "no base64"}',
        b'{"body": "e30="}',
        message([]),
        message({}),
        message(7),
    ],
)
def test_a_message_that_is_no_run_is_passed_over(foreign: bytes) -> None:
    class Queue:
        def lrange(self, name: str, start: int, stop: int) -> list[bytes]:
            return [message(["first"]), foreign, message(["last"])]

    assert WaitingMessages(Queue())("c") == {"first", "last"}  # type: ignore[arg-type]
