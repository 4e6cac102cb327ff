"""Branches of scripted runs."""

from collections.abc import Mapping

from app.branching import Fork
from app.family import Relative
from app.record import RunDetail
from models.events import Ended, Status, TokenPicked
from tests.fakes.scripted_runs import FakeRun, token


def begin_as(run: FakeRun, parent: RunDetail, fork: Fork) -> None:
    """Give `run` the parent's tokens before the fork, and there what was put in; its script goes on after it."""
    candidates = parent.tokens[fork.position].candidates
    put = next((c.piece for c in candidates if c.token_id == fork.token_id), fork.text)
    places = [i for i, payload in enumerate(run.payloads) if isinstance(payload, TokenPicked)]
    for position, place in enumerate(places[: fork.position]):
        run.payloads[place] = parent.tokens[position]
    run.payloads[places[fork.position]] = token(fork.position, put, temperature=parent.settings.temperature)
    run.messages, run.parent_id, run.fork_position = parent.messages, parent.id, fork.position


def repeat(fresh: FakeRun, branch: FakeRun) -> None:
    """Make `fresh` the same branch once more."""
    fresh.payloads = list(branch.payloads)
    fresh.parent_id, fresh.fork_position = branch.parent_id, branch.fork_position


def family_of(runs: Mapping[str, FakeRun], run: FakeRun) -> list[Relative]:
    """The tree that `run` belongs to, the eldest first."""
    while run.parent_id is not None:
        run = runs[run.parent_id]
    found = [run]
    for other in runs.values():
        if other.parent_id in [relative.id for relative in found]:
            found.append(other)
    return [_relative(relative) for relative in found]


def _relative(run: FakeRun) -> Relative:
    payloads = [event.payload for event in run.events()]
    tokens = [p for p in payloads if isinstance(p, TokenPicked)]
    ended = next((p for p in payloads if isinstance(p, Ended)), None)
    start = "".join(t.piece for t in tokens[run.fork_position or 0 :][:12])
    status = ended.status if ended else Status.RUNNING
    return Relative(
        run.id, run.parent_id, run.fork_position, start, status, ended.stop.reason if ended else None, len(tokens)
    )
