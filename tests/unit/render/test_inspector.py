"""The inspector's table: every number is the stored one, every name is inert."""

import re
from dataclasses import replace

from app.render.inspector import inspector
from models.events import Candidate, Others, TokenPicked
from tests.fakes.scripted_runs import token


def small(**changes: object) -> TokenPicked:
    candidates = (
        Candidate(7, " Paris", -0.257, -0.1, None, 0.0, 0.5),
        Candidate(8, "<b>", -2.7, None, "top_p", 0.0, -0.25),
        Candidate(9, "", None, None, None, 0.0, None),
    )
    values: dict[str, object] = {
        "candidates": candidates,
        "token_id": 7,
        "others": Others(0.16, 0.0),
        "kept": {"top_p": 14},
        "removed_mass": {"top_p": 0.05},
    }
    return token(2, " Paris", **{**values, **changes})


def test_rows_carry_the_stored_numbers() -> None:
    html = inspector(small())
    assert re.findall(r'data-raw="([^"]*)"', html) == ["-0.257", "-2.7", ""]
    assert re.findall(r'data-processed="([^"]*)"', html) == ["-0.1"]
    assert re.findall(r'data-token-id="(\d+)"', html) == ["7", "8", "9"]


def test_removed_and_impossible_and_others() -> None:
    html = inspector(small())
    assert "removed by top_p" in html
    assert ">impossible<" in html
    assert 'data-raw-mass="0.16"' in html
    assert "16.0 %" in html


def test_pieces_are_inert() -> None:
    html = inspector(small(piece="<script>"))
    assert "<script" not in html
    assert "&lt;b&gt;" in html


def test_kept_counts_with_the_mass_that_went() -> None:
    assert "top_p kept 14 (removed 5.0 % raw)" in inspector(small())


def test_the_picked_row_is_marked_once() -> None:
    assert inspector(small()).count('class="dl-picked"') == 1


def test_a_part_of_a_character_shows_its_bytes() -> None:
    html = inspector(small(piece="", text="", token_bytes=b"\xf0\x9f"))
    assert "f0 9f" in html
    assert "a part of a character" in html


def test_rank_names_the_vocabulary() -> None:
    assert "rank 2 of 49,152" in inspector(small(rank=2), vocab_size=49_152)


def test_noise_and_score_say_why_the_picked_one_won() -> None:
    html = inspector(small())
    assert re.findall(r'data-noise="([^"]*)"', html) == ["0.5", "-0.25", ""]
    assert re.findall(r'data-score="([^"]*)"', html) == ["0.4", "", ""]
    assert ">+0.50<" in html
    assert ">+0.40<" in html
    assert "picked for the largest score" in html


def test_without_a_draw_there_is_no_noise_to_show() -> None:
    greedy = (Candidate(7, " Paris", -0.257, -0.257, None, 0.0, None), Candidate(8, " a", -2.7, -2.7, None, 0.0, None))
    html = inspector(small(candidates=greedy))
    assert "data-noise" not in html
    assert "<th" in html
    assert "score" not in html
    assert "nothing is drawn: the best is taken" in html


def test_a_beam_searchs_token_need_not_be_the_best_of_its_position() -> None:
    greedy = (Candidate(8, " a", -0.2, -0.2, None, 0.0, None), Candidate(7, " Paris", -2.7, -2.7, None, 0.0, None))
    html = inspector(small(candidates=greedy, rank_processed=2))
    assert "nothing is drawn: the best text of a beam search has it" in html


def test_a_removed_candidate_keeps_its_raw_bar() -> None:
    rows = inspector(small()).split("<tr")
    removed = next(row for row in rows if "removed by top_p" in row)
    assert "dl-bar-raw" in removed
    assert "dl-bar-processed" not in removed


def test_a_given_token_is_not_said_to_be_picked() -> None:
    assert "picked for the largest score" in inspector(small())
    better = Candidate(8, "<b>", -2.7, -0.2, None, 0.0, 3.0)
    html = inspector(small(candidates=(small().candidates[0], better)))
    assert "given: <q" in html
    assert "&lt;b&gt;</q> has the largest score" in html
    assert "never pick it" in inspector(small(logprob=None))


def test_penalties_name_their_places_and_rivals_their_branches() -> None:
    plain = token(3, " a")
    causes = replace(plain.candidates[1], penalty=-0.75, num_causes=11, causes=(4, 6, 9, 12, 13, 15, 20, 21))
    banned = replace(plain.candidates[2], logprob=None, removed_by="constraint")
    html = inspector(replace(plain, candidates=(plain.candidates[0], causes, banned, *plain.candidates[3:])))
    assert "−0.750</b> · seen 11 times: 3 earlier, then 4, 6, 9, 12, 13, 15, 20, 21" in html
    assert "data-branch" not in html
    assert "data-continue" not in html
    html = inspector(
        replace(plain, candidates=(plain.candidates[0], causes, banned, *plain.candidates[3:])), can_branch=True
    )
    offered = [int(part.split('"')[0]) for part in html.split('data-branch="')[1:]]
    others = [c.token_id for c in plain.candidates if c.token_id != plain.token_id]
    assert offered == [i for i in others if i != banned.token_id]
    assert html.count("data-continue") == 1
