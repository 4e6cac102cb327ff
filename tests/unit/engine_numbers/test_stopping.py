"""The stop scanner against a slow, obvious one, and the precedence of the reasons."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.events import NearMiss, StopReason, StopRecord
from workers.engine.stopping import Decision, Match, StepFacts, StopScanner, decide, interruption

TEXT = st.text("ab", max_size=6)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


def obvious_match(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Earliest beginning, then the longest: by looking everywhere."""
    found = [(i, -len(s), s) for s in stops for i in range(len(text)) if text.startswith(s, i)]
    return (min(found)[0], min(found)[2]) if found else None


def obvious_safe(text: str, stops: list[str]) -> int:
    """All but the longest ending that is a beginning of some stop string."""
    return min(i for i in range(len(text) + 1) if i == len(text) or any(s.startswith(text[i:]) for s in stops))


def obvious_miss(text: str, stop: str) -> int:
    return max(n for n in range(len(stop) + 1) if stop[:n] in text)


@given(st.lists(TEXT, max_size=12), STOPS, st.booleans())
@example(["ab", "a", "b"], ["aba", "ba", "abab"], False)
@example(["abaab"], ["aab", "baab", "b"], True)
def test_scanner_equals_the_obvious_one(pieces: list[str], stops: list[str], include_stop: bool) -> None:
    scanner = StopScanner(stops, include_stop=include_stop)
    text = ""
    for piece in pieces:
        text += piece
        match = scanner.push(piece)
        expected = obvious_match(text, stops)
        if expected is None:
            assert match is None
            assert scanner.num_safe == obvious_safe(text, stops)
            assert {m.stop: m.num_matched for m in scanner.misses()} == {s: obvious_miss(text, s) for s in stops}
            continue
        start, stop = expected
        end = start + len(stop)
        assert match == Match(stop, start, end, end if include_stop else start)
        assert scanner.num_safe == match.cut
        return


@given(st.lists(TEXT, max_size=12), STOPS)
def test_what_was_safe_stays_outside_every_match(pieces: list[str], stops: list[str]) -> None:
    scanner = StopScanner(stops, include_stop=False)
    safe = 0
    for piece in pieces:
        match = scanner.push(piece)
        assert scanner.num_safe >= safe
        safe = scanner.num_safe
        if match:
            assert match.start >= safe
            return


def test_a_stop_string_over_several_tokens_is_never_released() -> None:
    scanner = StopScanner(["DEFGHIJ"], include_stop=False)
    safe = []
    for piece in [" ABC", "DEF", "G", "HI"]:
        assert scanner.push(piece) is None
        safe.append(scanner.num_safe)
    assert safe == [4, 4, 4, 4]
    assert scanner.push("J") == Match("DEFGHIJ", 4, 11, 4)
    assert scanner.num_safe == 4
    assert scanner.misses() == ()


def test_held_text_is_released_when_the_match_fails() -> None:
    scanner = StopScanner(["DEFGHIJ"], include_stop=False)
    for piece in [" ABC", "DEF", "G", "HI", "!"]:
        assert scanner.push(piece) is None
    assert scanner.num_safe == len(" ABCDEFGHI!")
    assert scanner.misses() == (NearMiss("DEFGHIJ", 6, 3),)


def test_the_earliest_beginning_wins_then_the_longer_one() -> None:
    assert StopScanner(["c", "bcd"], include_stop=False).push("abcd") == Match("bcd", 1, 4, 1)
    assert StopScanner(["ab", "abc"], include_stop=False).push("abc") == Match("abc", 0, 3, 0)
    assert StopScanner(["ab", "abc"], include_stop=True).push("abc") == Match("abc", 0, 3, 3)


def test_a_miss_names_the_first_token_that_reached_it_and_none_when_nothing_did() -> None:
    scanner = StopScanner(["###", "zz"], include_stop=False)
    for piece in ["a#", "", "#", "x##"]:
        scanner.push(piece)
    assert scanner.misses() == (NearMiss("###", 2, 2), NearMiss("zz", 0, None))


def test_a_stop_string_that_lost_to_another_has_all_of_its_characters() -> None:
    scanner = StopScanner(["ab", "abc", "cx"], include_stop=False)
    assert scanner.push("xabc") == Match("abc", 1, 4, 1)
    assert scanner.misses() == (NearMiss("ab", 2, 0), NearMiss("cx", 1, 0))


def test_without_stop_strings_everything_is_safe() -> None:
    scanner = StopScanner([], include_stop=False)
    assert scanner.push("abc") is None
    assert scanner.num_safe == 3
    assert scanner.misses() == ()


def facts(**changes: object) -> StepFacts:
    values: dict[str, object] = {
        "num_generated": 3,
        "max_tokens": 10,
        "num_positions": 8,
        "context_length": 100,
        "token_id": 7,
        "end_token_ids": frozenset({1, 2}),
    }
    return StepFacts(**(values | changes))  # type: ignore[arg-type]


MATCH = Match("END", 4, 7, 4)

# Every reason of the loop alone, in the order of precedence.
REASONS: list[tuple[StopReason, dict[str, object]]] = [
    (StopReason.EOS, {"token_id": 2}),
    (StopReason.STOP_TOKEN, {"stop_token_ids": frozenset({2, 7})}),
    (StopReason.STOP_STRING, {"match": MATCH}),
    (StopReason.CONSTRAINT_COMPLETE, {"is_constraint_complete": True}),
    (StopReason.MAX_TOKENS, {"num_generated": 10}),
    (StopReason.CONTEXT_FULL, {"num_positions": 100}),
]


def test_nothing_true_goes_on() -> None:
    assert decide(facts()) is None


@pytest.mark.parametrize(("reason", "changes"), REASONS, ids=[r.value for r, _ in REASONS])
def test_each_reason_alone(reason: StopReason, changes: dict[str, object]) -> None:
    decision = decide(facts(**changes))
    assert decision is not None
    assert decision.reason is reason
    assert decision.also == ()


@pytest.mark.parametrize("first", range(len(REASONS)))
def test_the_earlier_reason_wins_and_the_others_are_recorded(first: int) -> None:
    changes: dict[str, object] = {}
    for _, change in reversed(REASONS[first:]):
        changes |= change
    decision = decide(facts(**changes))
    assert decision is not None
    assert decision.reason is REASONS[first][0]
    assert decision.also == tuple(reason for reason, _ in REASONS[first + 1 :])


def test_an_end_token_on_the_last_allowed_step_is_eos() -> None:
    decision = decide(facts(token_id=1, num_generated=10))
    assert decision == Decision(StopReason.EOS, (StopReason.MAX_TOKENS,), 1, None)


def test_a_stop_string_completed_on_the_last_allowed_step_is_stop_string() -> None:
    decision = decide(facts(match=MATCH, num_generated=10))
    assert decision is not None
    misses = (NearMiss("STOP", 2, 1),)
    assert decision.record(withheld=1, misses=misses) == StopRecord(
        reason=StopReason.STOP_STRING,
        matched="END",
        token_id=None,
        span=(4, 7),
        withheld=1,
        also=(StopReason.MAX_TOKENS,),
        misses=misses,
    )


def test_ignore_eos_lets_the_end_token_pass_but_not_the_callers_stop_token() -> None:
    assert decide(facts(token_id=1, ignore_eos=True)) is None
    decision = decide(facts(token_id=1, ignore_eos=True, stop_token_ids=frozenset({1})))
    assert decision == Decision(StopReason.STOP_TOKEN, (), 1, None)


def test_an_end_token_that_is_also_a_stop_token_is_eos_and_says_so() -> None:
    decision = decide(facts(token_id=2, stop_token_ids=frozenset({2})))
    assert decision == Decision(StopReason.EOS, (StopReason.STOP_TOKEN,), 2, None)


def test_of_several_interruptions_the_earlier_one_in_the_list_ends_the_run() -> None:
    outside = [StopReason.CANCELLED, StopReason.TIME_LIMIT, StopReason.WORKER_LOST, StopReason.ERROR_NUMERICAL]
    assert interruption({StopReason.CANCELLED}) == Decision(StopReason.CANCELLED, (), None, None)
    assert interruption(outside[::-1]) == Decision(StopReason.CANCELLED, tuple(outside[1:]), None, None)


def test_max_tokens_zero_ends_before_the_first_token() -> None:
    decision = decide(facts(token_id=None, num_generated=0, max_tokens=0))
    assert decision is not None
    assert decision.reason is StopReason.MAX_TOKENS


def test_the_record_of_an_error_carries_its_sentence() -> None:
    decision = interruption({StopReason.ERROR_NUMERICAL})
    assert decision.record(message="the logits held NaN").message == "the logits held NaN"
