"""Questions and answers: strict JSON and back, errors of the tree as they are, and the curves by hand."""

import json

import pytest

from models.errors import (
    ConstraintError,
    DecodeLabError,
    LimitError,
    NotFoundError,
    SettingError,
    UnknownCheckpointError,
)
from models.events import StopReason
from models.examination import (
    Alternative,
    Answer,
    Asked,
    CacheCheck,
    ControlInfluence,
    Coverage,
    CurvePoint,
    FirstDifference,
    Influence,
    Question,
    Reach,
    WhatIf,
    decode,
    encode,
    error_of,
)
from models.sampling import Settings

ANSWERS: list[Answer] = [
    Influence(3, (ControlInfluence("top_p", 2, 1), ControlInfluence("min_p", 0, 0))),
    WhatIf(
        (Alternative(0, 5, -0.25, 5), Alternative(1, 6, None, 7)), FirstDifference(1, 6, None, StopReason.MAX_TOKENS)
    ),
    WhatIf((), None),
    Coverage((Reach(0, 5, 1, 0.0, 1.0), Reach(1, 6, None, None, None))),
    CacheCheck(2, 2, 1.5e-06, 1, (0, 1)),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_comes_back_equal(answer: Answer) -> None:
    data = encode(answer)
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert decode(data, type(answer)) == answer


@pytest.mark.parametrize(
    "error", [LimitError("too many", field="text"), ConstraintError("no way on"), NotFoundError("none", field="id")]
)
def test_an_error_comes_back_as_itself(error: DecodeLabError) -> None:
    with pytest.raises(type(error)) as caught:
        decode(encode(error), Influence)
    assert (type(caught.value), caught.value.message, caught.value.field) == (type(error), error.message, error.field)


def test_a_code_of_several_or_of_none_is_the_base() -> None:
    assert type(error_of({"code": "internal", "message": "m"})) is DecodeLabError
    assert type(error_of({"code": "of tomorrow", "message": "m"})) is DecodeLabError
    assert type(error_of({"code": "unknown_checkpoint", "message": "m"})) is UnknownCheckpointError


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"answer": 3}', b'{"answer": {"num_positions": "x"}}'])
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever library finds it first
        decode(data, Influence)


def test_a_question_comes_back_with_its_settings() -> None:
    own, other = Settings(seed=1), Settings(seed=1, temperature=0.5)
    asked = Asked("r", Question.WHAT_IF, other.as_dict())
    assert Asked.parse(json.loads(json.dumps(asked.as_dict()))) == asked
    assert asked.settings_or(own) == other
    assert Asked("r", Question.COVERAGE).settings_or(own) is own
    with pytest.raises(SettingError, match="temperature"):
        Asked("r", Question.WHAT_IF, {"temperature": -1}).settings_or(own)
    with pytest.raises(ValueError, match="question"):
        Asked.parse({"run_id": "r", "question": "what else"})


def test_curves_by_hand() -> None:
    """Four tokens: limits of top_k 1, 3, 3 and none, of min_p 0.5, 0.1, 0 and none."""
    coverage = Coverage(
        (
            Reach(0, 9, 1, 0.0, 0.5),
            Reach(1, 9, 3, 0.75, 0.1),
            Reach(2, 9, 3, 0.5, 0.0),
            Reach(3, 9, None, None, None),
        )
    )
    assert coverage.top_k_curve == (CurvePoint(1, 0.25), CurvePoint(3, 0.75))
    assert coverage.top_p_curve == (CurvePoint(0.0, 0.25), CurvePoint(0.5, 0.5), CurvePoint(0.75, 0.75))
    assert coverage.min_p_curve == (CurvePoint(0.5, 0.25), CurvePoint(0.1, 0.5), CurvePoint(0.0, 0.75))
    assert Coverage(()).top_k_curve == ()
