"""The queue's consumer and producer: one factory, nothing at import."""

from typing import Final

from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError

from models.errors import BrokerUnavailableError
from models.names import GENERATE_TASK, queue_for

# A message that is not acknowledged by then is delivered again. Harmless (the second claim finds nothing to do), so it
# only has to be longer than most runs; runs of dead workers come back through their leases, long before.
VISIBILITY_TIMEOUT_S: Final = 3600


def create_app(redis_url: str, *, checkpoint: str | None = None, has_events: bool = False) -> Celery:
    """A Celery application; with `checkpoint` it consumes that checkpoint's queue, with `has_events` Flower sees it."""
    app = Celery("decodelab", broker=redis_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=True,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=has_events,
        worker_send_task_events=has_events,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_retry=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "health_check_interval": 10,
            "socket_connect_timeout": 2,
            "socket_timeout": 5,
            "socket_keepalive": True,
            "retry_on_timeout": True,
        },
    )
    if checkpoint is not None:
        app.conf.task_queues = [Queue(queue_for(checkpoint), routing_key=queue_for(checkpoint))]
        app.conf.task_default_queue = queue_for(checkpoint)
    return app


def enqueue(app: Celery, run_id: str, *, checkpoint: str) -> None:
    """Put a run's id on its checkpoint's queue. Raises BrokerUnavailableError."""
    try:
        app.send_task(
            GENERATE_TASK,
            args=[run_id],
            queue=queue_for(checkpoint),
            retry=True,
            retry_policy={"max_retries": 1, "interval_start": 0.1, "interval_step": 0.1},
        )
    except OperationalError as exc:
        raise BrokerUnavailableError(
            f"The queue does not answer ({exc}). Check that Redis runs, then try again."
        ) from exc
