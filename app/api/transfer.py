"""HTTP routes that hand saved runs out and take them in, as streams: neither side ever holds a whole file."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse

from app.history import History
from app.history_address import asked_of
from app.run_export import chosen, csv_lines, json_lines
from app.run_import import MAX_LINE_BYTES, RunImport
from models.db.session import Database
from models.errors import DecodeLabError, LimitError, RefusedError

IMPORT_TYPE: Final = "application/x-ndjson"
_FORMATS: Final = {"jsonl": (json_lines, IMPORT_TYPE), "csv": (csv_lines, "text/csv; charset=utf-8")}


def build_transfer_router(database: Database) -> APIRouter:
    """The routes over this database."""
    router = APIRouter()
    history = History(database)

    @router.get("/api/export", response_model=None)
    def export(request: Request) -> Response:
        """Runs as a file: those named by `id` and `comparison`, else all that the history's parameters choose."""
        query = request.query_params
        if query.get("format", "jsonl") not in _FORMATS:
            return _error(RefusedError("format is jsonl or csv", field="format"))
        name = query.get("format", "jsonl")
        write, media_type = _FORMATS[name]
        try:
            named = chosen(history, query.getlist("id"), query.getlist("comparison"))
            filters = asked_of(query).filters
            history.page(filters, limit=1)  # what is refused must be refused before the first byte is sent
        except DecodeLabError as exc:
            return _error(exc)
        lines = write(database, named if "id" in query or "comparison" in query else history.ids(filters))
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        disposition = f'attachment; filename="decodelab-runs-{stamp}.{name}"'
        return StreamingResponse(lines, media_type=media_type, headers={"content-disposition": disposition})

    @router.post("/api/import", response_model=None)
    async def take(request: Request, preview: bool = False) -> Response:
        """Read exported runs from the body; with `preview` say what would be added and add nothing.

        The content type must be named: a foreign page cannot send that one without asking first.
        """
        if request.headers.get("content-type", "").split(";")[0] != IMPORT_TYPE:
            return _error(RefusedError(f"The content type must be {IMPORT_TYPE}.", field="content-type"), 415)
        reading = RunImport(database, is_preview=preview)
        try:
            async for line in _lines(request):
                await run_in_threadpool(reading.take, line)
            findings = await run_in_threadpool(reading.finish)
        except DecodeLabError as exc:
            return _error(exc)
        return JSONResponse({"preview": preview, **findings.as_dict()})

    return router


async def _lines(request: Request) -> AsyncIterator[bytes]:
    """The lines of the body, each with its end. Raises LimitError for one without an end in sight."""
    rest = bytearray()
    async for chunk in request.stream():
        first, *others = chunk.split(b"\n")
        rest += first
        for other in others:
            yield bytes(rest)
            rest = bytearray(other)
        if len(rest) > MAX_LINE_BYTES:
            raise LimitError(f"A line has more than {MAX_LINE_BYTES:,} bytes; this is no file of exported runs.")
    if rest:
        yield bytes(rest)


def _error(exc: DecodeLabError, status: int | None = None) -> JSONResponse:
    refused = {"not_found": 404, "limit": 413}.get(exc.code, 400)
    return JSONResponse(exc.as_dict(), status_code=status or (refused if isinstance(exc, RefusedError) else 503))
