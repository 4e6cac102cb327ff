"""How a command ends: the exit status and the form in which an error is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from sqlalchemy.exc import ProgrammingError

from app.console import print_json, say
from models.errors import DatabaseUnavailableError, DecodeLabError

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Tell errors in the form that was asked for, and end with the exit status that goes with them."""
    try:
        yield
    except (DecodeLabError, ProgrammingError) as exc:
        error = exc if isinstance(exc, DecodeLabError) else _without_tables(exc)
        if as_json:
            print_json(error.as_dict())
        else:
            say(f"decodelab: {error.message}")
        raise typer.Exit(REFUSED) from exc
    except KeyboardInterrupt as exc:
        if as_json:
            print_json({"error": {"code": "interrupted", "message": "Ctrl-C ended the command.", "field": None}})
        raise typer.Exit(INTERRUPTED) from exc


def _without_tables(exc: ProgrammingError) -> DatabaseUnavailableError:
    reason = str(exc.orig).strip().splitlines()[0]
    return DatabaseUnavailableError(f"The database lacks what is needed ({reason}). Run `decodelab migrate`.")
