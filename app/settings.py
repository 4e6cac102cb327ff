"""What the operator chose, read once from the environment (prefix `DECODELAB_`): the only reader of it in `app`.

Every default describes the embedded stack of `decodelab up`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.addresses import DatabaseUrl, RedisUrl
from models.environment import DEFAULT_CHECKPOINTS, DEFAULT_REDIS_PORT, PREFIX, wrong_variable
from models.errors import SettingError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class AppSettings(BaseSettings):
    """The settings of the web process, the commands and the launcher."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    data: Path = Field(Path("data"), validate_default=True)
    database_url: DatabaseUrl = Field(default_factory=lambda known: f"sqlite:///{known['data'] / 'decodelab.sqlite3'}")
    redis_url: RedisUrl = Field(default_factory=lambda known: running_redis_url(known["data"]))
    checkpoints: str = DEFAULT_CHECKPOINTS
    serve: str = ""
    host: str = "127.0.0.1"
    port: int = Field(7860, ge=1, le=65535)
    insecure: bool = False  # the page may listen on other than loopback addresses although it asks for no login
    max_queued: int = Field(1000, ge=1)
    max_prompt_characters: int = Field(1_000_000, ge=1)

    @field_validator("data")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))

    @classmethod
    def load(cls) -> Self:
        """Read the environment. Raises SettingError naming the variable that is wrong."""
        try:
            return cls()
        except ValidationError as exc:
            raise wrong_variable(exc) from exc

    def check_address(self) -> None:
        """Raise SettingError for an address that others can reach, unless the operator has said that this is meant."""
        if self.host not in LOOPBACK and not self.insecure:
            raise SettingError(
                f"DECODELAB_HOST: {self.host} can be reached by others and the page asks for no login; use 127.0.0.1, "
                "or set DECODELAB_INSECURE=true where something else guards it.",
                field="DECODELAB_HOST",
            )

    @property
    def checkpoint_names(self) -> tuple[str, ...]:
        """The names on the operator's list, in its order."""
        entries = (entry.partition("=")[0].strip() for entry in self.checkpoints.split(";"))
        return tuple(name for name in entries if name)

    @property
    def default_checkpoint(self) -> str | None:
        """The checkpoint that is meant when a request names none."""
        return self.serve or next(iter(self.checkpoint_names), None)

    @property
    def log_folder(self) -> Path:
        return self.data / "logs"

    @property
    def run_folder(self) -> Path:
        """Lock, process ids and ports of the running stack."""
        return self.data / "run"

    @property
    def stack_file(self) -> Path:
        return _stack_file(self.data)

    def is_chosen(self, field: str) -> bool:
        """Whether the operator set this field, so that it may not be replaced by a free port or a running stack's."""
        return field in self.model_fields_set

    def environment(self) -> dict[str, str]:
        """The environment of a child process: this one's, with these settings made explicit."""
        mine = {PREFIX + name.upper(): str(value) for name, value in self.model_dump(mode="json").items() if value}
        return {**os.environ, **mine, "PYTHONUNBUFFERED": "1", "PATH": _path_with_scripts()}


def running_redis_url(data: Path) -> str:
    """Where the stack that runs on this data folder has its Valkey; the default address where none runs."""
    stack = read_stack(data)
    return str(stack.get("redis_url") or f"redis://127.0.0.1:{DEFAULT_REDIS_PORT}/0")


def read_stack(data: Path) -> dict[str, Any]:
    """What the launcher wrote of the stack on this data folder; empty where none runs."""
    try:
        values = json.loads(_stack_file(data).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _stack_file(data: Path) -> Path:
    return data / "run" / "stack.json"


def _path_with_scripts() -> str:
    scripts = str(Path(sys.executable).parent)
    return os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
