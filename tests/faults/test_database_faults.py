"""The database is away or locked: streaming goes on, and what was generated is saved afterwards."""

import time

import psycopg
from sqlalchemy import text

from models.db.session import Database
from tests.fakes.services import Postgres, Valkey, wait_until
from tests.fakes.stack import GREEDY, Stack
from tests.fakes.worker import Plan
from tests.fakes.worker_side import StartWorker

HUNDRED = GREEDY.with_changes(max_tokens=100)
SLOW = Plan(step_s=0.02)


def test_a_lock_on_the_database_delays_the_saving_and_not_the_stream(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    start_worker(lite_stack, SLOW)
    run_id = lite_stack.submit(settings=HUNDRED)
    lite_stack.wait_tokens(run_id, 10)
    with lite_stack.database.write() as session:
        session.execute(text("SELECT 1"))
        lite_stack.wait_tokens(run_id, 100)
        saved = lite_stack.row(run_id)
        assert (saved.status, saved.num_tokens < 100) == ("running", True)
    run = lite_stack.wait_ended(run_id)
    assert (run.stop_reason, run.attempt) == ("max_tokens", 1)
    lite_stack.check(run_id)


def test_runs_that_end_while_the_database_is_away_are_saved_when_it_is_back(
    valkey: Valkey, postgres: Postgres, postgres_url: str, start_worker: StartWorker
) -> None:
    database = Database(postgres_url)
    stack = Stack(valkey, database)
    start_worker(stack, SLOW, rows=3, lease_s=30)
    runs = [stack.submit(settings=HUNDRED) for _ in range(3)]
    stack.wait_tokens(runs[-1], 20)
    name = postgres_url.rsplit("/", 1)[1]
    with psycopg.connect(host="127.0.0.1", port=postgres.port, user="postgres", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        for run_id in runs:
            stack.wait_tokens(run_id, 100)
        time.sleep(1)
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
    wait_until(lambda: all(stack.row(run_id).status == "finished" for run_id in runs))
    for run_id in runs:
        run = stack.wait_ended(run_id)
        assert (run.stop_reason, run.attempt) == ("max_tokens", 1)
        stack.check(run_id)
    database.close()
