"""The strip's lines: compact, strict JSON, and only ever longer."""

import json

from app.render.live import RunView
from app.render.tokens import CUT, PART, SCALES, SPECIAL, WITHHELD, line, scales
from app.theme import NUM_SHADES
from models.events import Event
from models.sampling import Settings
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import token


def test_a_plain_token_is_five_values() -> None:
    plain = token(3, " city")
    values = json.loads(line(plain))
    assert values == [
        " city",
        round(plain.raw_logprob, 4),
        round(plain.logprob, 4),
        round(plain.entropy, 3),
        plain.rank,
    ]


def test_an_impossible_token_has_no_processed_number() -> None:
    assert json.loads(line(token(3, " city", logprob=None)))[2] is None


def test_a_token_stays_far_below_its_budget() -> None:
    assert len(line(token(3, " city")).encode()) < 60


def test_kinds() -> None:
    end = token(1, "<|im_end|>", text="", visible=False)
    part = token(1, "x", piece="", text="", token_bytes=b"\xf0\x9f")
    withheld = token(1, "J\n", text="", visible=False, withheld=True)
    cut = token(1, "abSTOP", text="ab")
    tails = [json.loads(line(t))[5:] for t in (end, part, withheld, cut)]
    assert tails == [[SPECIAL, "<|im_end|>"], [PART, "f0 9f"], [WITHHELD, "J\\n"], [CUT, "STOP"]]
    assert json.loads(line(cut))[0] == "ab"


def test_hostile_text_is_data_and_one_line() -> None:
    text = '</span><img src=x onerror=alert(1)>\n\u2028"'
    encoded = line(token(0, text))
    assert encoded.count("\n") == 1
    assert json.loads(encoded)[0] == text


def test_a_lone_surrogate_does_not_break_the_strip() -> None:
    assert json.loads(line(token(0, "a", text="a\ud800", piece="a\ud800")))[0] == "a?"


def test_lines_grow_at_the_end_only() -> None:
    stack = FakeStack(token_s=0, queue_s=0)
    run = stack.runs[stack.submit("p", Settings(seed=1))]
    view, shown = RunView(run.id), ""
    for seq, payload in enumerate(run.payloads):
        view.apply(Event(run.id, 1, seq, payload))
        assert view.strip()["lines"].startswith(shown)
        shown = view.strip()["lines"]
    assert shown.count("\n") == len(view.tokens)


def test_every_scale_has_a_label_for_each_shade() -> None:
    assert [s["name"] for s in scales()] == ["processed", "raw", "surprisal", "entropy", "rank"]
    for scale in SCALES:
        assert len(scale.labels) == NUM_SHADES == len(scale.edges) + 1
        is_probability = scale.measure in ("raw", "processed")
        assert list(scale.edges) == sorted(scale.edges, reverse=is_probability)
