"""What-if: the form and back, the strip's numbers, and the sentence about the first difference."""

import json
import math

import pytest

from app.render.what_if import FIELDS, what_if_form, what_if_lines, what_if_panel, what_if_settings, what_if_words
from models.errors import SettingError
from models.events import StopReason, TokenPicked
from models.examination import Alternative, FirstDifference, WhatIf
from models.sampling import Settings
from tests.fakes.scripted_runs import token
from tests.unit.render.plain import plain

RUN = Settings(temperature=0.8, top_p=0.9, banned=(7,), stop=("\n",), seed=42)
TOKENS = [token(i, piece) for i, piece in enumerate((" Paris", ".", " <i>The", " city"))]


def answer(first: FirstDifference | None, *, gone: int | None = None) -> WhatIf:
    """Every token at e^-1, one of them impossible."""
    return WhatIf(
        tuple(Alternative(t.position, t.token_id, None if t.position == gone else -1.0, 1) for t in TOKENS), first
    )


def told(first: FirstDifference | None, **changes: object) -> str:
    return plain(what_if_words(TOKENS, answer(first), **changes))


def rival(of: TokenPicked) -> tuple[int, str]:
    found = next(c for c in of.candidates if c.token_id != of.token_id)
    return found.token_id, found.piece


def test_a_branch_is_called_one() -> None:
    assert told(None, noun="branch") == told(None).replace("fresh run", "fresh branch")
    first = FirstDifference(2, TOKENS[2].token_id, 1, None)
    assert "A fresh branch leaves it at token 2" in told(first, noun="branch")


def test_the_form_of_a_run_leads_back_to_its_settings() -> None:
    assert what_if_form(RUN) == {"temperature": "0.8", "top_p": "0.9"}
    assert what_if_settings(RUN, what_if_form(RUN)) == RUN


def test_what_is_moved_changes_and_all_else_is_the_runs() -> None:
    moved = what_if_settings(RUN, {"temperature": "1.5", "top_k": "40", "seed": "7", "banned": "9"})
    assert moved == RUN.with_changes(temperature=1.5, top_k=40, top_p=1.0)
    with pytest.raises(SettingError, match="top_p") as caught:
        what_if_settings(RUN, {"top_p": "much"})
    assert caught.value.field == "top_p"


def test_the_panel_has_a_named_input_for_each_control_and_nothing_to_evaluate() -> None:
    panel = what_if_panel()
    for field in FIELDS:
        assert f'<label for="dl-w-{field}">{field}</label>' in panel
        assert f'id="dl-w-{field}"' in panel
    assert not any(mark in panel for mark in ("${", "{{", "`"))


def test_the_strip_has_the_saved_tokens_and_the_new_probabilities() -> None:
    lines = [json.loads(line) for line in what_if_lines(TOKENS, answer(None, gone=2)).splitlines()]
    assert [line[0] for line in lines] == [t.text for t in TOKENS]
    assert [line[1] for line in lines] == [round(t.raw_logprob, 4) for t in TOKENS]
    assert [line[2] for line in lines] == [-1.0, -1.0, None, -1.0]


def test_a_fresh_run_that_leaves_is_told_with_both_tokens() -> None:
    token_id, piece = rival(TOKENS[3])
    words = told(FirstDifference(3, TOKENS[3].token_id, token_id, None))
    was = 100 * math.exp(TOKENS[3].logprob or 0.0)
    assert f'leaves it at token 3: it picks "{piece}" instead of " city" (was {was:.1f} %, is 36.8 %).' in words


def test_a_token_that_no_record_holds_is_told_by_its_id() -> None:
    assert "it picks #48000 instead" in told(FirstDifference(1, TOKENS[1].token_id, 48_000, None))


def test_endings_are_differences_too() -> None:
    ends = told(FirstDifference(2, TOKENS[2].token_id, None, StopReason.STOP_STRING))
    assert 'ends before token 2 (stop string), where the saved one has " <i>The"' in ends
    token_id, piece = rival(TOKENS[0])
    goes_on = told(FirstDifference(4, None, token_id, None))
    assert f'The saved run ends here; a fresh run goes on at token 4 with "{piece}".' in goes_on
    assert "has the same tokens" in told(None)


def test_hostile_pieces_are_text() -> None:
    html = what_if_words(TOKENS, answer(FirstDifference(2, TOKENS[2].token_id, None, None)))
    assert "<i>" not in html
    assert "&lt;i&gt;The" in html


def test_perplexity_is_that_of_the_saved_text() -> None:
    own = math.exp(-sum(t.logprob or 0.0 for t in TOKENS) / len(TOKENS))
    assert f"under these settings 2.72, under its own {own:.2f}." in told(None)


def test_impossible_tokens_are_counted_and_linked() -> None:
    html = what_if_words(TOKENS, answer(None, gone=2))
    assert "1 of 4 tokens is impossible now, the first token 2." in plain(html)
    assert 'data-goto="2"' in html


def test_a_scored_text_has_no_fresh_run() -> None:
    assert "fresh run" not in told(FirstDifference(1, 1, 2, None), is_scored=True)
