"""The publisher on a real server: in order, once, fenced, and never in the way of a run."""

import threading
from collections.abc import Iterator

import pytest

from models.errors import BrokerUnavailableError, LeaseLostError
from models.events import Event
from models.names import STREAM_TTL_ACTIVE_S, STREAM_TTL_AFTER_END_S, attempt_key, stream_key
from tests.fakes.events import ended, history, token_event
from tests.fakes.services import Valkey, running_valkey, wait_until
from workers.broker import connect
from workers.publisher import Publisher

RUN = "run-1"


class CountedWaits(threading.Event):
    """Knows how often somebody was about to wait for it."""

    num_waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.num_waits += 1
        return super().wait(timeout)


def unexpected(reason: str) -> None:
    """A publisher that ends where it must not leaves its events unanswered, which each test notices."""
    raise AssertionError(reason)


@pytest.fixture
def publisher(valkey: Valkey) -> Iterator[Publisher]:
    publisher = Publisher(connect(valkey.url), on_failure=unexpected)
    publisher.start()
    yield publisher
    publisher.close(2)


def stream(valkey: Valkey, run_id: str = RUN) -> list[tuple[str, bytes]]:
    with valkey.client() as client:
        return [(entry_id.decode(), fields[b"event"]) for entry_id, fields in client.xrange(stream_key(run_id))]


def ending(seq: int, attempt: int = 1) -> Event:
    return Event(RUN, attempt, seq, ended())


def test_the_entry_ids_are_the_numbers_and_the_entries_the_events(valkey: Valkey, publisher: Publisher) -> None:
    events = history(RUN, 200)
    sent = [publisher.publish(event) for event in events]
    assert all(answer.result(60) for answer in sent)
    assert stream(valkey) == [(f"{event.seq + 1}-0", event.encode()) for event in events]


def test_an_event_that_is_sent_twice_is_there_once(valkey: Valkey, publisher: Publisher) -> None:
    for event in [*history(RUN, 3), *history(RUN, 5)]:
        last = publisher.publish(event)
    assert last.result(60)
    assert [entry_id for entry_id, _ in stream(valkey)] == [f"{n}-0" for n in range(1, 8)]


def test_runs_that_are_told_together_stay_apart_and_in_order(valkey: Valkey, publisher: Publisher) -> None:
    names = [f"run-{n}" for n in range(8)]

    def tell(name: str) -> None:
        for event in history(name, 100):
            publisher.publish(event)

    threads = [threading.Thread(target=tell, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        wait_until(lambda name=name: len(stream(valkey, name)) == 102)
        assert [event for _, event in stream(valkey, name)] == [event.encode() for event in history(name, 100)]


def test_every_key_has_a_time_to_live(valkey: Valkey, publisher: Publisher) -> None:
    for event in history(RUN, 1):
        last = publisher.publish(event)
    assert last.result(60)
    with valkey.client() as client:
        for key in (stream_key(RUN), attempt_key(RUN)):
            assert STREAM_TTL_AFTER_END_S < client.ttl(key) <= STREAM_TTL_ACTIVE_S
        assert publisher.publish(ending(3)).result(60)
        for key in (stream_key(RUN), attempt_key(RUN)):
            assert 0 < client.ttl(key) <= STREAM_TTL_AFTER_END_S


def test_nothing_follows_the_end(valkey: Valkey, publisher: Publisher) -> None:
    for event in [*history(RUN, 1), ending(3), token_event(RUN, 4), ending(5)]:
        last = publisher.publish(event)
    assert last.result(60)
    assert len(stream(valkey)) == 4
    assert b'"ended"' in stream(valkey)[-1][1]


def test_an_old_attempt_adds_nothing_once_a_later_one_took_over(valkey: Valkey, publisher: Publisher) -> None:
    for event in history(RUN, 2):
        publisher.publish(event).result(60)
    found = publisher.take_over(RUN, fence=2, after_seq=1)
    assert ([event.seq for event in found.events], found.newest_seq) == ([2, 3], 3)
    assert publisher.publish(token_event(RUN, 4, attempt=1)).result(60)
    assert len(stream(valkey)) == 4
    assert publisher.publish(token_event(RUN, 4, attempt=2)).result(60)
    assert len(stream(valkey)) == 5


def test_an_old_attempt_cannot_take_over(valkey: Valkey, publisher: Publisher) -> None:
    publisher.take_over(RUN, fence=3, after_seq=-1)
    with pytest.raises(LeaseLostError):
        publisher.take_over(RUN, fence=2, after_seq=-1)


def test_what_lies_beyond_a_gap_is_not_taken_over(valkey: Valkey, publisher: Publisher) -> None:
    for seq in (2, 3, 6, 7):
        publisher.publish(token_event(RUN, seq)).result(60)
    found = publisher.take_over(RUN, fence=2, after_seq=1)
    assert ([event.seq for event in found.events], found.newest_seq) == ([2, 3], -1)
    assert publisher.publish(token_event(RUN, 4, attempt=2)).result(60)
    assert [Event.decode(data).seq for _, data in stream(valkey)] == [4]


def test_an_outage_delays_events_and_loses_none(tmp_path: object) -> None:
    with running_valkey(tmp_path) as server:  # type: ignore[arg-type]
        publisher = Publisher(connect(server.url), on_failure=unexpected)
        publisher.start()
        events = history(RUN, 300)
        for event in events[:100]:
            last = publisher.publish(event)
        assert last.result(60)
        server.kill()
        for event in events[100:]:
            last = publisher.publish(event)
        assert not last.done(), "publishing waits for nobody"
        with pytest.raises(BrokerUnavailableError):
            publisher.take_over(RUN, fence=1, after_seq=-1)
        server.start()
        assert last.result(60)
        # What the append-only file had not written yet is gone for readers of the stream, and only for them.
        told = [Event.decode(data).seq for _, data in stream(server)]
        assert told[-200:] == list(range(102, 302))
        assert told == sorted(set(told))
        publisher.close(2)


def test_a_full_buffer_drops_the_oldest_events(tmp_path: object) -> None:
    with running_valkey(tmp_path) as server:  # type: ignore[arg-type]
        server.kill()
        publisher = Publisher(connect(server.url), on_failure=unexpected, max_pending=100)
        publisher.start()
        answers = [publisher.publish(event) for event in history(RUN, 500)]
        dropped = [answer.result() for answer in answers if answer.done()]
        assert dropped == [False] * len(dropped)
        assert len(dropped) >= 500 - 100 - 64, "all but what waits and what is being sent"
        server.start()
        assert answers[-1].result(60) is True
        assert len(stream(server)) <= 100 + 64
        publisher.close(2)


def test_a_full_server_costs_the_stream_and_not_the_run(valkey: Valkey, publisher: Publisher) -> None:
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
        try:
            refused = publisher.publish(token_event(RUN, 2))
            assert refused.result(60) is False
        finally:
            client.config_set("maxmemory", 0)
    assert publisher.publish(token_event(RUN, 3)).result(60) is True
    assert [Event.decode(data).seq for _, data in stream(valkey)] == [3]


def test_a_stream_that_refuses_keeps_its_events_and_no_others_back(valkey: Valkey) -> None:
    with valkey.client() as client:
        client.set(stream_key("broken"), "no stream")
    publisher = Publisher(connect(valkey.url), on_failure=unexpected)
    answers = [publisher.publish(Event(name, 1, 0, ended())) for name in ("before", "broken", "behind")]
    publisher.start()  # now, so that all are in one batch
    assert [answer.result(60) for answer in answers] == [False] * 3
    assert [len(stream(valkey, name)) for name in ("before", "behind")] == [1, 1]
    with valkey.client() as client:
        assert client.get(attempt_key("broken")) is None, "what did not get its end is not closed"
    publisher.close(2)


def test_a_fault_of_the_publisher_itself_ends_the_worker(valkey: Valkey) -> None:
    failures: list[str] = []
    publisher = Publisher(connect(valkey.url), on_failure=failures.append)
    publisher.start()
    publisher.publish(Event(RUN, 1, 0, ended(tail=object())))
    wait_until(lambda: failures)
    assert failures == ["the publisher failed"]


def test_a_wait_ends_when_all_is_sent_and_never_lasts(tmp_path: object) -> None:
    with running_valkey(tmp_path) as server:  # type: ignore[arg-type]
        publisher = Publisher(connect(server.url), on_failure=unexpected)
        publisher.start()
        publisher.wait_until_sent()
        last = [publisher.publish(event) for event in history(RUN, 20)][-1]
        wait_until(lambda: publisher.wait_until_sent() or last.done())
        assert last.result(0) is True
        server.kill()
        publisher.publish(token_event(RUN, 90))
        publisher.wait_until_sent()  # Redis is away, and the device does not wait for it
        publisher.close(2)


def test_nothing_waits_for_a_server_that_is_away_until_it_answers_again(tmp_path: object) -> None:
    with running_valkey(tmp_path) as server:  # type: ignore[arg-type]
        publisher = Publisher(connect(server.url), on_failure=unexpected)
        publisher._is_idle = idle = CountedWaits()
        publisher.start()

        def num_waits(steps: int) -> int:
            before = idle.num_waits
            for _ in range(steps):
                publisher.wait_until_sent()
            return idle.num_waits - before

        server.kill()
        delayed = publisher.publish(token_event(RUN, 2))
        wait_until(lambda: num_waits(steps=50) == 0)
        assert not delayed.done(), "there was something to wait for"
        server.start()
        assert delayed.result(60) is True
        seqs = iter(range(3, 10_000))
        wait_until(lambda: publisher.publish(token_event(RUN, next(seqs))) and num_waits(steps=1))
        publisher.close(2)
