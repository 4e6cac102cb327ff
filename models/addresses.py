"""The addresses of the database and of Redis as an operator writes them, checked where they are read.

What they refuse with never repeats an address: it may hold a password.
"""

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

_BACKENDS: Final = ("sqlite", "postgresql")
_DATABASE_FORMS: Final = "it must be sqlite:////path/to/file or postgresql+psycopg://user@host/name"
_REDIS_FORMS: Final = "it must be redis://host:port/number, or rediss:// for TLS"


def check_database_url(text: str) -> str:
    """`text`. Raises ValueError where it is no URL of a database that can be used here."""
    try:
        url = make_url(text)
        if url.get_backend_name() not in _BACKENDS:
            raise ValueError(_DATABASE_FORMS)
        url.get_dialect().import_dbapi()
    except (ArgumentError, ValueError) as exc:
        raise ValueError(_DATABASE_FORMS) from exc
    except ImportError as exc:
        raise ValueError(f"its driver {exc.name} is not installed; {_DATABASE_FORMS}") from exc
    return text


def check_redis_url(text: str) -> str:
    """`text`. Raises ValueError where both the queue and the streams cannot use it."""
    try:
        parts = urlsplit(text)
        number = parts.path.strip("/")
        is_usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except ValueError as exc:
        raise ValueError(_REDIS_FORMS) from exc
    if not is_usable or (number and not (number.isascii() and number.isdigit())):
        raise ValueError(_REDIS_FORMS)
    return text


DatabaseUrl = Annotated[str, AfterValidator(check_database_url)]
RedisUrl = Annotated[str, AfterValidator(check_redis_url)]
