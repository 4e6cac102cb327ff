"""Runs that have ended, as they were saved: read, never written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from models.db.runs import Run, Token
from models.db.session import Database
from models.errors import LimitError, NotFoundError, RefusedError, UnknownCheckpointError
from models.events import Status
from models.examination import MAX_POSITIONS
from models.presence import CheckpointInfo
from models.sampling import Settings


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What looking back at a run needs of it."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]  # its end token and those that a stop string cut away included
    settings: Settings
    opening: tuple[int, ...] = ()  # of a branch: the tokens that its output was to begin with


class FinishedRuns:
    """Reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, run_id: str, info: CheckpointInfo) -> FinishedRun:
        """The run, if the checkpoint `info` is the one that computed it, in its dtype, and its text is not too long.

        Raises RefusedError, and DatabaseUnavailableError.
        """
        facts = (Run.status, Run.weights_digest, Run.capsule, Run.num_tokens)
        columns = (Run.prompt_token_ids, Run.opening_ids, Run.settings)
        with self._database.read() as session:
            row = session.execute(select(*facts, *columns).where(Run.id == run_id)).first()
            if row is None:
                raise NotFoundError(f"There is no run {run_id}.", field="id")
            status, weights_digest, capsule, num_tokens, prompt_ids, opening, settings = row
            _check_state(run_id, Status(status), prompt_ids)
            _check_weights(run_id, weights_digest, info)
            _check_dtype(run_id, (capsule or {}).get("dtype"), info)
            _check_length(len(prompt_ids) + num_tokens)
            tokens = select(Token.token_id).where(Token.run_id == run_id).order_by(Token.position)
            output_ids = tuple(session.scalars(tokens))
            return FinishedRun(tuple(prompt_ids), output_ids, _parsed(settings), tuple(opening or ()))


def _check_state(run_id: str, status: Status, prompt_ids: Sequence[int] | None) -> None:
    if not status.is_terminal:
        raise RefusedError(f"Run {run_id} has not ended yet; ask again when it has.")
    if prompt_ids is None:
        raise RefusedError(f"Run {run_id} ended before a worker read its prompt, so there is nothing to look back at.")


def _check_weights(run_id: str, digest: str | None, info: CheckpointInfo) -> None:
    if digest is not None and digest != info.weights_digest:
        raise UnknownCheckpointError(
            f"Run {run_id} was computed by weights {digest[:12]}, and what is served as {info.name} now has weights "
            f"{info.weights_digest[:12]}: its numbers would not be the run's. Serve the run's own weights, or run its "
            "prompt again."
        )


def _check_dtype(run_id: str, dtype: str | None, info: CheckpointInfo) -> None:
    """In another one the numbers are rounded in another way, which would look like what is asked about. Runs whose
    capsule does not name theirs are let through."""
    if dtype is not None and dtype != info.dtype:
        raise UnknownCheckpointError(
            f"Run {run_id} was computed in {dtype}, and {info.name} is served in {info.dtype} now: its numbers would "
            f"not be the run's. Serve it in {dtype} (DECODELAB_DTYPE), or run its prompt again."
        )


def _check_length(num_positions: int) -> None:
    if num_positions > MAX_POSITIONS:
        raise LimitError(
            f"Prompt and text have {num_positions:,} tokens together, and at most {MAX_POSITIONS:,} are looked back "
            "at; take a shorter run."
        )


def _parsed(settings: Mapping[str, Any]) -> Settings:
    return Settings.parse(dict(settings))
