"""The verdict on a replay: the same, or the first difference with both numbers."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.record import RunDetail
from app.render.replay import first_difference, progress_words, replay_words
from models.events import Event, Status, StopReason, StopRecord, TokenPicked
from models.sampling import Settings
from tests.fakes.scripted_runs import token
from tests.unit.render.plain import plain

TOKENS = tuple(token(i, piece) for i, piece in enumerate((" Paris", ".", " The", " city")))


def run(tokens: Sequence[TokenPicked], reason: StopReason = StopReason.EOS, **changes: Any) -> RunDetail:
    values: dict[str, Any] = {
        "id": "new",
        "status": Status.FINISHED,
        "created_at": datetime.now(UTC),
        "started_at": None,
        "ended_at": None,
        "enqueued_at": None,
        "checkpoint": "c",
        "prompt": "p",
        "settings": Settings(seed=1),
        "text": "",
        "events": tuple(Event("new", 1, i, t) for i, t in enumerate(tokens)),
        "stop": StopRecord(reason),
        **changes,
    }
    return RunDetail(**values)


def other(position: int) -> TokenPicked:
    return token(position, " else", token_id=77, raw_logprob=-0.5, logprob=-0.25)


def test_the_same_tokens_are_told_with_the_largest_difference() -> None:
    moved = [*TOKENS[:2], replace(TOKENS[2], raw_logprob=round(TOKENS[2].raw_logprob - 2e-6, 6)), TOKENS[3]]
    html = replay_words(run(TOKENS), run(moved))
    assert 'data-verdict="same"' in html
    assert "The same 4 tokens. Their log-probabilities differ by at most 2.0e-06 nats, at token 2." in plain(html)
    assert 'href="./?run=new"' in html
    assert "equal to the last digit" in replay_words(run(TOKENS), run(TOKENS))


def test_the_first_difference_has_both_numbers() -> None:
    html = replay_words(run(TOKENS), run([*TOKENS[:2], other(2), TOKENS[3]]))
    words = plain(html)
    assert 'data-verdict="differs"' in html
    assert 'They differ from token 2 on: saved " The" (raw' in words
    assert 'new " else" (raw 60.7 %, processed 77.9 %)' in words


def test_a_run_that_is_shorter_or_longer_is_not_the_same() -> None:
    shorter = plain(replay_words(run(TOKENS), run(TOKENS[:3], StopReason.CANCELLED)))
    assert 'the new run has ended (stopped) before token 3, where the saved one has " city"' in shorter
    longer = plain(replay_words(run(TOKENS[:3], StopReason.CANCELLED), run(TOKENS)))
    assert 'the saved run had ended (stopped) after 3 tokens, the new one goes on with " city"' in longer


def test_another_ending_of_the_same_tokens_is_told() -> None:
    words = plain(replay_words(run(TOKENS, StopReason.MAX_TOKENS), run(TOKENS, StopReason.EOS)))
    assert "Only the ending differs: max_tokens, then end token." in words


def test_other_circumstances_are_named() -> None:
    then = {"device": "cpu", "versions": {"torch": "2.12", "python": "3.11"}}
    now = {"device": "cpu", "versions": {"torch": "2.13", "python": "3.11"}, "new": 1}
    words = plain(replay_words(run(TOKENS, capsule=then), run(TOKENS, capsule=now)))
    assert words.endswith("Not the same circumstances: torch 2.12 then, 2.13 now.")


def test_first_difference_by_hand() -> None:
    assert first_difference(TOKENS, TOKENS) is None
    assert first_difference(TOKENS, TOKENS[:2]) == 2
    assert first_difference([], TOKENS) == 0
    assert first_difference(TOKENS, [TOKENS[0], other(1)]) == 1


def test_progress_says_how_far_and_whether_the_same() -> None:
    assert "Queued" in progress_words(TOKENS, [])
    assert "2 of 4 tokens, the same so far" in plain(progress_words(TOKENS, TOKENS[:2]))
    assert "2 of 4 tokens, another one at token 1" in plain(progress_words(TOKENS, [TOKENS[0], other(1)]))
