"""The worker's environment."""

from pathlib import Path

import pytest

from models.errors import SettingError
from workers.settings import WorkerSettings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WorkerSettings.model_fields:
        monkeypatch.delenv(f"DECODELAB_{name.upper()}", raising=False)


def test_the_defaults_are_those_of_the_embedded_stack() -> None:
    settings = WorkerSettings.load()
    assert settings.data == Path("data")
    assert settings.database_url == f"sqlite:///{Path('data').resolve()}/decodelab.sqlite3"
    assert settings.redis_url == "redis://127.0.0.1:6390/0"
    assert settings.rows == 8


def test_the_database_follows_the_data_folder_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECODELAB_DATA", "/srv/lab")
    assert WorkerSettings.load().database_url == "sqlite:////srv/lab/decodelab.sqlite3"
    monkeypatch.setenv("DECODELAB_DATABASE_URL", "postgresql+psycopg://lab@db/lab")
    assert WorkerSettings.load().database_url == "postgresql+psycopg://lab@db/lab"


@pytest.mark.parametrize(("name", "value"), [("ROWS", "0"), ("ROWS", "two"), ("TIME_LIMIT_S", "-1"), ("DTYPE", "int4")])
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"DECODELAB_{name}", value)
    with pytest.raises(SettingError, match=f"DECODELAB_{name}.*{value}"):
        WorkerSettings.load()


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.setenv("DECODELAB_DATA", "~/lab")
    settings = WorkerSettings.load()
    assert settings.data == Path("/home/anna/lab")
    assert settings.database_url == "sqlite:////home/anna/lab/decodelab.sqlite3"


@pytest.mark.parametrize("changes", [{"LEASE_S": "5"}, {"LEASE_S": "2"}, {"LEASE_RENEW_S": "30"}])
def test_a_lease_that_runs_out_before_it_is_renewed_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(f"DECODELAB_{name}", value)
    with pytest.raises(SettingError, match=r"DECODELAB_LEASE_RENEW_S: .*DECODELAB_LEASE_S.* got"):
        WorkerSettings.load()


def test_a_lease_is_renewed_well_before_it_runs_out() -> None:
    settings = WorkerSettings.load()
    assert settings.lease_renew_s * 3 <= settings.lease_s
