"""What the page says of a comparison, and draws: its numbers are those of the runs."""

import math
import re

import pytest

from app.compare import figures
from app.render.arms import Plan, planned_view
from app.render.charts import charts, figure_chart, stop_chart
from app.render.comparison import CompareView
from app.render.measures import MEASURES
from app.render.outcome import outcome, table
from models.events import Event, StopReason, StopRecord, TokenPicked
from models.sampling import Settings
from tests.unit.app.runs import ended, events, token

COUNTED = {m.key: m for m in MEASURES}


def said(num_tokens: int, *, first: int = 0, raw: float = -0.5) -> list[TokenPicked]:
    return [token(i, first + i, raw_logprob=raw) for i in range(num_tokens)]


def view_of(
    *arms: list[list[TokenPicked]], has_again: bool = False, reasons: tuple[StopReason, ...] = ()
) -> CompareView:
    """A settled view of arms whose seeds said these tokens; `reasons` ended the seeds of every arm."""
    plan = Plan([Settings(top_k=i) for i in range(len(arms))], len(arms[0]), has_again)
    view = planned_view("e", [f"{i}/{s}" for i, arm in enumerate(arms) for s in range(len(arm))], plan)
    for arm, seeds in zip(view.arms, arms, strict=True):
        for s, (run, tokens) in enumerate(zip(arm.runs.values(), seeds, strict=True)):
            for event in events(run.run_id, tokens, reasons[s] if reasons else StopReason.EOS):
                run.apply(event)
    view.settle()
    return view


def values_in(html: str) -> list[float]:
    return [float(text) for text in re.findall(r'data-value="([^"]+)"', html)]


def test_the_table_has_the_figures_of_the_runs() -> None:
    left, right = said(4, raw=-0.25), said(3, first=7, raw=-1.5)
    shown = values_in(table(view_of([left], [right])))
    for tokens, values in ((left, shown[:5]), (right, shown[5:])):
        found = figures(tokens)
        assert values == [found.num_tokens, found.mean_logprob, found.perplexity, found.distinct[2], 20.0]


def test_over_several_seeds_the_table_has_means_with_half_an_interval() -> None:
    # 1, 2, 3, 4 tokens: mean 2.5, half of the interval 2.05426 (worked in test_verdicts)
    html = table(view_of([said(n) for n in (1, 2, 3, 4)], [said(n) for n in (1, 2, 3, 4)]))
    assert '<td class="dl-num" data-value="2.5">2.5 <span class="dl-soft">± 2.1</span></td>' in html
    assert "4 seeds an arm" in html
    assert "end token 4" in html


def test_a_run_that_failed_is_no_sample() -> None:
    seeds = [said(n) for n in (2, 3, 40)]
    view = view_of(seeds, seeds, reasons=(StopReason.EOS, StopReason.MAX_TOKENS, StopReason.WORKER_LOST))
    assert values_in(table(view))[0] == 2.5
    assert "end token 1, max_tokens 1, worker lost 1" in table(view)


def test_arms_that_do_not_differ_are_not_distinguishable() -> None:
    base = [said(n) for n in (10, 12, 14, 16)]
    arm = [said(n) for n in (11, 11, 15, 15)]
    words = outcome(view_of(base, arm, arm, has_again=True))
    assert "<b>B</b> and A are not distinguishable at n = 4: tokens" in words
    assert "<b>A</b> against itself with other noise: not distinguishable at n = 4, as it should be: tokens" in words
    assert "The texts are those of the first seed." in words


def test_arms_that_differ_say_in_what_and_by_how_much() -> None:
    base = [said(n) for n in (10, 12, 14, 16, 18, 20)]
    arm = [said(n) for n in (15, 17, 19, 22, 23, 25)]  # 5, 5, 5, 6, 5, 5: mean 31 / 6
    words = outcome(view_of(base, arm))
    assert "<b>B</b> and A differ at n = 6: tokens" in words
    assert values_in(words)[0] == pytest.approx(31 / 6)
    assert "Not distinguishable: mean raw logprob" in words


def test_an_a_a_pair_that_differs_warns() -> None:
    base, again = [said(n) for n in range(10, 18)], [said(n) for n in range(20, 28)]
    words = outcome(view_of(base, base, again, has_again=True))
    assert "against itself with other noise: differs at n = 8, tokens" in words
    assert "take more seeds" in words


def test_one_pair_is_no_verdict() -> None:
    view = view_of([said(3), said(3)], [said(3), said(4)])
    view.arms[1].others[1].ended = None
    view.settle()
    assert "there is no verdict" in outcome(view)


def test_few_arms_have_a_sentence_each_and_many_the_first() -> None:
    arms = [[said(9, first=100 * i)] for i in range(4)]
    assert outcome(view_of(*arms)).count("leaves A.") == 3
    late = [*said(5), token(5, 999)]
    many = outcome(view_of([said(9)], [said(9)], [late], [[*said(3), token(3, 998)]], [said(9)]))
    assert "2 of 4 arms leave A." in many
    assert "<b>D</b>, with top_k 3 instead of off, is the first that leaves A. Token 3" in many
    assert many.count('class="dl-divergence"') == 1
    assert "All 5 arms are the same, token for token." in outcome(view_of(*[[said(4)]] * 5))


def test_another_baseline_is_compared_anew() -> None:
    view = view_of([said(9)], [[*said(3), token(3, 998)]], [[*said(3), token(3, 998), token(4, 997)]])
    assert [c["divergence"] for c in view.columns()["arms"]] == [3, 3, 3]
    view.asked_baseline = 1
    view.settle()
    assert view.baseline == 0, "whoever settles it is asked first"
    view.take_asked_baseline()
    view.settle()
    assert [c["divergence"] for c in view.columns()["arms"]] == [3, 3, 4]
    assert "<b>A</b>, with top_k off instead of 1, leaves B. Token 3" in outcome(view)
    assert "<b>C</b>, with top_k 2 instead of 1, leaves B. B ended after 4 tokens; C goes on." in outcome(view)
    assert view.columns()["arms"][2]["changes"] == [[4, 4, 4, 5]]


def test_progress_counts_every_run() -> None:
    plan = Plan([Settings(), Settings()], 2, has_again=False)
    view = planned_view("e", ["a", "b", "c", "d"], plan)
    runs = list(view.runs())
    for event in events("a", said(2)):
        runs[0].apply(event)
    runs[1].apply(events("b", [])[0])
    assert view.progress() == {"words": "1 of 4 runs ended, 1 running, 2 waiting", "ended": 1, "total": 4}


@pytest.mark.parametrize("key", ["tokens", "mean_logprob", "perplexity", "distinct_2"])
def test_a_chart_has_the_numbers_of_the_table(key: str) -> None:
    view = view_of([said(4, raw=-0.25)], [said(3, first=7, raw=-1.5)])
    drawn = values_in(figure_chart(view.arms, COUNTED[key]))
    assert drawn == [arm.measured[0][key] for arm in view.arms]


def test_a_bar_is_as_long_as_its_number() -> None:
    html = figure_chart(view_of([said(4)], [said(8)], [said(2)]).arms, COUNTED["tokens"])
    widths = [float(w) for w in re.findall(r'dl-bar-mean" x="3" y="2" width="([\d.]+)"', html)]
    assert [w / widths[1] for w in widths] == pytest.approx([0.5, 1.0, 0.25])


def test_log_probabilities_are_drawn_by_their_size() -> None:
    html = figure_chart(view_of([said(4, raw=-0.5)], [said(4, raw=-2.0)]).arms, COUNTED["mean_logprob"])
    widths = [float(w) for w in re.findall(r'dl-bar-mean" x="3" y="2" width="([\d.]+)"', html)]
    assert widths[0] / widths[1] == pytest.approx(0.25)


def test_an_interval_is_drawn_where_its_numbers_are() -> None:
    html = figure_chart(
        view_of([said(n) for n in (1, 2, 3, 4)], [said(9), said(9), said(9), said(9)]).arms, COUNTED["tokens"]
    )
    low, high = 2.5 - 2.054260, 9.0  # the scale: the lowest end of an interval to the largest value
    at = [3 + 194 * (n - low) / (high - low) for n in (1, 2, 3, 4)]
    dots = [float(x) + 0.75 for x in re.findall(r'dl-dot" x="([\d.]+)"', html)]
    assert dots[:4] == pytest.approx(at, abs=0.01)
    assert "<small>0.4 to 9</small>" in html


def test_the_stop_mix_is_drawn_in_shares() -> None:
    seeds = [said(2)] * 4
    reasons = (StopReason.EOS, StopReason.EOS, StopReason.EOS, StopReason.MAX_TOKENS)
    html = stop_chart(view_of(seeds, seeds, reasons=reasons).arms)
    assert html.count("<td>end token 3, max_tokens 1</td>") == 2
    widths = [float(w) for w in re.findall(r'width="([\d.]+)"', html)]
    assert widths[0] == pytest.approx(3 * widths[1])


def test_nothing_is_drawn_before_the_first_token() -> None:
    view = planned_view("e", ["a", "b"], Plan([Settings(), Settings()], 1, has_again=False))
    view.settle()
    assert charts(view) == ""


def test_hostile_settings_are_inert() -> None:
    view = planned_view("e", ["a", "b"], Plan([Settings(), Settings()], 1, has_again=False))
    for run in view.runs():
        hostile = StopRecord(StopReason.STOP_STRING, matched="<img>")
        run.apply(Event(run.run_id, 1, 0, token(0, 5, text="<script>")))
        run.apply(Event(run.run_id, 1, 1, ended(1, StopReason.STOP_STRING, matched=hostile.matched)))
    view.arms[1].view.tokens[0] = token(0, 6, text="<img src=x>")
    view.arms[1].label = "<b>label"
    view.settle()
    html = outcome(view) + charts(view)
    assert "<script" not in html
    assert "<img" not in html
    assert "<b>label" not in html
    assert not math.isnan(values_in(html)[0])
