"""What settings refuse when they come as JSON text: each refusal names the field, whatever the text is."""

import json

import orjson
import pytest

from models.errors import SettingError
from models.sampling import MAX_COUNT, Settings

_NUMBERS = [name for name, field in Settings.model_fields.items() if field.annotation in (float, int, int | None)]
_COUNTS = ["top_k", "no_repeat_ngram_size", "min_tokens"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", _NUMBERS)
def test_a_number_that_is_none_is_refused_by_the_name_of_its_field(field: str, literal: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.parse_json(f'{{"{field}": {literal}}}')
    assert refused.value.field == field


@pytest.mark.parametrize("text", ['{"logit_bias": {"7": NaN}}', '{"logit_bias": {"7": -Infinity}}'])
def test_a_bias_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="logit_bias") as refused:
        Settings.parse_json(text)
    assert refused.value.field == "logit_bias"


@pytest.mark.parametrize("field", _COUNTS)
def test_a_count_that_strict_json_readers_cannot_hold_is_refused(field: str) -> None:
    settings = Settings.parse({field: MAX_COUNT})
    assert orjson.loads(orjson.dumps(settings.as_dict()))[field] == MAX_COUNT
    with pytest.raises(SettingError) as refused:
        Settings.parse({field: MAX_COUNT + 1})
    assert refused.value.field == field


@pytest.mark.parametrize("field", ["stop_token_ids", "banned", "logit_bias"])
def test_a_token_id_that_strict_json_readers_cannot_hold_is_refused(field: str) -> None:
    value = {str(2**64): 1.0} if field == "logit_bias" else [2**64]
    with pytest.raises(SettingError) as refused:
        Settings.parse({field: value})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"stop": ' + "[" * 100_000, '{"top_k": ' + "9" * 5000 + "}", "", "nul", '{"top_k": 1,}']
)
def test_a_text_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.parse_json(text)
    assert refused.value.field == "settings"
    assert len(refused.value.message) < 200


def test_a_field_that_is_given_twice_is_refused() -> None:
    with pytest.raises(SettingError, match="twice") as refused:
        Settings.parse_json('{"temperature": 0, "top_k": 3, "temperature": 1}')
    assert refused.value.field == "temperature"


def test_a_token_that_is_biased_twice_is_refused() -> None:
    for text in ('{"logit_bias": {"42": 1, "042": 2}}', '{"logit_bias": {"42": 1, "42": 2}}'):
        with pytest.raises(SettingError) as refused:
            Settings.parse_json(text)
        assert refused.value.field in ("logit_bias", "42")


def test_what_is_accepted_comes_back_from_its_own_json() -> None:
    settings = Settings.parse({"seed": 2**64 - 1, "top_k": MAX_COUNT, "logit_bias": {"3": -100}, "banned": [1, "a"]})
    assert Settings.parse_json(json.dumps(settings.as_dict())) == settings


@pytest.mark.parametrize(
    "values", [{"\ud800": 1}, {"stop": ["a\ud800"]}, {"banned": ["\ud800"]}, {"order": ["\ud800"]}]
)
def test_a_refusal_can_be_told_in_json_whatever_was_refused(values: dict[str, object]) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.parse(values)
    assert orjson.loads(orjson.dumps(refused.value.as_dict()))["error"]["field"] in {*values, "settings"}


def test_what_a_beam_search_cannot_do_is_refused_by_both_names() -> None:
    assert Settings.parse({"stop": ["END"], "num_beams": 1}).num_beams == 1
    with pytest.raises(SettingError, match=r"^stop: .*num_beams is 4") as refused:
        Settings.parse({"stop": ["END"], "num_beams": 4})
    assert refused.value.field == "stop"
    with pytest.raises(SettingError, match="num_beams"):
        Settings.parse({"stop": ["END"]}).with_changes(num_beams=2)


def test_a_beam_search_can_have_a_constraint() -> None:
    settings = Settings.parse({"constraint": {"regex": "[0-9]+"}, "num_beams": 4})
    assert Settings.parse(settings.as_dict()) == settings


@pytest.mark.parametrize("value", [True, False, "never"])
def test_the_three_ways_to_stop_early(value: object) -> None:
    assert Settings.parse({"early_stopping": value}).as_dict()["early_stopping"] == value


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("early_stopping", "maybe", 'true, false or "never"'),
        ("early_stopping", 1, 'true, false or "never"'),
        ("num_beams", 0, "got 0"),
        ("num_beams", 17, "16, got 17"),
        ("length_penalty", 101, "100, got 101"),
    ],
)
def test_a_search_that_does_not_exist_is_refused(field: str, value: object, words: str) -> None:
    with pytest.raises(SettingError, match=f"^{field}: .*{words}") as refused:
        Settings.parse({field: value})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"top_k": 1, "top_k": 2}', "top_k"),
        ('{"constraint": {"regex": "a", "regex": "b"}}', "constraint"),
        ('{"constraint": {"json_schema": {"properties": {"a": true, "a": false}}}}', "constraint"),
        ('{"logit_bias": {"5": 1, "5": 2}}', "logit_bias"),
    ],
)
def test_a_name_that_is_given_twice_is_refused_by_the_field_that_holds_it(text: str, field: str) -> None:
    with pytest.raises(SettingError, match="is given twice") as refused:
        Settings.parse_json(text)
    assert refused.value.field == field
