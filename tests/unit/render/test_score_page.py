"""A score's figures and the coverage curves: numbers by hand."""

import math
import re
from dataclasses import replace

from app.render.coverage import HEIGHT, WIDTH, Axis, coverage_charts, num_permitted, path
from app.render.score import score_words
from models.events import Candidate, TokenPicked
from models.examination import Coverage, CurvePoint, Reach
from models.sampling import NEUTRAL, Settings
from tests.fakes.scripted_runs import token
from tests.unit.render.plain import plain

REACHES = (
    Reach(0, 9, 1, 0.0, 1.0),
    Reach(1, 9, 3, 0.85, 0.2),
    Reach(2, 9, 40, 0.9, 0.1),
    Reach(3, 9, 4000, 0.995, 0.00001),
    Reach(4, 9, None, None, None),
)


def scored(position: int, raw: float, logprob: float | None, piece: str = " x") -> TokenPicked:
    return token(position, piece, raw_logprob=raw, logprob=logprob)


def test_perplexity_raw_and_processed() -> None:
    html = score_words([scored(0, -1.0, -0.5), scored(1, -3.0, -1.5)], is_greedy=False)
    assert "raw 7.39 −2.000 −4.00" in plain(html)
    assert "processed 2.72 −1.000 −2.00" in plain(html)
    assert f'data-figures="raw" data-perplexity="{math.exp(2.0)!r}"' in html
    assert "permit every token" in html


def test_the_first_impossible_token_is_a_link_with_its_stage() -> None:
    gone = scored(1, -3.0, None, "<b>bold</b>")
    removed = [c if c.token_id != gone.token_id else _without(c) for c in gone.candidates]
    gone = token(1, "<b>bold</b>", raw_logprob=-3.0, logprob=None, candidates=tuple(removed))
    html = score_words([scored(0, -1.0, -0.5), gone, scored(2, -1.0, None)], is_greedy=False)
    assert 'First impossible token, the first of 2: token 1 "<b>bold</b>", removed by top_k.' in plain(html)
    assert 'data-goto="1"' in html
    assert "<b>bold" not in html
    assert "processed infinite −∞ −∞" in plain(html)


def _without(candidate: Candidate) -> Candidate:
    return replace(candidate, logprob=None, removed_by="top_k")


def test_a_text_without_tokens_has_no_figures() -> None:
    assert "no token" in score_words([], is_greedy=False)


def test_how_many_a_value_permits() -> None:
    assert [num_permitted(REACHES, "top_k", k) for k in (1, 2, 3, 40, 5000)] == [1, 1, 2, 3, 4]
    assert [num_permitted(REACHES, "top_p", p) for p in (0.5, 0.85, 0.9, 1.0)] == [1, 2, 3, 4]
    assert [num_permitted(REACHES, "min_p", p) for p in (1.0, 0.2, 0.15, 0.1, 0.0)] == [1, 2, 2, 3, 4]


def test_a_curve_steps_at_its_values() -> None:
    axis = Axis("top_p", lambda p: p, (), ("0", "1"))
    points = (CurvePoint(0.0, 0.25), CurvePoint(0.5, 1.0))
    assert path(axis, points) == f"M0,{HEIGHT}H0.0V{HEIGHT - (HEIGHT - 1) / 4:.1f}H{WIDTH / 2:.1f}V1.0H{WIDTH}"
    assert path(axis, ()) == f"M0,{HEIGHT}H{WIDTH}"


def test_the_runs_own_value_is_told_and_the_rest_in_numbers() -> None:
    html = coverage_charts(Coverage(REACHES), Settings(top_p=0.9, top_k=3))
    words = plain(html)
    assert "top_p 0.9 reaches 3 of 5 tokens" in words
    assert "top_k 3 reaches 2 of 5 tokens" in words
    assert "1 token is impossible before any of them acts" in words
    figure = re.search(r'<figure data-control="min_p">.*?</figure>', html)
    assert figure is not None
    assert "of 5 tokens, min_p 0.5 reaches 1, min_p 0.2 reaches 2, min_p 0.1 reaches 3" in figure[0]
    assert "dl-own-line" not in figure[0]  # it is neutral
    assert 'data-value="0.01"' in figure[0]
    assert html.count("dl-own-line") == 2


def test_every_axis_goes_from_tight_to_loose() -> None:
    html = coverage_charts(Coverage(REACHES), NEUTRAL)
    for d in re.findall(r'<path d="([^"]*)"', html):
        steps = [float(x) for x in re.findall(r"H([0-9.]+)", d)]
        heights = [float(y) for y in re.findall(r"V([0-9.]+)", d)]
        assert steps == sorted(steps)
        assert heights == sorted(heights, reverse=True)


def test_nothing_to_cover_is_no_chart() -> None:
    assert coverage_charts(Coverage(()), NEUTRAL) == ""
