"""Comparisons as the page submits them: all rows in one commit, then a message for each."""

from datetime import UTC, datetime
from typing import Any

from models.db.experiments import Experiment
from models.sampling import Settings
from tests.fakes.rows import CHECKPOINT, new_id, new_run
from tests.fakes.stack import GREEDY, Stack


def save_arms(
    stack: Stack, number: int, settings: Settings = GREEDY, *, prompts: tuple[str, ...] = ("Q",), **columns: Any
) -> list[str]:
    """Queued rows without messages, the prompts in turn; their ids in the order of the arms."""
    experiment_id = new_id()
    checkpoint = columns.get("checkpoint", CHECKPOINT)
    values: dict[str, Any] = {"settings": settings, "experiment_id": experiment_id, "sample_index": 0, **columns}
    runs = [new_run(prompt=prompts[arm % len(prompts)], arm_index=arm, **values) for arm in range(number)]
    with stack.database.write() as session:
        session.add(
            Experiment(
                id=experiment_id,
                created_at=datetime.now(UTC),
                checkpoint=checkpoint,
                prompt=prompts[0],
                num_arms=number,
            )
        )
        session.flush()
        session.add_all(runs)
    return [run.id for run in runs]


def submit_arms(stack: Stack, number: int, settings: Settings = GREEDY, **columns: Any) -> list[str]:
    """The same, and their messages."""
    run_ids = save_arms(stack, number, settings, **columns)
    for run_id in run_ids:
        stack.enqueue(run_id, checkpoint=columns.get("checkpoint", CHECKPOINT))
    return run_ids
