"""Runs and comparisons as folds of their events."""

import pytest

from app.render.comparison import Arm, CompareView
from app.render.live import RunView, view_of
from app.render.outcome import outcome
from app.render.panel import arm_name
from app.render.text import milliseconds
from app.render.timing import cache_line, figures, gaps_chart, segments, waterfall
from models.events import Ended, Event, Passes, Prefilled, Resumed, Started, Status, StopReason, StopRecord, Timing
from models.sampling import Settings
from tests.fakes.app import FakeStack
from tests.fakes.events import beams
from tests.fakes.scripted_runs import token

STARTED = Started("c", "cpu", "float32", (1, 2, 3), 5.0, 0.0)
PREFILLED = Prefilled(3, 3, 1, 12.0, 100)


def events(*payloads: object) -> list[Event]:
    return [Event("r", 1, seq, payload) for seq, payload in enumerate(payloads)]  # type: ignore[arg-type]


def ended(**changes: object) -> Ended:
    values: dict[str, object] = {
        "status": Status.FINISHED,
        "stop": StopRecord(StopReason.EOS, token_id=2),
        "tail": "",
        "num_tokens": 2,
        "passes": Passes(1, 1, 3),
        "kv_positions": 4,
        "kv_bytes": 184_320,
    }
    return Ended(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("payloads", "state", "note"),
    [
        ([], "queued", "Queued: waiting for a worker."),
        ([STARTED], "running", "Prefill over 3 prompt tokens."),
        ([STARTED, PREFILLED], "running", "Prompt read in 12 ms; decoding."),
        ([STARTED, PREFILLED, token(0, "a")], "running", "Running."),
        (
            [STARTED, PREFILLED, token(0, "a"), Resumed(1)],
            "running",
            "Running. Resumed 1 time after a worker was lost.",
        ),
        ([STARTED, PREFILLED, ended()], "ended", ""),
    ],
)
def test_a_run_says_what_it_is_doing(payloads: list[object], state: str, note: str) -> None:
    strip = view_of("r", events(*payloads), None).strip()
    assert (strip["state"], strip["note"]) == (state, note)


def test_a_beam_search_says_that_its_text_comes_at_the_end() -> None:
    note = view_of("r", events(STARTED, PREFILLED), Settings(num_beams=4)).note()
    assert note == "Prompt read in 12 ms; searching with 4 beams, whose best text comes at the end."


def test_an_ended_beam_search_shows_what_others_show() -> None:
    timing = Timing(queue_ms=8, load_ms=0, prefill_ms=34, decode_ms=100, ttft_ms=150)
    told = events(STARTED, PREFILLED, token(0, "a"), token(1, "b"), beams(), ended(timing=timing))
    view = view_of("r", told, Settings(num_beams=4))
    assert view.strip()["state"] == "ended"
    assert "of one position for each of 4 beams" in view.facts()
    assert "4 positions of all beams" in view.facts()
    assert dict(segments(timing, is_shown_late=True))["delivery"] == 8  # 150 - 8 - 34 - 100
    assert f"delivery <b>{milliseconds(8)}</b>" in view.facts()


def test_the_tail_comes_with_the_end() -> None:
    assert view_of("r", events(STARTED, ended(tail="\ufffd")), None).strip()["tail"] == "\ufffd"


def test_delivery_is_what_the_parts_before_the_first_token_leave() -> None:
    timing = Timing(queue_ms=8, load_ms=0, prefill_ms=34, decode_ms=100, ttft_ms=50)
    assert segments(timing)[-1] == ("delivery", 8.0)
    assert segments(Timing(queue_ms=8))[-1] == ("delivery", None)
    assert waterfall(Timing()) == ""
    assert figures(Timing()) == ""


def test_gaps_need_three_tokens() -> None:
    tokens = [token(i, "a", elapsed_ms=40.0 * i) for i in range(3)]
    assert gaps_chart(tokens[:2]) == ""
    assert "0 to 40 ms" in gaps_chart(tokens)


def test_the_cache_line_counts_passes_and_what_was_shared() -> None:
    line = cache_line(ended(passes=Passes(1, 36, 2)), PREFILLED)
    assert "prefill: 1 pass over 2 prompt positions" in line
    assert "1 taken from the cache" in line
    assert "decode: 36 passes of one position" in line
    assert "cache: 4 positions, 184.3 kB" in line


def arms(*texts: str) -> CompareView:
    stack = FakeStack(token_s=0)
    view = CompareView("e")
    for i, text in enumerate(texts):
        stack.text = text
        run = stack.runs[stack.submit("p", Settings(seed=1))]
        view.arms.append(Arm(arm_name(i), "neutral", RunView(run.id)))
        for seq, payload in enumerate(run.payloads):
            view.arms[-1].view.apply(Event(run.id, 1, seq, payload))
    return view


def test_a_divergence_is_marked_in_both_columns_and_told() -> None:
    view = arms(" one two three", " one two four")
    view.update_divergence()
    assert [a["divergence"] for a in view.columns()["arms"]] == [2, 2]
    assert "<b>B</b> leaves A. Token 2" in outcome(view)


def test_equal_arms_say_so() -> None:
    view = arms(" one two", " one two")
    view.update_divergence()
    assert [a["divergence"] for a in view.columns()["arms"]] == [None, None]
    assert "is the same, token for token" in outcome(view)


def test_a_running_arm_that_is_behind_does_not_diverge() -> None:
    view = arms(" one two three", " one two three")
    behind = view.arms[1].view
    behind.ended, late = None, behind.tokens[2:]
    del behind.tokens[2:]
    view.update_divergence()
    assert view.arms[1].divergence is None
    assert "is so far the same" in outcome(view)
    behind.tokens += [token(2, " other"), *late[1:]]
    view.update_divergence()
    assert view.arms[1].divergence is not None
    assert view.arms[1].divergence.position == 2


def test_hostile_pieces_are_inert_in_the_sentence() -> None:
    view = arms(" a <script>x", " a <img")
    view.update_divergence()
    assert "<script" not in outcome(view)
    assert "<img" not in outcome(view)


def test_a_run_that_falls_silent_says_so_and_recovers() -> None:
    view = RunView("r")
    for _ in range(4):
        view.wait(1.0)
    assert view.note() == "Queued: waiting for a worker."
    for _ in range(8):
        view.wait(1.0)
    assert view.note().startswith("Queued: waiting for a worker. Nothing new for 10 s;")
    view.apply(Event("r", 1, 0, Started("c", "cpu", "float32", (1, 2), 1.0, 0.0)))
    assert view.note() == "Prefill over 2 prompt tokens."
    view.wait(5.0)
    assert "Nothing new for 5 s; should its worker be lost, another goes on from here." in view.note()


def test_a_branchs_passes_went_over_what_it_was_given_too() -> None:
    view = RunView("r", None, fork_position=3)
    view.apply(Event("r", 1, 0, ended(passes=Passes(2, 4, 5))))
    assert "prefill: 2 passes over 5 prompt positions and the tokens that it was given" in view.facts()


def test_a_scored_texts_passes_went_over_it_too() -> None:
    line = cache_line(ended(passes=Passes(2, 0, 5)), None, read_too="the given text")
    assert "prefill: 2 passes over 5 prompt positions and the given text" in line
