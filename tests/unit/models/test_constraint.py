"""What a constraint may be: checked by itself, then tried out in a process that can be ended."""

import contextlib
import json
import subprocess
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.constraint import MAX_CHOICES, MAX_CONSTRAINT_BYTES, MAX_DEPTH, Constraint
from models.endless_schema import is_endless
from models.errors import SettingError
from models.grammar import check_constraint, grammar_of
from models.grammar_compiler import bytes_tokenizer, compile_grammar
from models.sampling import DEFAULT_ORDER, Settings

BYTES = bytes_tokenizer()


def nested(depth: int, schema: Any) -> Any:
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def chain(num_links: int, link: dict[str, Any]) -> dict[str, Any]:
    """A schema in which each definition refers to the next one; `link` holds "NEXT"."""
    text = json.dumps(link)
    links = {str(i): json.loads(text.replace("NEXT", f"#/$defs/{i + 1}")) for i in range(num_links)}
    return {"$defs": {**links, str(num_links): {"type": "integer"}}, "$ref": "#/$defs/0"}


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ({"foo": 1}, "constraint.foo is not a kind of constraint; the kinds are json_schema, regex, choice, grammar"),
        ({}, "give exactly one of json_schema, regex, choice, grammar, not 0"),
        ({"regex": "a", "choice": ["b"]}, "not 2"),
        ({"regex": 3}, "constraint.regex: input should be a valid string, got 3"),
        ({"regex": "\ud800"}, "constraint.regex: character 0 is a lone surrogate"),
        ({"choice": []}, "constraint.choice: it must list at least one text"),
        ({"choice": ["a", ""]}, "none may be empty"),
        ({"choice": ["\udfff"]}, "lone surrogate"),
        ({"choice": "yes"}, "constraint.choice: input should be a valid tuple, got 'yes'"),
        ({"choice": ["a"] * (MAX_CHOICES + 1)}, f"at most {MAX_CHOICES}"),
        ({"regex": "a" * MAX_CONSTRAINT_BYTES}, "longer than 100,000 bytes"),
        ({"json_schema": 3}, "constraint.json_schema"),
        ({"json_schema": False}, "false is the schema that nothing satisfies"),
        ({"json_schema": {"const": float("nan")}}, "it holds nan, which is no number"),
        ({"json_schema": {"const": [float("-inf")]}}, "it holds -inf"),
        ({"json_schema": {"const": 2**53}}, "whole number beyond 9007199254740991"),
        ({"json_schema": {"const": 10**5000}}, "whole number beyond"),
        ({"json_schema": {"maximum": 1e300}}, "maximum is 1e\\+300"),
        (
            {"json_schema": {"items": {"minProperties": 3, "required": ["a", "a"]}}},
            "minProperties is 3 and 1 are required",
        ),
        ({"json_schema": {"a\ud800": 1}}, "lone surrogate"),
        ({"json_schema": {1: 1}}, "the key 1, which is no text"),
        ({"json_schema": {"const": object()}}, "it holds a object, which is no JSON"),
        ({"json_schema": nested(MAX_DEPTH, True)}, "nested more than 64 deep"),
        ({"json_schema": nested(100_000, True)}, "nested more than 64 deep"),
        ({"json_schema": {"x-guidance": {"whitespace_flexible": True}}}, "x-guidance is not part of JSON Schema"),
        ({"grammar": 'start: %json {"type": "integer"}'}, "use json_schema"),
        ({"grammar": "start: a\na[temperature = 0.5, lazy]: /x+/"}, "changes no temperature"),
        (5, "constraint: input should be"),
        ([], "constraint: input should be"),
    ],
)
def test_what_is_no_constraint_is_refused_with_its_place(constraint: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words) as refused:
        Settings.parse({"constraint": constraint})
    assert refused.value.field == "constraint"
    assert len(refused.value.message) < 300
    orjson.dumps(refused.value.as_dict())


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused_in_json_text_too(literal: str) -> None:
    with pytest.raises(SettingError, match="which is no number") as refused:
        Settings.parse_json(f'{{"constraint": {{"json_schema": {{"minimum": {literal}}}}}}}')
    assert refused.value.field == "constraint"


@pytest.mark.parametrize(
    "constraint",
    [
        {"json_schema": True},
        {"json_schema": {"properties": {"minimum": {"type": "integer", "minimum": -(2**53 - 1)}}}},
        {"json_schema": nested(MAX_DEPTH - 1, True)},
        {"json_schema": {"minProperties": 3, "required": ["a", "b"], "properties": {"minProperties": {}}}},
        {"regex": ""},
        {"choice": ["a", "ab", "\x00😀"]},
        {"grammar": 'start: "a"'},
        {"grammar": 'start: temperature\ntemperature: "temperature=0.5"'},
    ],
)
def test_what_is_accepted_is_saved_as_it_was_given(constraint: dict[str, Any]) -> None:
    values = Settings.parse({"constraint": constraint})
    assert values.as_dict()["constraint"] == constraint
    assert values.changed() == {"constraint": constraint}
    assert Settings.parse_json(json.dumps(values.as_dict())) == values


@pytest.mark.parametrize("token", ["<[2]>", "<[*]>", "<[^5-7]>", "<|im_end|>", "<think>"])
def test_a_grammar_names_no_tokens(token: str) -> None:
    """Their ids are the checkpoint's, and some would end the text or bring none."""
    with pytest.raises(SettingError, match="names no tokens") as refused:
        Settings.parse({"constraint": {"grammar": f'start: "a" {token} "b"'}})
    assert refused.value.field == "constraint"
    for grammar in ('start: "<[2]>" "b"', "start: /<[2]>/ // <[2]>", 'start: "\\"<b>" // "<[*]>'):
        check_constraint(Constraint(grammar=grammar))


def test_a_trial_that_gave_no_answer_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_busy(*arguments: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("trial", 20)

    constraint = Constraint(regex="only here[0-9]")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", too_busy)
        with pytest.raises(SettingError, match="takes too long"):
            check_constraint(constraint)
    check_constraint(constraint)


def test_at_temperature_0_the_constraint_stands_before_temperature() -> None:
    late = [*(s for s in DEFAULT_ORDER if s != "constraint"), "constraint"]
    Settings.parse({"constraint": {"regex": "a"}, "order": late})
    with pytest.raises(SettingError, match="put constraint before it") as refused:
        Settings.parse({"constraint": {"regex": "a"}, "order": late, "temperature": 0})
    assert refused.value.field == "order"


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ({"regex": "(a"}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": "[^\\s\\S]"}, "nothing can satisfy it"),
        ({"grammar": "start: ((("}, "Expected token"),
        ({"grammar": 'begin: "a"'}, "no start rule"),
        ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 3}}, "Unsatisfiable schema"),
        ({"json_schema": {"$ref": "#"}}, "nothing can satisfy it"),
        ({"json_schema": {"$ref": "http://127.0.0.1:9/x"}}, "does not fetch"),
        ({"json_schema": {"$ref": "file:///etc/passwd"}}, "does not fetch"),
        ({"json_schema": {"$ref": "#/$defs/none"}}, "does not exist"),
        ({"json_schema": {"not": {"type": "string"}}}, "not"),  # refused, never left out
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json_schema": {"type": "string", "format": "telephone"}}, "Unknown format"),
        ({"json_schema": {"type": "integer", "multipleOf": 999_983}}, "takes too long"),  # more than 10 s, if it is let
        ({"json_schema": {"properties": {f"p{i}": True for i in range(6000)}}}, "takes too long"),
        ({"json_schema": {"allOf": [{"type": "string", "pattern": f".*{i}.*"} for i in range(2000)]}}, "too"),
        ({"grammar": "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(60)) + '\nA60: "a"'}, "too"),
        ({"grammar": "start: " + " | ".join(f'"w{i}"' for i in range(8000))}, "too much work"),
    ],
)
def test_what_cannot_be_used_is_refused(constraint: dict[str, Any], words: str) -> None:
    values = Settings.parse({"constraint": constraint})
    assert values.constraint is not None
    with pytest.raises(SettingError, match=words) as refused:
        check_constraint(values.constraint)
    assert refused.value.field == "constraint"
    assert refused.value.message.startswith(f"constraint.{next(iter(constraint))}: ")
    assert len(refused.value.message) < 300


OTHERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
PATTERNS = {
    "type": "object",
    "patternProperties": {"^a": {"type": "integer"}},
    "additionalProperties": {"type": "string"},
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (OTHERS, '{"a":1,"\\u0061":"x"}'),  # a reader of JSON would take the second for a, too
        (OTHERS, '{"\\u0061":"x"}'),
        (PATTERNS, '{"\\u0061":"x"}'),
        ({"type": "string"}, '"\\u000a"'),  # \n
    ],
)
def test_a_character_has_one_spelling(schema: dict[str, Any], text: str) -> None:
    """With a second one a key could pass for another than the declared one, and escape its schema."""
    matcher = compile_grammar(grammar_of(Constraint(json_schema=schema)), BYTES)
    taken = next((i for i, byte in enumerate(text.encode()) if not matcher.consume_token(byte)), len(text))
    assert text[:taken].endswith("\\")


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**53 - 1),
    st.floats(-2, 2),
    st.sampled_from(["", "#", "#/$defs/a", "#/items", "object", "array", "string", "(a", "a*", "date", "é"]),
)
words = st.sampled_from(
    ["type", "$ref", "$defs", "properties", "required", "items", "prefixItems", "minItems", "anyOf", "allOf", "oneOf",
     "enum", "const", "pattern", "a", "maxLength", "minimum", "additionalProperties", "patternProperties", "format"]
)  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(st.dictionaries(words, inner, max_size=5), st.lists(inner, max_size=3)),
    max_leaves=16,
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(schema=st.dictionaries(words, schemas, max_size=5))
def test_any_json_is_compiled_or_refused(schema: dict[str, Any]) -> None:
    """Without the process around it, which small schemas do not need."""
    constraint = Constraint(json_schema=schema)
    is_endless(schema)
    with contextlib.suppress(ValueError):
        compile_grammar(grammar_of(constraint), BYTES)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["regex", "grammar"]),
    text=st.text("abAB(){}[]<>|&~^$*+?.,:;%@#\\/\"' \n0123\x00é😀", max_size=24),
)
def test_any_text_is_compiled_or_refused(kind: str, text: str) -> None:
    prefix = "start: " if kind == "grammar" else ""
    with contextlib.suppress(ValueError):
        compile_grammar(grammar_of(Constraint.model_validate({kind: prefix + text})), BYTES)


INNER = {"type": "object", "properties": {"n": True, "k": {"$ref": "#/$defs/a"}}, "required": ["n", "k"]}


@pytest.mark.parametrize(
    ("definition", "endless"),
    [
        (INNER, True),
        ({**INNER, "required": ["n"]}, False),
        ({**INNER, "type": ["object", "null"]}, False),
        ({"anyOf": [INNER, {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}]}, True),
        ({"anyOf": [INNER, {"type": "array", "items": {"$ref": "#/$defs/a"}}]}, False),
        ({"allOf": [{"$ref": "#/$defs/b"}, True]}, True),
        ({"type": "array", "prefixItems": [True, {"$ref": "#"}], "minItems": 1}, False),
        ({"type": "array", "prefixItems": [True, {"$ref": "#"}], "minItems": 2}, True),
        ({"$ref": "#/$defs/none"}, False),
        ({"$ref": "other.json"}, False),
        ({"properties": {"k": {"$ref": "#"}}, "required": ["k"]}, False),  # a number is one
    ],
)
def test_a_schema_whose_values_never_end(definition: dict[str, Any], endless: bool) -> None:
    schema = {"$defs": {"a": definition, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    assert is_endless(schema) == endless
    if endless:
        with pytest.raises(SettingError, match="without end"):
            check_constraint(Constraint(json_schema=schema))


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "a{1,100000}"},
        {"regex": "((a{1,1000}){1,1000}){1,1000}b"},
        {"regex": "(a|b)*a(a|b){200}"},  # an automaton would have 2 to the 200th states
        {"choice": [f"choice number {i}" for i in range(MAX_CHOICES)]},
        {"json_schema": {"enum": [f"value number {i}" for i in range(3000)]}},
        {"json_schema": {"type": "array", "items": True, "minItems": 10**9}},
        {"json_schema": {"type": "string", "maxLength": 10**9}},
        {"json_schema": chain(1200, {"properties": {"a": {"$ref": "NEXT"}}, "required": ["a"]})},  # deep recursion
        {"json_schema": chain(40, {"allOf": [{"$ref": "NEXT"}, {"$ref": "NEXT"}]})},
    ],
    ids=lambda constraint: str(constraint)[:50],
)
def test_what_is_only_large_is_not_refused(constraint: dict[str, Any]) -> None:
    values = Settings.parse({"constraint": constraint})
    assert values.constraint is not None
    check_constraint(values.constraint)
