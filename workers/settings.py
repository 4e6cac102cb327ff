"""Everything that the environment says to a worker, read once: variables with the prefix DECODELAB_."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.addresses import DatabaseUrl, RedisUrl
from models.environment import DEFAULT_CHECKPOINTS, DEFAULT_REDIS_PORT, PREFIX, wrong_variable


def _sqlite_in(values: dict[str, Any]) -> str:
    return f"sqlite:///{values['data'].resolve() / 'decodelab.sqlite3'}"


def limit_spinning() -> None:
    """Bound how long OpenMP's threads spin while they wait for each other; to be called before torch is imported.

    Unbounded, a pass takes 25 times as long as soon as anything else uses one of the cores (a browser on the same
    machine is enough): the thread that has a core spins while the one it waits for has none. With this bound it takes
    4 times as long, and an idle machine loses 3 % (2 cores, SmolLM2-135M). The operator's own value stays.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


class WorkerSettings(BaseSettings):
    """Defaults are those of the embedded stack. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    data: Path = Path("data")
    database_url: DatabaseUrl = Field(default_factory=_sqlite_in)
    redis_url: RedisUrl = f"redis://127.0.0.1:{DEFAULT_REDIS_PORT}/0"

    checkpoints: str = DEFAULT_CHECKPOINTS
    serve: str = ""  # the name that this worker serves; empty: the first of the list
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto"
    rows: int = Field(8, ge=1, le=256)  # runs at once; the arms of a comparison stream side by side
    kv_mib: int = Field(0, ge=0)  # for the keys and values of all runs; 0: a half of what is free after loading
    threads: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    nice: int = Field(5, ge=0, le=19)  # how far those that compute on a CPU step back behind those that carry tokens
    time_limit_s: float = Field(600, gt=0)  # of one run, from its first claim
    task_events: bool = False  # Celery's own events and remote control, for Flower

    # A lease is renewed several times within its life, so that one slow write does not lose it.
    lease_s: float = Field(30, gt=0)
    lease_renew_s: float = Field(5, gt=0, validate_default=True)
    max_attempts: int = Field(3, ge=1)
    sweep_every_s: float = Field(5, gt=0)
    requeue_after_s: float = Field(15, gt=0)  # a queued row this old must have its message on the queue
    flush_every_s: float = Field(0.5, gt=0)
    flush_tokens: int = Field(32, ge=1)
    watchdog_s: float = Field(30, gt=0)
    drain_s: float = Field(20, ge=0)  # after TERM: time in which short runs may finish here

    @field_validator("data")
    @classmethod
    def _expanded(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("lease_renew_s")
    @classmethod
    def _before_it_runs_out(cls, value: float, info: ValidationInfo) -> float:
        lease_s = info.data.get("lease_s")
        if lease_s is not None and value >= lease_s:
            raise ValueError(f"a lease of {lease_s:g} s (DECODELAB_LEASE_S) must be renewed before it runs out")
        return value

    @classmethod
    def load(cls, **changes: Any) -> "WorkerSettings":
        """Read the environment. Raises SettingError naming the variable, its value and what it may be."""
        try:
            return cls(**changes)
        except ValidationError as exc:
            raise wrong_variable(exc) from exc
