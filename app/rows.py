"""New rows of the table of runs, as a submit fills them."""

import uuid_utils

from app.branching import Branch
from app.record import RunDetail
from models.chat import Chat, prompt_messages, prompt_text
from models.db.base import database_now
from models.db.runs import Run
from models.events import Status
from models.presence import CheckpointInfo
from models.sampling import Settings


def new_id() -> str:
    """A UUIDv7: ids sort by the time of their making."""
    return str(uuid_utils.uuid7())


def run_row(info: CheckpointInfo, prompt: str | Chat, settings: Settings) -> Run:
    """A run that waits to be generated; `settings` have their seed."""
    return Run(
        id=new_id(),
        created_at=database_now(),
        # The moment of sending follows the commit at once; the submitter takes it back where sending fails.
        enqueued_at=database_now(),
        checkpoint=info.name,
        checkpoint_revision=info.revision,
        weights_digest=info.weights_digest,
        prompt=prompt_text(prompt),
        messages=prompt_messages(prompt),
        settings=settings.as_dict(),
        seed=str(settings.seed),
        status=Status.QUEUED.value,
    )


def branch_row(info: CheckpointInfo, said: RunDetail, branch: Branch) -> Run:
    """A branch, with its prompt as it was said in the run `said` and as it was read there."""
    prompt = said.prompt if said.messages is None else Chat.parse(said.messages)
    run = run_row(info, prompt, branch.settings)
    run.parent_id, run.fork_position = branch.parent_id, branch.position
    run.prompt_token_ids, run.opening_ids = list(branch.prompt_ids), list(branch.opening)
    return run
