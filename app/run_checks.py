"""What a run that comes from a file must be, so that no page and no database stumbles over it later.

A check raises ValueError or another error that says what is wrong; nothing is put right.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import BigInteger, Boolean, Integer, String, inspect

from app.ids import check_id
from app.run_changes import check_tag
from models.chat import Chat
from models.db.base import escape_text
from models.db.experiments import Experiment
from models.db.runs import Run, Token
from models.events import Event, RunKind, StopReason, StopRecord, from_json
from models.sampling import MAX_SEED


def check_facts(run: Mapping[str, Any]) -> None:
    """What the pages read of a run without looking at it again."""
    RunKind(run["kind"])
    StopReason(run["stop_reason"])
    from_json(StopRecord, run["stop"])
    for name, of in (("id", "run"), ("parent_id", "run"), ("experiment_id", "comparison")):
        if run.get(name) is not None:
            check_id(run[name], of=of)
    _check_tags(run["tags"])
    seed = run["seed"]
    if not (seed.isascii() and seed.isdecimal() and int(seed) <= MAX_SEED):
        raise ValueError(f"seed is {seed!r:.60}")
    if run.get("messages") is not None:
        Chat.parse(run["messages"])
    for milestone in run["milestones"]:
        if Event.decode(orjson.dumps(milestone)).run_id != run["id"]:
            raise ValueError("an event is of another run")


def _check_tags(tags: Sequence[Any]) -> None:
    for tag in tags:
        if not isinstance(tag, str) or check_tag(tag) != tag:
            raise ValueError(f"a tag is no text that can be one: {tag!r:.60}")


def check_tokens(run: Mapping[str, Any], tokens: Sequence[Mapping[str, Any]]) -> None:
    """Rows of tokens: all of them once, and those of a branch's opening at its beginning, as far as it came."""
    if [token["position"] for token in tokens] != list(range(len(tokens))):
        raise ValueError("a token is missing or there twice")
    for token in tokens:
        check_fits(Token, token)
    prompt_ids, opening = run.get("prompt_token_ids") or [], run.get("opening_ids")
    if not all(type(token_id) is int for token_id in (*prompt_ids, *(opening or ()))):
        raise ValueError("a token id is no number")
    if opening is None:
        return
    if type(run.get("fork_position")) is not int or not 0 <= run["fork_position"] < len(opening):
        raise ValueError("a branch has no place where it leaves its parent")
    output_ids = [token["token_id"] for token in tokens]
    if output_ids[: len(opening)] != opening[: len(output_ids)]:
        raise ValueError("a branch does not begin with its own opening")


def check_fits(table: type[Run] | type[Token] | type[Experiment], values: Mapping[str, Any]) -> None:
    """A number or a text that its column cannot hold, on one of the databases."""
    mapper: Any = inspect(table)
    for column in mapper.columns:
        value, kind = values.get(column.key), column.type
        if isinstance(value, bool) and not isinstance(kind, Boolean):
            raise ValueError(f"{column.key} is {value}")
        if isinstance(value, int) and isinstance(kind, Integer):
            bound = 2**63 if isinstance(kind, BigInteger) else 2**31
            if not -bound <= value < bound:
                raise ValueError(f"{column.key} is {value}, which the database does not hold")
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"{column.key} has half a surrogate pair, which is no text")
        longest = kind.length if isinstance(kind, String) else None
        if isinstance(value, str) and longest is not None and (len(value) > longest or escape_text(value) != value):
            raise ValueError(f"{column.key} is {value!r:.60}")
