"""How a command ends: the exit status and the form in which an error is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from app.console import print_json, say
from models.errors import DecodeLabError

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Tell errors in the form that was asked for, and end with the exit status that goes with them."""
    try:
        yield
    except DecodeLabError as exc:
        if as_json:
            print_json(exc.as_dict())
        else:
            say(f"decodelab: {exc.message}")
        raise typer.Exit(REFUSED) from exc
    except KeyboardInterrupt as exc:
        if as_json:
            print_json({"error": {"code": "interrupted", "message": "Ctrl-C ended the command.", "field": None}})
        raise typer.Exit(INTERRUPTED) from exc
