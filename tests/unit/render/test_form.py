"""Text of the controls to settings and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pages.controls import arms_component, settings_component
from app.render.controls import CONTROLS
from app.render.form import changed_words, differing_words, form_of, neutral_text, settings_of
from models.constraint import Constraint
from models.errors import SettingError
from models.sampling import DEFAULT_ORDER, NEUTRAL, Scope, Settings


def test_every_setting_has_its_control_and_every_control_its_setting() -> None:
    assert set(CONTROLS) == set(Settings.model_fields)


def test_an_empty_form_is_neutral() -> None:
    assert settings_of({}) == NEUTRAL
    assert settings_of(dict.fromkeys(CONTROLS, "")) == NEUTRAL
    assert settings_of({field: neutral_text(field) for field in CONTROLS}) == NEUTRAL


@pytest.mark.parametrize(("text", "value"), [("false", False), ("true", True), ("never", "never"), ("", False)])
def test_the_ways_to_stop_a_search_early(text: str, value: object) -> None:
    settings = settings_of({"early_stopping": text, "num_beams": "4", "length_penalty": "−1"})
    assert (settings.early_stopping, settings.num_beams, settings.length_penalty) == (value, 4, -1.0)
    assert settings_of(form_of(settings)) == settings


def test_a_full_form() -> None:
    settings = settings_of(
        {
            "temperature": "0.8",
            "top_k": "40",
            "presence_penalty": "−0.5",
            "repetition_scope": "output",
            "logit_bias": "42: -1.5\n7:2",
            "banned": '13\n" the"',
            "stop": "\\n\\n\nEND",
            "stop_token_ids": "2\n3",
            "ignore_eos": "on",
            "seed": str(2**64 - 1),
        }
    )
    assert settings.temperature == 0.8
    assert settings.presence_penalty == -0.5
    assert settings.repetition_scope is Scope.OUTPUT
    assert settings.logit_bias == {42: -1.5, 7: 2.0}
    assert settings.banned == (13, " the")
    assert settings.stop == ("\n\n", "END")
    assert settings.stop_token_ids == (2, 3)
    assert settings.ignore_eos is True
    assert settings.seed == 2**64 - 1


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("temperature", "warm"),
        ("temperature", "101"),
        ("temperature", "nan"),
        ("top_k", "2.5"),
        ("top_k", "-1"),
        ("top_p", "0"),
        ("min_p", "1.5"),
        ("repetition_penalty", "0"),
        ("frequency_penalty", "3"),
        ("max_tokens", "1e9"),
        ("logit_bias", "42 = 1"),
        ("logit_bias", "x: 1"),
        ("stop_token_ids", "two"),
        ("banned", '"\\x"'),
        ("order", "top_k top_p"),
        ("seed", "-1"),
        ("constraint", "yes or no"),
        ("constraint", '{"choices": ["yes"]}'),
        ("constraint", '{"regex": "a", "regex": "b"}'),
        ("repetition_scope", "prompt"),
    ],
)
def test_a_wrong_text_is_refused_by_name(field: str, text: str) -> None:
    with pytest.raises(SettingError) as caught:
        settings_of({field: text})
    assert caught.value.field == field


def test_an_unknown_control_is_refused() -> None:
    with pytest.raises(SettingError, match="warmth"):
        settings_of({"warmth": "1"})


@given(
    st.builds(
        Settings,
        temperature=st.floats(0, 100, exclude_min=True),  # with 0 not every order is allowed
        top_p=st.floats(0.001, 1),
        top_k=st.integers(0, 10**6),
        stop=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=4).map(
            tuple
        ),
        banned=st.lists(
            st.one_of(st.integers(0, 10**5), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)),
            max_size=4,
        ).map(tuple),
        logit_bias=st.dictionaries(st.integers(0, 10**5), st.floats(-100, 100), max_size=4),
        order=st.permutations(DEFAULT_ORDER).map(tuple),
        seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
        ignore_eos=st.booleans(),
        constraint=st.sampled_from(
            [
                None,
                Constraint(choice=("yes\n", "nö")),
                Constraint(regex="a b"),
                Constraint(json_schema={"const": " \n"}),
                Constraint(json_schema=True),
            ]
        ),
    )
)
def test_a_form_gives_its_settings_back(settings: Settings) -> None:
    assert settings_of(form_of(settings)) == settings


def test_the_lowest_temperature_comes_back() -> None:
    assert settings_of(form_of(Settings(temperature=0.0))) == Settings(temperature=0.0)


def test_changed_words() -> None:
    assert changed_words(NEUTRAL.changed()) == ""
    settings = Settings(temperature=0.2, stop=("a", "b"), ignore_eos=True, max_tokens=5, seed=3)
    settings = settings.with_changes(constraint={"regex": "a+"})
    assert changed_words(settings.changed()) == "temperature 0.2, constraint regex, stop 2, ignore_eos on"


def test_differing_words() -> None:
    cold = Settings(temperature=0.2, seed=1, stop=("a",))
    warm = Settings(temperature=0.7, top_p=0.9, ignore_eos=True, seed=2, stop=("b",))
    assert differing_words(warm, cold) == (
        "temperature 0.7 instead of 0.2, top_p 0.9 instead of off, another stop, ignore_eos on instead of off"
    )
    assert differing_words(cold, cold.with_changes(seed=2)) == ""
    near = cold.with_changes(temperature=0.2000001)
    assert differing_words(near, cold) == "temperature 0.2000001 instead of 0.2"
    assert differing_words(NEUTRAL, cold.with_changes(max_tokens=9, stop=())) == (
        "temperature 1 instead of 0.2, max_tokens 128 instead of 9"
    )


def test_the_panels_are_plain_html() -> None:
    for component in (settings_component(), arms_component([{}, {}])):
        assert all(mark not in component.html_template for mark in ("${", "{{", "`", "\\"))
