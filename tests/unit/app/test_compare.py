"""Where two arms part, and their figures: numbers worked by hand."""

import math

import pytest

from app.compare import Divergence, Figures, distinct_n, explain, figures, first_divergence
from models.events import TokenPicked
from tests.unit.app.runs import candidate, token

IT, THE = 5, 9


def a_tokens():
    """Arm A, cold: its settings all but decide for " It"; the noise favours " The" by 1.2."""
    rivals = (
        candidate(IT, math.log(0.61), math.log(0.994), piece=" It", noise=0.3),
        candidate(THE, math.log(0.22), math.log(0.006), piece=" The", noise=1.5),
    )
    return [token(0, 1), token(1, 2), token(2, IT, text=" It", candidates=rivals)]


def b_tokens():
    """Arm B, neutral: processed equals raw, so the noise decides for " The"."""
    rivals = (
        candidate(IT, math.log(0.61), math.log(0.61), piece=" It", noise=0.3),
        candidate(THE, math.log(0.22), math.log(0.22), piece=" The", noise=1.5),
    )
    return [token(0, 1), token(1, 2), token(2, THE, text=" The", candidates=rivals), token(3, 4)]


def test_divergence_holds_both_rivals_as_both_arms_saw_them() -> None:
    found = first_divergence(a_tokens(), b_tokens())
    assert isinstance(found, Divergence)
    assert found.position == 2
    assert found.a is not None
    assert found.b is not None
    assert (found.a.pick.token_id, found.a.other.token_id) == (IT, THE)
    assert (found.b.pick.token_id, found.b.other.token_id) == (THE, IT)
    assert found.a.pick.logprob == pytest.approx(math.log(0.994))
    assert found.b.other.logprob == pytest.approx(math.log(0.61))
    assert found.noise_difference == pytest.approx(1.2)


def test_explanation_is_the_sentence_of_the_page() -> None:
    found = first_divergence(a_tokens(), b_tokens())
    assert found is not None
    assert explain(found, a="A", b="C") == (
        'Token 2: raw: " It" 61 %, " The" 22 %. A: 99.4 % and 0.6 %, picked " It". '
        'C: 61 % and 22 %, picked " The". The shared noise favours " The" by 1.2 nats, '
        'which A outweighs: there " It" leads by 5.1 nats, in C by 1.0.'
    )
    turned = first_divergence(b_tokens(), a_tokens())
    assert turned is not None
    assert explain(turned, a="C", b="A").endswith(
        'favours " The" by 1.2 nats, which A outweighs: there " It" leads by 5.1 nats, in C by 1.0.'
    )


def weighed(left: tuple[float | None, ...], right: tuple[float | None, ...], **changes: float | None) -> str:
    """What the sentence ends with for two arms' processed log-probabilities of x and y; the noise favours y by 2."""
    noise = {"x": 0.0, "y": 2.0}

    def arm(pick: int, values: tuple[float | None, ...], noise: dict[str, float | None]) -> list[TokenPicked]:
        rivals = [
            candidate(i, -1.0, v, piece=n, noise=noise[n], removed_by=None if v is not None else "top_k")
            for i, n, v in zip((IT, THE), "xy", values, strict=True)
        ]
        return [token(0, pick, text="x" if pick == IT else "y", candidates=tuple(rivals))]

    found = first_divergence(arm(IT, left, {**noise, **changes}), arm(THE, right, dict(noise)))
    assert found is not None
    return explain(found).split('picked "y". ')[1]


def test_what_the_noise_met_in_each_arm() -> None:
    favours = 'The shared noise favours "y" by 2.0 nats'
    assert weighed((-0.1, -4.1), (-2.0, -0.2)) == (
        f'{favours}, which A outweighs: there "x" leads by 4.0 nats, in B "y" leads anyway.'
    )
    assert weighed((0.0, None), (-0.5, -1.0)) == f'{favours}, but in A "y" is removed by top_k.'
    assert weighed((0.0, -5.0), (None, 0.0)) == (
        f'{favours}, which A outweighs: there "x" leads by 5.0 nats, in B "x" is removed by top_k.'
    )
    assert weighed((-0.4, -1.4), (-0.4, -1.4), x=None, y=None) == f"{favours}, but A draws nothing and takes the best."


def test_a_tiny_share_is_no_row_of_digits() -> None:
    rivals = (candidate(IT, -0.1, 0.0, piece="x"), candidate(THE, -24.7, -24.7, piece="y"))
    left = [token(0, IT, candidates=rivals)]
    right = [token(0, THE, candidates=(candidate(IT, -0.1, -0.1), candidate(THE, -24.7, -2.3, piece="y")))]
    found = first_divergence(left, right)
    assert found is not None
    assert '"y" <0.01 %. A: 100 % and <0.01 %' in explain(found)


def test_a_removed_rival_names_its_stage() -> None:
    rivals = (candidate(IT, -0.1, 0.0, piece="x"), candidate(THE, -2.3, None, piece="y", removed_by="top_p"))
    left = [token(0, IT, candidates=rivals)]
    right = [token(0, THE, candidates=(candidate(IT, -0.1, -0.1), candidate(THE, -2.3, -2.3, piece="y")))]
    found = first_divergence(left, right)
    assert found is not None
    assert found.a is not None
    assert found.a.other.removed_by == "top_p"
    assert "removed by top_p" in explain(found)
    assert found.noise_difference is None


def test_a_rival_that_the_ledger_lacks_is_not_invented() -> None:
    found = first_divergence([token(0, IT, candidates=())], [token(0, THE, candidates=())])
    assert found is not None
    assert found.a is not None
    assert found.a.pick.is_known
    assert not found.a.other.is_known
    assert found.a.other.logprob is None


def test_noise_that_is_not_shared_has_no_difference() -> None:
    def arm(pick: int, noise: float):
        rivals = (candidate(IT, -1.0, -1.0, noise=noise), candidate(THE, -1.0, -1.0, noise=0.0))
        return [token(0, pick, candidates=rivals)]

    found = first_divergence(arm(IT, 2.0), arm(THE, -2.0))
    assert found is not None
    assert found.noise_difference is None


def test_equal_arms_do_not_part_and_a_shorter_one_ends() -> None:
    assert first_divergence(a_tokens(), a_tokens()) is None
    assert first_divergence([], []) is None
    found = first_divergence(a_tokens()[:2], a_tokens())
    assert found is not None
    assert (found.position, found.a) == (2, None)
    assert found.b is not None
    assert found.b.pick.token_id == IT
    assert explain(found) == "A ended after 2 tokens; B goes on."


def test_figures_by_hand() -> None:
    tokens = [token(0, 1, raw_logprob=-1.0, logprob=-0.5), token(1, 2, raw_logprob=-3.0, logprob=-1.5), token(2, 1)]
    assert figures(tokens) == Figures(
        num_tokens=3,
        mean_logprob=pytest.approx(-1.5),
        mean_logprob_processed=pytest.approx(-0.75),
        perplexity=pytest.approx(math.exp(1.5)),
        perplexity_processed=pytest.approx(math.exp(0.75)),
        distinct={1: pytest.approx(2 / 3), 2: 1.0, 3: 1.0},
    )


def test_figures_of_nothing_are_none() -> None:
    assert figures([]) == Figures(0, None, None, None, None, {1: None, 2: None, 3: None})


@pytest.mark.parametrize(
    ("ids", "n", "share"), [([1, 1, 1, 1], 1, 0.25), ([1, 2, 1, 2], 2, 2 / 3), ([1], 2, None), ([], 1, None)]
)
def test_distinct_n(ids: list[int], n: int, share: float | None) -> None:
    assert distinct_n(ids, n) == (None if share is None else pytest.approx(share))


def test_a_perplexity_beyond_a_float_is_none() -> None:
    values = figures([token(0, 5, raw_logprob=-800.0)])
    assert (values.mean_logprob, values.perplexity) == (-800.0, None)


def test_white_space_is_spelled_in_the_reason() -> None:
    """A line break and a space look the same on a page."""
    rivals = (candidate(IT, -0.1, 0.0, piece="\n"), candidate(THE, -2.3, -2.3, piece=" "))
    left = [token(0, IT, text="\n", candidates=rivals)]
    right = [token(0, THE, text=" ", candidates=rivals)]
    found = first_divergence(left, right)
    assert isinstance(found, Divergence)
    words = explain(found)
    assert words.startswith('Token 0: raw: "\\n" 90.5 %, " " 10 %.')
