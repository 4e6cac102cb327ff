"""The two tasks: a run's id comes in, and `workers.generation` does the work; or a question about a saved run, and
`workers.examination` answers it."""

from typing import Any

from celery import Celery

from models.names import EXAMINE_TASK, GENERATE_TASK
from workers.examination import Examination
from workers.generation import Generation


def register(app: Celery, generation: Generation, examination: Examination) -> None:
    """Make `app` answer messages. Doing one twice is harmless."""

    @app.task(name=GENERATE_TASK)
    def generate(run_id: str) -> None:
        generation.run(run_id)

    @app.task(name=EXAMINE_TASK)
    def examine(request_id: str, asked: dict[str, Any]) -> None:
        examination.answer(request_id, asked)
