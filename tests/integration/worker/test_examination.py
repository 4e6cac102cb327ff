"""Questions about saved runs through Redis and a real worker: the library's own figures, and one clear end for each."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.examine import Examiner
from app.serving import Serving
from models.db.runs import Run
from models.errors import (
    DecodeLabError,
    LimitError,
    NotFoundError,
    NoWorkerError,
    RefusedError,
    SettingError,
    UnavailableError,
    UnknownCheckpointError,
)
from models.examination import MAX_POSITIONS, Asked, Influence, Question, decode, encode
from models.names import EXAMINATION_TTL_S, EXAMINE_TASK, answer_key, queue_for, taken_key, wanted_key
from models.sampling import Settings
from tests.fakes import checkpoints
from tests.fakes.rows import CHECKPOINT
from tests.fakes.services import wait_until
from tests.fakes.stack import GREEDY, Stack
from tests.fakes.worker import Plan, WorkerProcess
from tests.fakes.worker_side import StartWorker
from workers.celery_app import create_app
from workers.engine.cache_check import check_cache
from workers.engine.coverage import coverage
from workers.engine.influence import influence
from workers.engine.what_if import what_if

SETTINGS = Settings(
    temperature=1.3, top_p=0.9, min_p=0.001, repetition_penalty=1.2, max_tokens=40, seed=11, ignore_eos=True
)
OTHERS = SETTINGS.with_changes(temperature=0.7, top_k=5)
SLOW = Plan(step_s=0.02)
MANY = GREEDY.with_changes(max_tokens=120)
REQUEST = "request-1"


@pytest.fixture
def make_examiner(lite_stack: Stack) -> Iterator[Callable[..., Examiner]]:
    """An examiner of its own event loop for every call of `asyncio.run`."""
    serving = Serving(lite_stack.valkey.url)
    made: list[Examiner] = []

    def make(**limits: float) -> Examiner:
        made.append(Examiner(lite_stack.database, lite_stack.valkey.url, serving, **limits))
        return made[-1]

    yield make
    for examiner in made:
        examiner.close()
    serving.close()


def asked(question: Coroutine[Any, Any, Any]) -> Any:
    async def waiting() -> Any:
        async with asyncio.timeout(60):
            return await question

    return asyncio.run(waiting())


def test_every_answer_is_the_librarys(
    lite_stack: Stack, tmp_path: Path, make_examiner: Callable[..., Examiner]
) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    url = lite_stack.database.url.render_as_string(hide_password=False)
    worker = WorkerProcess(lite_stack.valkey, url, folder=folder, log=tmp_path / "worker.log").start()
    try:
        run_id = lite_stack.submit("the quick brown", SETTINGS, checkpoint="tiny")
        lite_stack.wait_ended(run_id)
        lite_stack.check(run_id)
        examiner = make_examiner()
        told = [
            asked(examiner.influence(run_id)),
            asked(examiner.what_if(run_id, OTHERS)),
            asked(examiner.coverage(run_id)),
            asked(examiner.check_cache(run_id)),
        ]
        greedy_id = lite_stack.submit("the quick brown", MANY.with_changes(max_tokens=5), checkpoint="tiny")
        lite_stack.wait_ended(greedy_id)
        with pytest.raises(SettingError, match="temperature"):
            asked(examiner.coverage(greedy_id))
        _check_refusals(lite_stack, run_id, examiner)
    finally:
        worker.kill()
    checkpoint = checkpoints.load(folder)
    ids = [token.token_id for token in _tokens(lite_stack, run_id)]
    known = (checkpoint, checkpoint.encode("the quick brown"), ids)
    assert told == [
        influence(*known, SETTINGS),
        what_if(*known, OTHERS),
        coverage(*known, SETTINGS),
        check_cache(*known, SETTINGS),
    ]
    assert told[1].first_difference is not None


def _tokens(stack: Stack, run_id: str) -> list[Any]:
    return [event.payload for event in stack.check(run_id) if event.type == "token"]


def _check_refusals(stack: Stack, run_id: str, examiner: Examiner) -> None:
    """A run that changes under the question, by hand."""
    with pytest.raises(NotFoundError):
        asked(examiner.influence("0190a0a0-0000-7000-8000-000000000000"))
    for changes, error, words in (
        ({"status": "running"}, RefusedError, "has not ended"),
        ({"weights_digest": "f" * 64}, UnknownCheckpointError, "would not be the run's"),
        ({"capsule": {"dtype": "int8"}}, UnknownCheckpointError, "in int8, and tiny is served in float32 now"),
        ({"num_tokens": MAX_POSITIONS}, LimitError, f"at most {MAX_POSITIONS:,}"),
    ):
        before = {name: getattr(stack.row(run_id), name) for name in changes}
        _write(stack, run_id, **changes)
        with pytest.raises(error, match=words):
            asked(examiner.influence(run_id))
        _write(stack, run_id, **before)
    assert isinstance(asked(examiner.influence(run_id)), Influence)
    for older in ({}, None):
        _write(stack, run_id, capsule=older)
        assert isinstance(asked(examiner.influence(run_id)), Influence), "an older run does not say its dtype"


def _write(stack: Stack, run_id: str, **values: Any) -> None:
    with stack.database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(**values))


def ended_run(stack: Stack) -> str:
    run_id = stack.submit(settings=MANY)
    stack.wait_ended(run_id)
    return run_id


def send(stack: Stack, run_id: str, *, times: int = 1) -> None:
    """What the examiner sends, by hand."""
    app = create_app(stack.valkey.url)
    question = Asked(run_id, Question.WHAT_IF, MANY.as_dict()).as_dict()
    for _ in range(times):
        app.send_task(EXAMINE_TASK, args=[REQUEST, question], queue=queue_for(CHECKPOINT))
    app.close()


def is_there(stack: Stack, key: str) -> bool:
    with stack.valkey.client() as client:
        return bool(client.exists(key))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_run_streams_on_while_another_is_looked_back_at(
    lite_stack: Stack, start_worker: StartWorker, make_examiner: Callable[..., Examiner], rows: int
) -> None:
    start_worker(lite_stack, SLOW, rows=rows)
    saved_id = ended_run(lite_stack)

    async def both() -> tuple[int, int]:
        question = asyncio.create_task(make_examiner().what_if(saved_id, MANY))
        await asyncio.to_thread(wait_until, lambda: _taken(lite_stack), what="the question's worker")
        running_id = await asyncio.to_thread(lite_stack.submit, settings=MANY)
        await asyncio.to_thread(lite_stack.wait_tokens, running_id, 1)
        before = lite_stack.num_tokens(running_id)
        assert not question.done()
        await question
        return before, lite_stack.num_tokens(running_id)

    before, after = asyncio.run(both())
    assert after > before


def _taken(stack: Stack) -> list[bytes]:
    with stack.valkey.client() as client:
        return list(client.keys(taken_key("*")))


def test_a_worker_that_dies_is_told(
    lite_stack: Stack, start_worker: StartWorker, make_examiner: Callable[..., Examiner]
) -> None:
    worker = start_worker(lite_stack, SLOW)
    run_id = ended_run(lite_stack)

    async def killed() -> None:
        question = asyncio.create_task(make_examiner().what_if(run_id, MANY))
        await asyncio.to_thread(wait_until, lambda: _taken(lite_stack), what="the question's worker")
        worker.kill()
        async with asyncio.timeout(3 * EXAMINATION_TTL_S):
            await question

    with pytest.raises(UnavailableError, match="was lost"):
        asyncio.run(killed())


def test_a_page_that_leaves_is_not_computed_for(
    lite_stack: Stack, start_worker: StartWorker, make_examiner: Callable[..., Examiner]
) -> None:
    start_worker(lite_stack, SLOW)
    run_id = ended_run(lite_stack)

    async def left() -> None:
        question = asyncio.create_task(make_examiner().what_if(run_id, MANY))
        await asyncio.to_thread(wait_until, lambda: _taken(lite_stack), what="the question's worker")
        question.cancel()
        await asyncio.gather(question, return_exceptions=True)

    asyncio.run(left())
    wait_until(lambda: not _taken(lite_stack), what="the end of the computation")
    with lite_stack.valkey.client() as client:
        assert not client.keys(answer_key("*"))
    assert asked(make_examiner().what_if(run_id, MANY)).first_difference is None  # the seat is free


def test_a_question_that_comes_twice_is_answered_once_and_an_unwanted_one_not_at_all(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    start_worker(lite_stack, SLOW)
    run_id = ended_run(lite_stack)
    send(lite_stack, run_id)
    wait_until(lambda: not lite_stack.num_waiting(), what="the message's consumption")
    other_id = ended_run(lite_stack)  # whatever came before it has been looked at
    assert not is_there(lite_stack, answer_key(REQUEST))
    with lite_stack.valkey.client() as client:
        client.set(wanted_key(REQUEST), 1, ex=60)
        send(lite_stack, other_id, times=2)
        wait_until(lambda: is_there(lite_stack, answer_key(REQUEST)), what="the answer")
        ended_run(lite_stack)
        (answer,) = client.lrange(answer_key(REQUEST), 0, -1)
        assert 0 < client.ttl(answer_key(REQUEST)) <= 60
        assert not client.exists(taken_key(REQUEST))
    assert answer.startswith(b'{"answer"')


def test_more_questions_than_seats_are_refused(
    lite_stack: Stack, start_worker: StartWorker, make_examiner: Callable[..., Examiner]
) -> None:
    start_worker(lite_stack, SLOW, rows=2)  # one seat
    run_id = ended_run(lite_stack)

    async def two() -> list[Any]:
        examiner = make_examiner()
        questions = [examiner.what_if(run_id, MANY) for _ in range(2)]
        return await asyncio.gather(*questions, return_exceptions=True)

    refused = [found for found in asyncio.run(two()) if isinstance(found, DecodeLabError)]
    assert [type(error) for error in refused] == [LimitError]
    assert "try again" in refused[0].message


def test_without_a_worker_nothing_is_sent(lite_stack: Stack, make_examiner: Callable[..., Examiner]) -> None:
    run_id = lite_stack.save(status="finished")
    with pytest.raises(NoWorkerError):
        asked(make_examiner().influence(run_id))
    assert lite_stack.num_waiting() == 0


def test_a_worker_that_has_no_time_is_not_waited_for_without_end(
    lite_stack: Stack, start_worker: StartWorker, make_examiner: Callable[..., Examiner]
) -> None:
    start_worker(lite_stack, Plan(step_s=0.2), rows=1)
    saved_id = lite_stack.save(status="finished", prompt_token_ids=[1])
    running_id = lite_stack.submit(settings=MANY.with_changes(max_tokens=500))
    lite_stack.wait_tokens(running_id, 1)
    began_at = time.monotonic()
    with pytest.raises(UnavailableError, match="has had time"):
        asked(make_examiner(take_within_s=2).influence(saved_id))
    assert time.monotonic() - began_at >= 2
    with lite_stack.valkey.client() as client:
        assert not client.keys(wanted_key("*"))


def test_an_error_goes_through_redis_as_it_is() -> None:
    with pytest.raises(LimitError, match="too long") as caught:
        decode(encode(LimitError("too long", field="text")), Influence)
    assert caught.value.field == "text"
