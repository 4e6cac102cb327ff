"""The one task: a run's id comes in, `workers.generation` does the work."""

from celery import Celery

from models.names import GENERATE_TASK
from workers.generation import Generation


def register(app: Celery, generation: Generation) -> None:
    """Make `app` answer messages with `generation.run`. Doing one twice is harmless."""

    @app.task(name=GENERATE_TASK)
    def generate(run_id: str) -> None:
        generation.run(run_id)
