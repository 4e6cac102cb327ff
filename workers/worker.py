"""The composition root: builds every part of a worker from plain arguments, and runs them until it is told to stop."""

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

import redis
import torch
from celery import Celery

from models.db.session import Database
from models.presence import WorkerPresence
from workers.celery_app import create_app, enqueue
from workers.connections import Connections
from workers.consumer import Consumer
from workers.engine.catalog import CatalogEntry
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.free_memory import free_bytes, give_back
from workers.engine.rehearsal import rehearse
from workers.examination import Desk, Examination
from workers.finished import FinishedRuns
from workers.generation import Generation
from workers.host import EngineHost
from workers.identity import new_presence, new_worker_id, run_facts
from workers.leases import LeaseKeeper
from workers.overdue import Overdue
from workers.parts import Limits, Loading, Parts
from workers.periodic import Periodic
from workers.presence import CancelListener, Presence, published_parts
from workers.priority import step_back
from workers.publisher import Publisher
from workers.recovery import Recovery
from workers.settings import WorkerSettings
from workers.store import Store
from workers.sweeper import Patience, Sweeper, WaitingMessages
from workers.tasks import register

logger = logging.getLogger(__name__)

EXIT_BROKEN: Final = 70


class Load(Protocol):
    """How a checkpoint is loaded; `workers.engine.checkpoint.load_checkpoint` is the real way."""

    def __call__(self, entry: CatalogEntry, *, device: str, dtype: str) -> Checkpoint: ...


class Service(Protocol):
    """A part with threads of its own."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Worker:
    """The parts that live as long as the process."""

    consumer: Consumer
    generation: Generation
    examination: Examination
    presence: Presence
    publisher: Publisher
    services: tuple[Service, ...]  # in the order in which they start; they stop in the opposite one
    database: Database
    drain_s: float

    def run(self) -> int:
        """Work until TERM or INT, then leave every run ended or handed over. Returns the exit status.

        A consumer that ends by itself, at a message that is no message, leaves a worker that must be replaced.
        """
        self.publisher.start()
        for service in self.services:
            service.start()
        self.presence.start()
        threading.Thread(target=self._drain_when_told, name="drain", daemon=True).start()
        self.consumer.run()
        self.generation.join()
        status = 0 if self.consumer.stopping.is_set() else EXIT_BROKEN
        for service in reversed(self.services):
            service.stop()
        self.publisher.close(timeout_s=2)
        self.database.close()
        logger.info("stopped")
        return status

    def _drain_when_told(self) -> None:
        self.consumer.stopping.wait()
        self.presence.stop()
        self.examination.stop()
        self.generation.drain(self.drain_s)


class Broken:
    """Ends the process at once, so that whoever watches it starts another one. Its runs are free for others then."""

    def __init__(self, farewell: Callable[[], None]) -> None:
        self._farewell = farewell

    def __call__(self, reason: str) -> None:
        logger.critical("the worker ends itself: %s", reason)
        farewell = threading.Thread(target=self._farewell, daemon=True)
        farewell.start()
        farewell.join(2)  # the database may be the part that hangs
        logging.shutdown()
        os._exit(EXIT_BROKEN)


def build(settings: WorkerSettings, connections: Connections, entry: CatalogEntry, load: Load) -> Worker:
    """Load and compose. Raises CheckpointError or SettingError."""
    database, client = connections.database, connections.client
    checkpoint, loading = _load(settings, entry, load)
    info = checkpoint.info
    worker_id = new_worker_id()
    app = create_app(settings.redis_url, checkpoint=info.name, has_events=settings.task_events)
    facts = run_facts(info, num_threads=settings.threads)
    store = Store(database, worker_id, lease_s=settings.lease_s, facts=facts)
    broken = Broken(store.give_up)
    publisher = Publisher(client, on_failure=broken)
    kv_budget_bytes = settings.kv_mib * 2**20 or free_bytes(info.device) // 2
    engine = Engine(checkpoint, num_rows=settings.rows, kv_budget_bytes=kv_budget_bytes)
    host = EngineHost(
        engine,
        watchdog_s=settings.watchdog_s,
        on_failure=broken,
        at_start=(lambda: step_back(settings.nice)) if info.device == "cpu" else None,
        after_outputs=publisher.wait_until_sent if info.device == "cpu" else None,
        on_idle=give_back,
    )
    parts = Parts(
        checkpoint=checkpoint,
        store=store,
        publisher=publisher,
        host=host,
        leases=LeaseKeeper(store.renew, every_s=settings.lease_renew_s, on_failure=broken),
        recovery=Recovery(store, publisher),
        limits=Limits(settings.time_limit_s, settings.flush_every_s, settings.flush_tokens),
        loading=loading,
        enqueue=_sender(app),
    )
    generation = Generation(parts, num_rows=settings.rows)
    desk = Desk(client, worker_id, num_seats=max(1, settings.rows // 2))
    examination = Examination(checkpoint, FinishedRuns(database), host, desk)
    register(app, generation, examination)

    def num_places() -> int:
        """A run has a row, with a message of its own or without; a question on its seat keeps no run's message out."""
        return settings.rows - generation.num_companions + desk.seats.num_taken

    presence = new_presence(worker_id, info, num_rows=settings.rows)
    return Worker(
        consumer=Consumer(app, concurrency=settings.rows + desk.seats.number, name=worker_id, num_places=num_places),
        generation=generation,
        examination=examination,
        presence=_presence(client, presence, checkpoint, parts=parts, broken=broken),
        publisher=publisher,
        services=(
            host,
            parts.leases,
            _sweeper(settings, Overdue(database), parts, client=client, broken=broken),
            CancelListener(client, generation.cancel, on_failure=broken),
        ),
        database=database,
        drain_s=settings.drain_s,
    )


def _load(settings: WorkerSettings, entry: CatalogEntry, load: Load) -> tuple[Checkpoint, Loading]:
    """Load in a thread that ends. OpenMP keeps helpers for every thread that has computed: with those of a loading
    thread beside the device thread's, it counts more threads than cores and lets all of them sleep between operations,
    which costs half the speed.
    """
    began_at = time.monotonic()
    torch.set_num_threads(settings.threads)
    # The threads that compute are started here, so they have the priority that this one has; on a GPU they are few.
    with ThreadPoolExecutor(1, "load", step_back, (settings.nice,)) as loader:
        checkpoint = loader.submit(load, entry, device=settings.device, dtype=settings.dtype).result()
        loader.submit(rehearse, checkpoint.info.device).result()
    gc.collect()
    gc.freeze()  # what stays loaded is not looked through again, which would stop every stream for 0.2 s
    ready_at = time.monotonic()
    logger.info("%s is loaded on %s (%.1f s)", entry.name, checkpoint.info.device, ready_at - began_at)
    return checkpoint, Loading(duration_s=ready_at - began_at, ready_at=ready_at)


def _sender(app: Celery) -> Callable[[str, str], None]:
    def send(run_id: str, checkpoint: str) -> None:
        enqueue(app, run_id, checkpoint=checkpoint)

    return send


def _presence(
    client: redis.Redis, presence: WorkerPresence, checkpoint: Checkpoint, *, parts: Parts, broken: Broken
) -> Presence:
    def current() -> WorkerPresence:
        return replace(presence, num_running=parts.host.num_active)

    return Presence(client, current, published=published_parts(checkpoint), on_failure=broken)


def _sweeper(
    settings: WorkerSettings, overdue: Overdue, parts: Parts, *, client: redis.Redis, broken: Broken
) -> Periodic:
    patience = Patience(
        max_attempts=settings.max_attempts,
        requeue_after_s=settings.requeue_after_s,
        lease_rest_s=2 * settings.lease_renew_s,
    )
    sweeper = Sweeper(
        overdue, parts.recovery, waiting=WaitingMessages(client), enqueue=parts.enqueue, patience=patience
    )
    return Periodic("sweeper", sweeper.sweep, every_s=settings.sweep_every_s, on_failure=broken)
