"""The addresses of the environment: what works is taken as it is, what cannot work is refused by its variable."""

import pytest

from app.settings import AppSettings
from models.errors import SettingError
from workers.settings import WorkerSettings

BAD_DATABASES = [
    "nonsense",
    "://",
    "sqlite",
    "mysql://anna:sesame@db/lab",
    "unheard-of://anna:sesame@db/lab",
    "postgresql+psycopg2://anna:sesame@db/lab",
    "postgresql+psycopg://anna:sesame@db:port/lab",
]
BAD_REDISES = [
    "nonsense",
    "http://:sesame@here",
    "redis://",
    "redis://:sesame@here:port/0",
    "redis://:sesame@here:99999/0",
    "redis://:sesame@here:6379/first",
    "redis://[::1",
]


@pytest.mark.parametrize("settings", [AppSettings, WorkerSettings])
@pytest.mark.parametrize(
    ("name", "url"),
    [*(("DATABASE_URL", url) for url in BAD_DATABASES), *(("REDIS_URL", url) for url in BAD_REDISES)],
)
def test_an_address_that_cannot_work_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, settings: type[AppSettings] | type[WorkerSettings], name: str, url: str
) -> None:
    monkeypatch.setenv(f"DECODELAB_{name}", url)
    with pytest.raises(SettingError, match=f"^DECODELAB_{name}: it") as caught:
        settings.load()
    assert "sesame" not in caught.value.message
    assert caught.value.field == f"DECODELAB_{name}"


@pytest.mark.parametrize("settings", [AppSettings, WorkerSettings])
@pytest.mark.parametrize(
    ("database", "redis"),
    [
        ("sqlite:////srv/lab.sqlite3", "redis://127.0.0.1:6390/0"),
        ("sqlite:///lab.sqlite3", "redis://redis"),
        ("postgresql+psycopg://anna:ses%40me@db:5432/lab", "rediss://anna:ses%40me@cache.example:6380/15"),
        ("postgresql+psycopg://anna@/lab?host=/run/postgresql", "redis://[::1]:6379/0?health_check_interval=2"),
    ],
)
def test_an_address_that_works_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, settings: type[AppSettings] | type[WorkerSettings], database: str, redis: str
) -> None:
    monkeypatch.setenv("DECODELAB_DATABASE_URL", database)
    monkeypatch.setenv("DECODELAB_REDIS_URL", redis)
    loaded = settings.load()
    assert (loaded.database_url, loaded.redis_url) == (database, redis)
