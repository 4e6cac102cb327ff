"""The migrations: complete, one at a time, all or nothing, and never at the cost of rows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, select, text

from app.history import History, RunFilter
from models.constraint import Constraint
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.sampling import Settings
from tests.fakes.events import token_event
from tests.fakes.rows import new_run
from tests.fakes.services import REPOSITORY, Postgres, migrate


def alembic(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "alembic", "-x", f"url={url}", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'data' / 'empty.sqlite3'}"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.create_database(f"empty_{tmp_path.name}")


def test_the_migrations_make_exactly_the_tables_of_the_models(database_url: str) -> None:
    result = alembic(database_url, "check")
    assert result.returncode == 0, result.stderr
    assert "No new upgrade operations" in result.stdout


def test_two_upgrades_at_once_both_succeed(empty_url: str) -> None:
    command = [sys.executable, "-m", "alembic", "-x", f"url={empty_url}", "upgrade", "head"]
    both = [subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE) for _ in range(2)]
    logs = [process.communicate(timeout=60)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    assert sum("Running upgrade" in log for log in logs) == 1, "the second one had nothing left to do"


def test_an_upgrade_that_fails_half_way_changes_nothing_and_a_repeat_completes(empty_url: str) -> None:
    """A table that is in the way makes the last statements fail, when others have been carried out already."""
    if empty_url.startswith("sqlite"):
        Path(empty_url.removeprefix("sqlite:///")).parent.mkdir()
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE tokens (mine INTEGER)"))
    assert alembic(empty_url, "upgrade", "head").returncode != 0
    assert set(inspect(engine).get_table_names()) == {"tokens"}
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE tokens"))
    engine.dispose()
    migrate(empty_url)
    assert set(inspect(engine).get_table_names()) >= {"runs", "tokens", "experiments"}
    engine.dispose()


def test_a_batch_migration_of_a_parent_table_keeps_the_child_rows(sqlite_url: str, tmp_path: Path) -> None:
    """A batch migration copies, drops and renames `runs`; with foreign keys on, its tokens would go with it."""
    database = Database(sqlite_url)
    with database.write() as session:
        session.add(new_run(id="parent"))
        session.flush()
        session.add_all(Token(**token_row(token_event("parent", seq))) for seq in range(2, 12))
    database.close()

    project = tmp_path / "project"
    project.mkdir()
    (project / "alembic.ini").write_text((REPOSITORY / "alembic.ini").read_text())
    _copy_migrations(project / "migrations")
    result = subprocess.run(
        [sys.executable, "-m", "alembic", "-x", f"url={sqlite_url}", "upgrade", "head"],
        cwd=project,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr

    database = Database(sqlite_url)
    with database.read() as session:
        columns = {row[1] for row in session.execute(text("PRAGMA table_info(runs)"))}
        assert "color" in columns, "the added migration did not run"
        assert session.query(Run).count() == 1
        assert session.query(Token).count() == 10
    database.close()


OLD_ORDER = ["bias", "repetition", "min_tokens", "temperature", "top_k"]


def _orders(engine: Engine) -> dict[str, list[str] | None]:
    with engine.connect() as connection:
        rows = connection.execute(select(Run.id, Run.settings)).all()
    return {row.id: row.settings.get("order") for row in rows}


def test_the_saved_order_of_the_stages_names_the_constraint(database: Database, database_url: str) -> None:
    """Runs from before (in SQLite more than are rewritten at once), one with an order of its own, one without any."""
    num_plain = 1001 if database.is_sqlite else 5
    orders: dict[str, list[str] | None] = {f"run-{i:04}": OLD_ORDER for i in range(num_plain)}
    orders |= {"other": OLD_ORDER[::-1], "none": None}
    with database.write() as session:
        session.add_all(new_run(id=run_id) for run_id in orders)
        session.flush()
        session.add_all(Token(**token_row(token_event("other", seq))) for seq in range(2, 12))
        for run_id, order in orders.items():
            session.get_one(Run, run_id).settings = {"top_k": 3} if order is None else {"top_k": 3, "order": order}
    assert alembic(database_url, "stamp", "0002").returncode == 0

    result = alembic(database_url, "upgrade", "0003")
    assert result.returncode == 0, result.stderr
    after = _orders(database.engine)
    assert after["run-0000"] == after[f"run-{num_plain - 1:04}"] == ["bias", "constraint", *OLD_ORDER[1:]]
    assert after["other"] == [*OLD_ORDER[::-1], "constraint"]
    assert after["none"] is None
    with database.read() as session:
        assert (session.query(Run).count(), session.query(Token).count()) == (num_plain + 2, 10)
        assert {run.settings["top_k"] for run in session.query(Run)} == {3}

    assert alembic(database_url, "downgrade", "0002").returncode == 0
    assert _orders(database.engine) == orders


def test_a_constraint_is_no_setting_of_the_version_before(database: Database, database_url: str) -> None:
    with database.write() as session:
        session.add(new_run(id="bound", settings=Settings(seed=1, constraint=Constraint(regex="a"))))
    assert alembic(database_url, "downgrade", "0002").returncode == 0
    with database.read() as session:
        settings = session.scalars(select(Run.settings).where(Run.id == "bound")).one()
    assert "constraint" not in settings
    assert "constraint" not in settings["order"]


def test_a_branch_that_waits_goes_with_its_column_and_one_that_ended_stays(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        session.add_all(
            [
                new_run(id="plain"),
                new_run(id="waits", opening_ids=[1, 2]),
                new_run(id="ended", opening_ids=[1, 2], status="finished"),
            ]
        )
        session.flush()
        session.add(Token(**token_row(token_event("waits", 2))))
    assert alembic(database_url, "downgrade", "0003").returncode == 0
    with database.read() as session:
        assert set(session.scalars(select(Run.id))) == {"plain", "ended"}
        assert session.scalars(select(Token.run_id)).all() == []


def test_settings_of_saved_runs_become_columns_and_searches_go_on(database: Database, database_url: str) -> None:
    """A filled database of the version before; settings of some rows are no numbers, or not there."""
    saved: dict[str, dict[str, Any]] = {
        "whole": {"top_p": 0.5, "top_k": 2**53 - 1, "max_tokens": 64, "min_p": 0},
        "other": {"top_p": "0.5", "top_k": None, "max_tokens": True},
        "empty": {},
    }
    with database.write() as session:
        session.add_all(new_run(id=run_id, prompt=f"a prompt of {run_id}") for run_id in saved)
        session.flush()
        session.add(Token(**token_row(token_event("whole", 2))))
        for run_id, settings in saved.items():
            session.get_one(Run, run_id).settings = settings
    assert alembic(database_url, "downgrade", "0005").returncode == 0
    columns = {column["name"] for column in inspect(database.engine).get_columns("runs")}
    assert "top_p" not in columns
    assert "temperature" in columns
    database.engine.dispose()

    migrate(database_url)
    with database.read() as session:
        runs = {run.id: (run.top_p, run.top_k, run.max_tokens, run.min_p) for run in session.query(Run)}
        assert session.query(Token).count() == 1
    assert runs == {"whole": (0.5, 2**53 - 1, 64, 0), "other": (None,) * 4, "empty": (None,) * 4}
    assert isinstance(runs["whole"][0], float)
    history = History(database)
    with database.write() as session:
        session.add(new_run(id="after", prompt="a prompt of after"))
    assert {row.id for row in history.page(RunFilter(text='"prompt of" w*')).rows} == {"whole"}
    assert len(history.page(RunFilter(text="p*")).rows) == 4


def _copy_migrations(folder: Path) -> None:
    (folder / "versions").mkdir(parents=True)
    for source in (REPOSITORY / "migrations").rglob("*"):
        if source.suffix in (".py", ".mako"):
            (folder / source.relative_to(REPOSITORY / "migrations")).write_text(source.read_text())
    (folder / "versions" / "9999_a_batch_change.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        f"revision, down_revision = '9999', '{_newest_revision()}'\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('runs', recreate='always') as batch:\n"
        "        batch.add_column(sa.Column('color', sa.Text(), nullable=True))\n"
    )


def _newest_revision() -> str:
    return max(path.name.split("_")[0] for path in (REPOSITORY / "migrations" / "versions").glob("*_*.py"))
