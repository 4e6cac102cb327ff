"""The declarative base, the column types and the database's own clock."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, MetaData, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.types import TypeDecorator

_ESCAPE = "\ufdd0"  # a noncharacter: never text, so it can mark what a database cannot hold
_NUL = _ESCAPE + "0"
_LITERAL = _ESCAPE + "1"


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time, always aware and in UTC, on databases with and without time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime has no place in the database; use datetime.now(UTC)")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class LosslessText(TypeDecorator[str]):
    """Any Python string, kept exactly.

    PostgreSQL refuses NUL and UTF-8 has no lone surrogates. Both are stored as a two- or six-character escape that
    begins with the noncharacter U+FDD0 and are put back on reading; all other text is stored as it is, so search
    works on it.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else escape_text(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else unescape_text(value)


def escape_text(text: str) -> str:
    """`text` without NUL and lone surrogates; `unescape_text` is the inverse."""
    if _ESCAPE not in text and "\0" not in text and not _has_surrogates(text):
        return text
    text = text.replace(_ESCAPE, _LITERAL).replace("\0", _NUL)
    return "".join(f"{_ESCAPE}2{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)


def unescape_text(text: str) -> str:
    """The string that `escape_text` was given."""
    if _ESCAPE not in text:
        return text
    first, *rest = text.split(_ESCAPE)
    return first + "".join(_unescape_one(part) for part in rest)


def unescape_start(text: str) -> str:
    """Like `unescape_text`, for what the database has cut off after some character, perhaps inside an escape."""
    start = text.rfind(_ESCAPE)
    if start >= 0:
        num_needed = 6 if text[start + 1 : start + 2] == "2" else 2
        text = text if len(text) - start >= num_needed else text[:start]
    return unescape_text(text)


def _unescape_one(part: str) -> str:
    match part[:1]:
        case "0":
            return "\0" + part[1:]
        case "1":
            return _ESCAPE + part[1:]
        case "2":
            return chr(int(part[1:5], 16)) + part[5:]
        case _:
            raise ValueError(f"damaged text escape in the database: {part[:6]!r}")


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: LosslessText,
        datetime: UtcDateTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class database_now(ColumnElement[datetime]):
    """The database's clock, `plus_s` seconds ahead. Leases are compared in it alone: hosts' clocks may differ."""

    inherit_cache = False
    type = UtcDateTime()

    def __init__(self, *, plus_s: float = 0) -> None:
        self.plus_s = float(plus_s)


@compiles(database_now, "sqlite")
def _sqlite_now(element: database_now, _compiler: Any, **_: Any) -> str:
    # Same text form as SQLAlchemy's own DateTime on SQLite (six decimals), so that comparison as text is in order.
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', '{element.plus_s:+.3f} seconds')"


@compiles(database_now, "postgresql")
def _postgresql_now(element: database_now, _compiler: Any, **_: Any) -> str:
    return f"(clock_timestamp() + interval '{element.plus_s:.3f} seconds')"
