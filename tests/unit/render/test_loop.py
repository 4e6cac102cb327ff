"""The loop in six lines: with this run's numbers, and none where nothing was picked."""

from app.render.loop import loop_fold, loop_lines
from tests.fakes.events import ended, prefilled, started
from tests.fakes.scripted_runs import token


def test_the_six_lines_have_the_numbers_of_the_run() -> None:
    tokens = [token(0, " <b>"), token(1, " x")]
    lines = loop_lines(started(), prefilled(), tokens, ended(num_tokens=2))
    assert len(lines) == 6
    assert f"{len(started().prompt_token_ids)} token" in lines[0]
    assert "&lt;b&gt;" in lines[4]
    assert "<b> " not in lines[4]
    assert "2 times" in lines[5]
    assert "max_tokens" in lines[5]
    assert loop_fold(started(), prefilled(), tokens, ended()).count("<li>") == 6


def test_a_run_that_picked_nothing_has_none() -> None:
    assert loop_lines(started(), None, [], ended()) == []
    assert loop_fold(None, None, [], ended()) == ""
