"""Every event once and in order, whatever the stream, Redis and the database do meanwhile."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest
from sqlalchemy import delete

from app.follow import Follower
from app.submit import Submitter
from models.db.runs import Token
from models.db.session import Database
from models.errors import DatabaseUnavailableError, DecodeLabError, NotFoundError
from models.events import Event, Resumed
from models.names import stream_key
from models.sampling import NEUTRAL
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import Worker
from tests.unit.app.runs import ended, events, token

NUM_TOKENS = 12


@pytest.fixture
def run_id(submitter: Submitter, worker: Worker) -> str:
    worker.appear()
    return submitter.submit("two", NEUTRAL)


@pytest.fixture
def told(run_id: str) -> list[Event]:
    """The run's whole history: started, prefilled, 12 tokens, ended."""
    return events(run_id, [token(position, 40 + position) for position in range(NUM_TOKENS)])


@pytest.fixture
def follower(database: Database, valkey: Valkey) -> Follower:
    return Follower(database, valkey.url)


async def read(follower: Follower, run_id: str, after: int = -1) -> list[Event]:
    async with asyncio.timeout(20):
        return [event async for event in follower.follow(run_id, after)]


def read_while(follower: Follower, run_id: str, at: dict[int, Callable[[], None]], *, after: int = -1) -> list[Event]:
    """Follow to the end; `at[n]` happens once the reader has n events."""

    async def reading() -> list[Event]:
        got: list[Event] = []
        async with asyncio.timeout(30):
            if 0 in at:
                at[0]()
            async for event in follower.follow(run_id, after):
                got.append(event)
                if len(got) in at:
                    await asyncio.to_thread(at[len(got)])
        return got

    return asyncio.run(reading())


def test_an_ended_run_comes_from_the_database_alone(
    follower: Follower, worker: Worker, told: list[Event], valkey: Valkey
) -> None:
    worker.save(told[0].run_id, told)
    valkey.kill()
    assert asyncio.run(read(follower, told[0].run_id)) == told


@pytest.mark.parametrize("after", [0, 1, 5, NUM_TOKENS, NUM_TOKENS + 1])
def test_reading_resumes_after_any_event(
    follower: Follower, worker: Worker, told: list[Event], run_id: str, after: int
) -> None:
    worker.send(told)
    assert asyncio.run(read(follower, run_id, after)) == told[after + 1 :]
    worker.save(run_id, told)
    assert asyncio.run(read(follower, run_id, after)) == told[after + 1 :]


def test_nothing_comes_after_the_end(follower: Follower, worker: Worker, told: list[Event], run_id: str) -> None:
    worker.save(run_id, told)
    assert asyncio.run(read(follower, run_id, len(told) - 1)) == []
    assert asyncio.run(read(follower, run_id, len(told) + 7)) == []


def test_a_live_run_comes_from_the_stream(follower: Follower, worker: Worker, told: list[Event], run_id: str) -> None:
    at = {0: lambda: worker.send(told[:5]), 5: lambda: worker.send(told[5:])}
    assert read_while(follower, run_id, at) == told


def test_the_beginning_comes_from_the_database_when_the_stream_lacks_it(
    follower: Follower, worker: Worker, told: list[Event], run_id: str
) -> None:
    worker.save(run_id, told[:6])
    worker.send(told[8:10])  # 6 and 7 are in neither place yet

    def catch_up() -> None:
        worker.save(run_id, told[6:])

    assert read_while(follower, run_id, {6: catch_up}) == told


def test_flush_of_redis_in_mid_run(follower: Follower, worker: Worker, told: list[Event], run_id: str) -> None:
    def flush() -> None:
        worker.redis.flushall()
        worker.save(run_id, told[:9])
        worker.send(told[9:12])

    at = {0: lambda: worker.send(told[:4]), 4: flush, 12: lambda: worker.save(run_id, told[9:])}
    assert read_while(follower, run_id, at) == told


def test_redis_away_and_back(
    follower: Follower, worker: Worker, told: list[Event], run_id: str, valkey: Valkey
) -> None:
    def lose() -> None:
        valkey.kill()
        worker.save(run_id, told[:9])

    def come_back() -> None:
        valkey.start()
        worker.redis.delete(stream_key(run_id))
        worker.send(told)

    at = {0: lambda: worker.send(told[:4]), 4: lose, 9: come_back}
    assert read_while(follower, run_id, at) == told


def test_redis_away_for_the_whole_run(
    follower: Follower, worker: Worker, told: list[Event], run_id: str, valkey: Valkey
) -> None:
    at = {0: valkey.kill, 3: lambda: worker.save(run_id, told[3:])}
    worker.save(run_id, told[:3])
    assert read_while(follower, run_id, at) == told


def test_ending_that_was_never_published(follower: Follower, worker: Worker, told: list[Event], run_id: str) -> None:
    at = {0: lambda: worker.send(told[:-1]), len(told) - 1: lambda: worker.save(run_id, told)}
    assert read_while(follower, run_id, at) == told


def test_a_resumed_run_has_no_gap_and_no_repeat(follower: Follower, worker: Worker, run_id: str) -> None:
    told = events(run_id, [token(0, 1), token(1, 2), token(2, 3)])[:-1]
    told += [
        Event(run_id, 2, 5, Resumed(from_position=3)),
        Event(run_id, 2, 6, token(3, 4)),
        Event(run_id, 2, 7, ended(4)),
    ]
    worker.send(told)
    assert asyncio.run(read(follower, run_id)) == told
    worker.save(run_id, told)
    assert asyncio.run(read(follower, run_id)) == told


def test_twenty_viewers_see_the_whole(follower: Follower, worker: Worker, told: list[Event], run_id: str) -> None:
    async def all_of_them() -> list[list[Event]]:
        readers = [asyncio.create_task(read(follower, run_id, after)) for after in [-1, 3] * 10]
        for event in told:
            await asyncio.to_thread(worker.send, [event])
        return await asyncio.gather(*readers)

    for got in asyncio.run(all_of_them()):
        assert got == told[-len(got) :]
        assert len(got) in (len(told), len(told) - 4)


def test_a_long_saved_run_comes_in_parts(follower: Follower, worker: Worker, run_id: str) -> None:
    told = events(run_id, [token(position, 1) for position in range(1203)])
    worker.save(run_id, told)
    assert asyncio.run(read(follower, run_id)) == told


def test_readers_that_leave_close_their_connections(
    follower: Follower, worker: Worker, told: list[Event], run_id: str
) -> None:
    worker.send(told[:5])

    async def leave_early() -> None:
        for _ in range(10):
            async with aclosing(follower.follow(run_id)) as reading:
                async for event in reading:
                    if event.seq == 2:
                        break
        waiting = asyncio.create_task(read(follower, run_id, 4))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    before = len(worker.redis.client_list())
    asyncio.run(leave_early())
    assert len(worker.redis.client_list()) == before


def test_a_cancellation_between_two_reads_is_not_lost(
    follower: Follower, worker: Worker, told: list[Event], run_id: str
) -> None:
    worker.send(told[:1])

    async def reading() -> None:
        async for _ in follower.follow(run_id):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async def cancelled() -> bool:
        done, _ = await asyncio.wait([task := asyncio.create_task(reading())], timeout=5)
        return task in done and task.cancelled()

    assert asyncio.run(cancelled())


def test_unknown_run(follower: Follower) -> None:
    with pytest.raises(NotFoundError):
        asyncio.run(read(follower, "no-such-run"))


def test_a_damaged_record_is_an_error_and_no_endless_wait(
    follower: Follower, worker: Worker, database: Database, told: list[Event], run_id: str
) -> None:
    worker.save(run_id, told)
    with database.write() as session:
        session.execute(delete(Token).where(Token.run_id == run_id, Token.position == 4))
    with pytest.raises(DecodeLabError, match="lack number 6"):
        asyncio.run(read(follower, run_id))


def test_database_away_at_the_beginning(valkey: Valkey) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailableError):
        asyncio.run(read(Follower(away, valkey.url), "0199b0c8-0000-7000-8000-000000000000"))
    away.close()
