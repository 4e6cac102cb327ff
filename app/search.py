"""What is typed into the search box, as a question to the database's index of words.

- `paris france`: runs in which both words stand, in the prompt, the text, the title or the note, in any order;
- `"capital of france"`: these words one after the other. Punctuation and line ends between them do not count;
- `par*`: words that begin so, also at the end of a phrase: `"capital of fr*"`;
- letter case does not count; accents do. A word is a run of letters and digits, so `don't` is the phrase `don t`.

It does not find the inside of a word (`ari` in `Paris`), nor punctuation, and of a language that is written without
spaces only whole stretches or their beginnings. On PostgreSQL a text is searched up to its 100,000th character.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, bindparam, literal_column, select, text
from sqlalchemy.orm import Session
from sqlalchemy.sql import column, func, table

from models.db.runs import Run

_CHUNK: Final = re.compile(r'"([^"]*)(?:"(\*?)|$)|([^\s"]+)')
TAG_PREFIX: Final = "dltag"  # in the index of words a tag is this and the hex digits of its bytes
_FEW_SQLITE: Final = 20_000  # counting costs nothing there, and a look-up a microsecond
_FEW_POSTGRESQL: Final = 2_000


@dataclass(frozen=True, slots=True)
class Term:
    """Words that stand one after the other; with `is_prefix` the last one is the beginning of a word."""

    words: tuple[str, ...]
    is_prefix: bool = False


def terms_of(typed: str) -> list[Term]:
    """The terms, all of which a run must have. Empty where there is no word in what was typed."""
    found = []
    for phrase, star, chunk in _CHUNK.findall(typed):
        source = phrase or chunk
        words = tuple("".join(c if _is_of_word(c) else " " for c in source).split())
        if words:
            found.append(Term(words, is_prefix=bool(star) or source.rstrip().endswith("*")))
    return found


def tag_term(tag: str) -> Term:
    """The term of the runs that have this tag."""
    return Term((TAG_PREFIX + tag.encode("utf-8", "replace").hex(),))


@dataclass(frozen=True, slots=True)
class Found:
    """What the index of words says of some terms: a condition of `Run`, and whether few runs fulfil it."""

    condition: ColumnElement[bool]
    is_rare: bool


def find(session: Session, terms: list[Term]) -> Found:
    """The runs that have all of the terms, which are at least one.

    Neither database knows beforehand how many these are. So some are counted, and then few are looked up one by one,
    while of many each run of a list is asked whether it is one: a page is full after some steps.
    """
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    rows = _matches_sqlite(terms) if is_sqlite else _matches_postgresql(terms)
    most = _FEW_SQLITE if is_sqlite else _FEW_POSTGRESQL
    number = session.scalar(select(func.count()).select_from(rows.limit(most + 1).subquery())) or 0
    is_rare = number <= most
    if is_sqlite:
        return Found(_among_sqlite(rows, is_rare=is_rare), is_rare)
    return Found(Run.id.in_(select(rows.cte().prefix_with("MATERIALIZED")) if is_rare else rows), is_rare)


def _matches_sqlite(terms: list[Term]) -> Select[Any]:
    """The numbers of the index's rows."""
    asked = text("run_search MATCH :words").bindparams(bindparam("words", _fts5(terms), unique=True))
    return select(table("run_search", column("rowid")).c.rowid).where(asked)


def _among_sqlite(numbers: Select[Any], *, is_rare: bool) -> ColumnElement[bool]:
    rows = table("run_search_rows", column("number"), column("run_id"))
    matches = select(rows.c.run_id).where(rows.c.number.in_(numbers))
    return Run.id.in_(matches) if is_rare else matches.where(rows.c.run_id == Run.id).correlate(Run).exists()


def _matches_postgresql(terms: list[Term]) -> Select[Any]:
    """The ids of the runs."""
    words = table("run_search", column("run_id"), column("words"))
    query = func.to_tsquery(literal_column("'simple'::regconfig"), _tsquery(terms))
    return select(words.c.run_id).where(words.c.words.op("@@")(query))


def _fts5(terms: list[Term]) -> str:
    return " AND ".join(f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") for term in terms)


def _tsquery(terms: list[Term]) -> str:
    return " & ".join(
        "(" + " <-> ".join(f"'{word}'" for word in term.words) + (":*)" if term.is_prefix else ")") for term in terms
    )


def _is_of_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"
