"""Influence and cache check in words: every number is that of the answer."""

from app.render.influence import cache_check_words, influence_words
from models.examination import CacheCheck, ControlInfluence, Influence
from models.sampling import NEUTRAL, Settings
from tests.unit.render.plain import plain

SETTINGS = Settings(temperature=0.8, top_p=0.9, min_p=0.01, banned=("<b>",))


def test_each_active_control_has_its_sentence() -> None:
    found = Influence(
        212,
        (
            ControlInfluence("banned", 1, 0),
            ControlInfluence("temperature", 212, 1),
            ControlInfluence("top_p", 31, 4),
            ControlInfluence("min_p", 0, 0),
        ),
    )
    words = plain(influence_words(found, SETTINGS))
    assert "banned 1 acted on 1 of 212 tokens and changed no pick" in words
    assert "temperature 0.8 acted on 212 of 212 tokens and changed 1 pick" in words
    assert "top_p 0.9 acted on 31 of 212 tokens and changed 4 picks" in words
    assert "min_p 0.01 never acted" in words
    assert words.endswith("Without min_p the run is the same, token for token.")


def test_a_scored_text_was_not_picked() -> None:
    found = Influence(10, (ControlInfluence("top_p", 3, 2),))
    words = plain(influence_words(found, SETTINGS, is_scored=True))
    assert "acted on 3 of 10 tokens" in words
    assert "pick" not in words


def test_a_branch_says_how_many_of_its_tokens_it_picked() -> None:
    found = Influence(10, (ControlInfluence("top_p", 9, 1),))
    assert "This branch was given 8 tokens and picked 2." in plain(influence_words(found, SETTINGS, num_given=8))


def test_neutral_settings_have_nothing_to_report() -> None:
    assert "Every control is neutral" in influence_words(Influence(5, ()), NEUTRAL)


def test_a_bar_is_the_share_of_tokens() -> None:
    html = influence_words(Influence(8, (ControlInfluence("top_p", 2, 0),)), SETTINGS)
    assert 'style="width:25.0%"' in html


def test_rounding_is_no_difference_and_more_is_told() -> None:
    rounding = cache_check_words(CacheCheck(60, 60, 3.8e-6, 17, ()), dtype="float32")
    assert 'data-verdict="same"' in rounding
    assert "3.8e-06 nats, at token 17" in plain(rounding)
    assert 'data-goto="17"' in rounding
    far = CacheCheck(60, 60, 0.05, 17, ())
    assert 'data-verdict="far"' in cache_check_words(far, dtype="float32")
    assert 'data-verdict="same"' in cache_check_words(far, dtype="bfloat16")


def test_changed_picks_are_named_and_counted() -> None:
    words = cache_check_words(CacheCheck(400, 256, 1.2, 9, tuple(range(10))), dtype="float32")
    assert 'data-verdict="changed"' in words
    assert "Without the cache 10 picks are another." in plain(words)
    assert "256 of 400 tokens" in plain(words)
    assert plain(words).endswith("token 6, token 7 and 2 more.")
    one = plain(cache_check_words(CacheCheck(4, 4, 1.2, 2, (2,)), dtype="float32"))
    assert "1 pick is another" in one


def test_a_run_without_tokens_has_nothing_to_check() -> None:
    assert "no token" in cache_check_words(CacheCheck(0, 0, 0.0, None, ()), dtype=None)
