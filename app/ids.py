"""The ids of runs and comparisons: UUIDs, written as they are saved."""

import uuid

from models.errors import NotFoundError


def check_id(text: str, *, of: str) -> str:
    """`text` where it can be the id `of` a thing. Raises NotFoundError; a database does not even take every text."""
    try:
        is_id = str(uuid.UUID(text)) == text
    except ValueError:
        is_id = False
    if not is_id:
        raise not_found(text, of=of)
    return text


def not_found(text: str, *, of: str) -> NotFoundError:
    return NotFoundError(f"There is no {of} {text}.", field="id")
