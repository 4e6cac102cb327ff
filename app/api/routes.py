"""HTTP routes beside the page: is the process alive, can it work, and one run as JSON."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.api.transfer import build_transfer_router
from app.history import History
from app.run_json import run_json
from app.serving import Serving
from models.db.session import Database
from models.errors import DecodeLabError, NotFoundError


def build_router(database: Database, serving: Serving) -> APIRouter:
    """The routes over these clients."""
    router = APIRouter()
    router.include_router(build_transfer_router(database))
    history = History(database)

    @router.get("/health")
    def health() -> dict[str, str]:
        """This process answers, whatever else is away."""
        return {"status": "ok"}

    @router.get("/ready")
    def ready(response: Response) -> dict[str, Any]:
        """Whether runs can be taken and shown; 503 with the reason of each part that is away."""
        num_workers: int | None = None

        def count_workers() -> None:
            nonlocal num_workers
            num_workers = len(serving.workers())

        parts = {"database": _problem(database.check), "redis": _problem(count_workers)}
        is_ready = not any(parts.values())
        response.status_code = 200 if is_ready else 503
        return {"ready": is_ready, "problems": {k: v for k, v in parts.items() if v}, "num_workers": num_workers}

    @router.get("/api/runs/{run_id}", response_model=None)
    def run(run_id: str) -> dict[str, Any] | JSONResponse:
        """One run, as `decodelab runs show ID --json` prints it."""
        try:
            return run_json(history.run(run_id))
        except NotFoundError as exc:
            return JSONResponse(exc.as_dict(), status_code=404)
        except DecodeLabError as exc:
            return JSONResponse(exc.as_dict(), status_code=503)

    return router


def _problem(check: Any) -> str | None:
    try:
        check()
    except DecodeLabError as exc:
        return exc.message
    return None
