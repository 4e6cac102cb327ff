"""What a command asks for, and the two ways to get it: through the running stack, or here without it."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from app.admission import check_text
from app.folder import is_locked
from app.local import cancelled, collect, run_local
from app.record import RunDetail
from app.settings import AppSettings
from app.stack import open_stack
from app.submit import check_size, spread, with_seed
from models.chat import Chat, prompt_text
from models.errors import BrokerUnavailableError
from models.events import Event, Status
from models.sampling import Settings


@dataclass(frozen=True, slots=True)
class Request:
    """One run (a single arm, `seeds` None), which scores `given_text` where there is one, or a comparison."""

    prompt: str | Chat
    arms: Sequence[Settings]
    checkpoint: str | None
    seeds: int | None = None
    given_text: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The runs as they ended. `is_whole` is False when Ctrl-C cut them short."""

    runs: list[RunDetail]
    is_whole: bool = True
    experiment_id: str | None = None

    @property
    def has_failed(self) -> bool:
        return any(run.status is Status.FAILED for run in self.runs)


OnEvent = Callable[[Event], None]
Say = Callable[[str], None]


def run_on_stack(settings: AppSettings, request: Request, on_event: OnEvent, say: Say) -> Outcome:
    """Submit, follow to the end, and read back what was saved. Raises RefusedError, UnavailableError."""
    _check_stack(settings)
    with open_stack(settings) as stack:
        experiment_id = None
        if request.seeds is None:
            run_id = stack.submitter.submit(
                request.prompt, request.arms[0], checkpoint=request.checkpoint, given_text=request.given_text
            )
            run_ids = [run_id]
        else:
            experiment_id, run_ids = stack.submitter.submit_comparison(
                request.prompt, request.arms, checkpoint=request.checkpoint, seeds=request.seeds
            )
        if stack.history.run(run_ids[-1]).enqueued_at is None:
            say("Saved, but the queue did not take it; it starts by itself once Redis answers. Ctrl-C cancels it.")
        is_whole = stack.watch(run_ids, on_event)
        return Outcome([stack.history.run(run_id) for run_id in run_ids], is_whole, experiment_id)


def _check_stack(settings: AppSettings) -> None:
    """Raise BrokerUnavailableError where neither a launcher nor the operator says which Redis belongs to this database.

    The default address may be that of a stack on another folder: its workers would look for the run in their own
    database, and this one would wait for ever.
    """
    if not settings.is_chosen("redis_url") and not is_locked(settings.data):
        raise BrokerUnavailableError(
            f"No stack runs on the data folder {settings.data}. Start it with `make up`, name the Redis of "
            "another in DECODELAB_REDIS_URL, or run without one: --local."
        )


def run_here(settings: AppSettings, request: Request, on_event: OnEvent) -> Outcome:
    """Run the engine in a child process; nothing is saved. Ctrl-C cancels what has not ended. Raises DecodeLabError."""
    check_text(prompt_text(request.prompt), settings.max_prompt_characters)
    if request.given_text is not None:
        check_text(request.given_text, settings.max_prompt_characters, field="text")
    if request.seeds is None:
        places: list[tuple[int | None, int | None]] = [(None, None)]
        arms = [with_seed(request.arms[0])]
    else:
        check_size(len(request.arms), request.seeds)
        spread_arms = list(spread(request.arms, request.seeds))
        places = [(arm_index, sample_index) for arm_index, sample_index, _ in spread_arms]
        arms = [arm for _, _, arm in spread_arms]
    events = []
    is_whole = True
    try:
        asked = {"checkpoint": request.checkpoint, "given_text": request.given_text}
        with closing(run_local(settings, request.prompt, arms, **asked)) as stream:
            for event in stream:
                events.append(event)
                on_event(event)
    except KeyboardInterrupt:
        is_whole = False
        events += cancelled(events, len(arms))
    runs = collect(settings, request.prompt, arms, events, checkpoint=request.checkpoint)
    return Outcome(
        [
            dataclasses.replace(run, arm_index=arm_index, sample_index=sample_index, given_text=request.given_text)
            for run, (arm_index, sample_index) in zip(runs, places, strict=True)
        ],
        is_whole,
    )
