"""Save a run, commit, then send its id to the queue; ask for its end.

Nothing is saved for a request that is refused, or while Redis or the database is away. Between the commit and the
queue Redis can still fail: the run then stays `queued` with `enqueued_at` empty, so the workers' sweeper sends it once
Redis is back, and whoever submitted can see (`RunDetail.enqueued_at`) that it waits for that. Its id is returned all
the same: an error there would make people send the same run twice.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

import redis
from kombu.exceptions import OperationalError as QueueError
from sqlalchemy import func, select, update

from app.admission import check_given_text, check_prompt, check_settings, check_text
from app.branching import Fork, again, branch_of
from app.broker import connect, producer
from app.cancel import end_unclaimed
from app.chat_admission import check_chat
from app.ids import check_id, not_found
from app.record import RunDetail
from app.rows import branch_row, new_id, run_row
from app.serving import Serving, no_worker_text
from app.settings import AppSettings
from app.sweeps import MAX_ARMS
from models.chat import Chat, prompt_text
from models.db.base import database_now
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.errors import DatabaseUnavailableError, LimitError, NoWorkerError, UnknownCheckpointError
from models.events import RunKind, Status
from models.names import CANCEL_CHANNEL, GENERATE_TASK, queue_for
from models.presence import CheckpointInfo
from models.sampling import Settings, derived_seed

MIN_ARMS: Final = 2
MAX_SEEDS: Final = 64
MAX_RUNS_OF_A_COMPARISON: Final = 256
_DRAWN_SEED_BITS: Final = 32
_PUBLISH_RETRIES: Final = {"max_retries": 2, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2}

logger = logging.getLogger(__name__)


class Submitter:
    """The one door through which runs come in."""

    def __init__(self, database: Database, redis_url: str, serving: Serving, settings: AppSettings) -> None:
        self._database = database
        self._serving = serving
        self._settings = settings
        self._queue = producer(redis_url)
        self._redis = connect(redis_url)

    def submit(
        self,
        prompt: str | Chat,
        settings: Settings,
        *,
        checkpoint: str | None = None,
        given_text: str | None = None,
    ) -> str:
        """Save and enqueue one run; returns its id. A missing seed is drawn and saved.

        The run continues the prompt, or scores `given_text` after it where there is one.

        Raises RefusedError (nothing saved) or UnavailableError (nothing saved).
        """
        if given_text is not None:
            check_text(given_text, self._settings.max_prompt_characters, field="text")
            settings.check_given()
        info = self._admit(prompt, [settings], checkpoint, given_text=given_text)
        run = run_row(info, prompt, with_seed(settings))
        if given_text is not None:
            run.kind, run.given_text = RunKind.SCORE.value, given_text
        self._save([run])
        self._enqueue(info.name, [run.id])
        return run.id

    def branch(self, parent: RunDetail, fork: Fork, *, max_tokens: int | None = None) -> str:
        """Save and enqueue a run that leaves `parent` at `fork` (app.branching); returns its id.

        Raises RefusedError or UnavailableError; nothing is saved then.
        """
        info = self._named(parent.checkpoint)
        tokenizer = self._serving.tokenizer(info, parse_special=False)
        limit = self._settings.max_prompt_characters
        branch = branch_of(parent, fork, info, tokenizer, max_tokens=max_tokens, max_characters=limit)
        run = branch_row(info, parent, branch)
        self._save([run])
        self._enqueue(info.name, [run.id])
        return run.id

    def again(self, run: RunDetail) -> str:
        """Save and enqueue `run` once more, under its own seed and, of a branch, from its own ids; returns the new id.

        Raises RefusedError or UnavailableError; nothing is saved then.
        """
        if run.fork_position is None:
            prompt = run.prompt if run.messages is None else Chat.parse(run.messages)
            return self.submit(prompt, run.settings, checkpoint=run.checkpoint, given_text=run.given_text)
        info = self._named(run.checkpoint)
        row = branch_row(info, run, again(run, info))
        self._save([row])
        self._enqueue(info.name, [row.id])
        return row.id

    def submit_comparison(
        self, prompt: str | Chat, arms: Sequence[Settings], *, checkpoint: str | None = None, seeds: int = 1
    ) -> tuple[str, list[str]]:
        """Save and enqueue one run for each arm and seed; returns the experiment's id and the run ids in order.

        Arms without a seed share one drawn seed, so they share their noise. With `seeds` > 1 every arm is repeated
        under derived seeds (`sample_seed`), the same ones for all arms that share. The first arm is the baseline.

        Raises RefusedError or UnavailableError; nothing is saved then.
        """
        check_size(len(arms), seeds)
        info = self._admit(prompt, arms, checkpoint)
        experiment = Experiment(
            id=new_id(), created_at=database_now(), checkpoint=info.name, prompt=prompt_text(prompt), num_arms=len(arms)
        )
        runs = []
        for arm_index, sample_index, settings in spread(arms, seeds):
            run = run_row(info, prompt, settings)
            run.experiment_id, run.arm_index, run.sample_index = experiment.id, arm_index, sample_index
            runs.append(run)
        ids = [run.id for run in runs]
        self._save(runs, experiment)
        self._enqueue(info.name, ids)
        return experiment.id, ids

    def cancel(self, run_id: str) -> None:
        """Ask for a run's end: a column that the run's worker obeys, and a hint that makes it quick.

        A run that no worker has claimed ends here and now; one that has ended stays as it is.
        Raises NotFoundError, DatabaseUnavailableError.
        """
        with self._database.write() as session:
            status = session.scalar(select(Run.status).where(Run.id == check_id(run_id, of="run")))
            if status is None:
                raise not_found(run_id, of="run")
            if Status(status).is_terminal or end_unclaimed(session, run_id):
                return
            active = (Status.QUEUED.value, Status.RUNNING.value)
            session.execute(update(Run).where(Run.id == run_id, Run.status.in_(active)).values(cancel_requested=True))
        try:
            self._redis.publish(CANCEL_CHANNEL, run_id)
        except redis.RedisError as exc:
            logger.warning("the cancel hint for run %s was not sent (%s); the saved request remains", run_id, exc)

    def close(self) -> None:
        self._queue.close()
        self._redis.close()

    def _admit(
        self, prompt: str | Chat, arms: Sequence[Settings], checkpoint: str | None, *, given_text: str | None = None
    ) -> CheckpointInfo:
        """The checkpoint that will run these arms, after every check."""
        check_text(prompt_text(prompt), self._settings.max_prompt_characters)
        info = self._resolve(checkpoint)
        has_banned_text = any(isinstance(item, str) for settings in arms for item in settings.banned)
        parsing = self._serving.tokenizer(info, parse_special=True) if has_banned_text else None
        for settings in arms:
            check_settings(settings, info, parsing)
        for settings in {(s.parse_special, s.max_tokens == 0): s for s in arms}.values():
            num_tokens = self._check_prompt(prompt, settings, info)
            if given_text is not None:
                tokenizer = self._serving.tokenizer(info, parse_special=settings.parse_special)
                check_given_text(given_text, num_tokens, info, tokenizer)
        return info

    def _check_prompt(self, prompt: str | Chat, settings: Settings, info: CheckpointInfo) -> int | None:
        """Its number of tokens, where that is known."""
        is_chat = isinstance(prompt, Chat)
        tokenizer = self._serving.tokenizer(info, parse_special=is_chat or settings.parse_special)
        if isinstance(prompt, Chat):
            return check_chat(prompt, settings, info, self._serving.chat_template(info), tokenizer)
        return check_prompt(prompt, settings, info, tokenizer)

    def _resolve(self, checkpoint: str | None) -> CheckpointInfo:
        if checkpoint is not None:
            return self._named(checkpoint)
        served = {info.name: info for info in self._serving.checkpoints()}
        if not served:
            raise NoWorkerError(no_worker_text(self._settings.default_checkpoint))
        preferred = [self._settings.default_checkpoint, *self._settings.checkpoint_names, *served]
        return next(served[name] for name in preferred if name in served)

    def _named(self, checkpoint: str) -> CheckpointInfo:
        try:
            return self._serving.info(checkpoint)
        except UnknownCheckpointError:
            if checkpoint in self._settings.checkpoint_names:
                raise NoWorkerError(no_worker_text(checkpoint)) from None
            raise

    def _save(self, runs: Sequence[Run], experiment: Experiment | None = None) -> None:
        limit = self._settings.max_queued
        with self._database.write() as session:
            waiting = session.scalar(select(func.count()).where(Run.status == Status.QUEUED.value)) or 0
            if waiting + len(runs) > limit:
                raise LimitError(
                    f"{waiting:,} runs wait already and at most {limit:,} may; try again when some have ended."
                )
            if experiment is not None:
                session.add(experiment)
                session.flush()
            session.add_all(runs)

    def _enqueue(self, checkpoint: str, run_ids: Sequence[str]) -> None:
        for index, run_id in enumerate(run_ids):
            try:
                self._send(checkpoint, run_id)
            except (QueueError, redis.RedisError, OSError) as exc:
                logger.warning("run %s is saved but not on the queue (%s); the sweeper will send it", run_id, exc)
                self._mark_unsent(run_ids[index:])
                return

    def _send(self, checkpoint: str, run_id: str) -> None:
        self._queue.send_task(
            GENERATE_TASK,
            args=[run_id],
            queue=queue_for(checkpoint),
            ignore_result=True,
            retry=True,
            retry_policy=_PUBLISH_RETRIES,
        )

    def _mark_unsent(self, run_ids: Sequence[str]) -> None:
        waiting = (Run.id.in_(run_ids), Run.status == Status.QUEUED.value)
        try:
            with self._database.write() as session:
                session.execute(update(Run).where(*waiting).values(enqueued_at=None))
        except DatabaseUnavailableError as exc:
            # The runs are saved all the same, and the sweeper looks for their messages whatever the column says.
            logger.warning("%d runs are saved, but not marked as unsent: %s", len(run_ids), exc.message)


def with_seed(settings: Settings) -> Settings:
    """The settings with a seed: their own, or one that is drawn now."""
    return settings if settings.seed is not None else settings.with_changes(seed=draw_seed())


def draw_seed() -> int:
    """A seed of 32 bits: short enough to be typed again."""
    return secrets.randbits(_DRAWN_SEED_BITS)


def sample_seed(seed: int, sample_index: int) -> int:
    """The seed of one of several samples: sample 0 has `seed` itself, the others 32 bits of a hash of both."""
    if sample_index == 0:
        return seed
    return derived_seed(seed, str(sample_index))


def spread(arms: Sequence[Settings], seeds: int) -> Iterator[tuple[int, int, Settings]]:
    """Arm index, sample index and settings of every run of a comparison; arms without a seed share one drawn seed."""
    shared = draw_seed()
    for arm_index, arm in enumerate(arms):
        base = arm.seed if arm.seed is not None else shared
        for sample_index in range(seeds):
            yield arm_index, sample_index, arm.with_changes(seed=sample_seed(base, sample_index))


def check_size(num_arms: int, seeds: int) -> None:
    """Raise LimitError for a comparison that is too small or too large."""
    if not MIN_ARMS <= num_arms <= MAX_ARMS:
        raise LimitError(
            f"A comparison has {MIN_ARMS} to {MAX_ARMS} arms; {num_arms} {'is' if num_arms == 1 else 'are'} given.",
            field="arms",
        )
    if not 1 <= seeds <= MAX_SEEDS:
        raise LimitError(f"A comparison has 1 to {MAX_SEEDS} seeds, not {seeds}.", field="seeds")
    if num_arms * seeds > MAX_RUNS_OF_A_COMPARISON:
        raise LimitError(
            f"{num_arms} arms with {seeds} seeds are {num_arms * seeds} runs; a comparison has at most "
            f"{MAX_RUNS_OF_A_COMPARISON}. Take fewer arms or seeds.",
            field="seeds",
        )
