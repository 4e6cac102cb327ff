"""Whole runs under a constraint: each satisfies it, or says that it was cut."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from models.errors import ConstraintError, SettingError
from models.events import StopReason
from models.sampling import DEFAULT_ORDER
from tests.fakes import checkpoints, tokenizers
from tests.fakes.engine_runs import Told, assert_as_alone, drain, request, run, told
from tests.fakes.scripted import Script, scripted_checkpoint
from tests.unit.engine.test_oracle import check
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

WHOLE = {StopReason.CONSTRAINT_COMPLETE, StopReason.EOS}
CUT = {StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "is_new": {"type": "boolean"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    PERSON,
    {"enum": ["yes", "no", "naïve 😀", None, 1.5, ["a b"]]},
    {
        "type": "array",
        "items": {"type": "integer", "multipleOf": 5, "maximum": 100, "minimum": 0},
        "minItems": 2,
        "maxItems": 4,
    },
    {"anyOf": [{"type": "string", "pattern": "^[a-f]{2,4}$"}, {"type": "null"}, {"const": {"k": [1, "é"]}}]},
    {
        "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "$ref": "#/$defs/node",
    },
    {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 2},
    {"type": "array", "prefixItems": [{"type": "string", "format": "date"}, {"type": "boolean"}], "minItems": 2},
    True,
]
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
ENDLESS = {4, 5, 7}  # where a network without sense may go on for ever


def check_schema_bound(got: Told, schema: Any) -> None:
    assert got.ended.stop.reason in WHOLE | CUT
    if got.ended.stop.reason in WHOLE:
        jsonschema.validate(json.loads(got.text), schema)
        assert not re.search(r"\s", STRING.sub("", got.text))  # compact
    assert "\n" not in got.text
    assert not got.text[:1].isspace()


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_schema_bound_runs_validate_or_say_that_they_were_cut(tiny: Checkpoint, index: int) -> None:
    schema = SCHEMAS[index]
    reasons = set()
    for seed, temperature in itertools.product(range(4), (0.0, 0.7, 1.5)):
        got = run(
            tiny, "the cat", constraint={"json_schema": schema}, seed=seed, temperature=temperature, max_tokens=40
        )
        check_schema_bound(got, schema)
        reasons.add(got.ended.stop.reason)
        if temperature == 0:
            assert all(token.tax is not None for token in got.tokens)
    assert reasons & WHOLE or index in ENDLESS


@pytest.mark.checkpoint
@pytest.mark.parametrize("index", range(5))
def test_schema_bound_runs_of_the_default_checkpoint(default_checkpoint: Checkpoint, index: int) -> None:
    prompt = "Answer in JSON. Who wrote Hamlet?\n"
    for temperature in (0.0, 1.0):
        settings = {"constraint": {"json_schema": SCHEMAS[index]}, "temperature": temperature, "max_tokens": 16}
        check_schema_bound(run(default_checkpoint, prompt, **settings), SCHEMAS[index])


ORACLE_CASES: list[dict[str, Any]] = [
    {"constraint": {"choice": ["the quick", "the fox", "a cat", "a"]}},
    {"constraint": {"choice": ["the quick", "the fox", "a cat", "a"]}, "temperature": 0.0},
    {"constraint": {"choice": [" the", "😀 fox", "😁"]}, "temperature": 2.0, "top_p": 0.5},
    {"constraint": {"regex": "( the| fox| a){2,5}"}, "repetition_penalty": 1.8},
    {"constraint": {"regex": "[a-z ]*"}, "top_k": 5},
    {"constraint": {"regex": "[a-z ]*"}, "ignore_eos": True, "min_p": 0.05},
    {"constraint": {"regex": "[a-d]+"}, "min_tokens": 4, "logit_bias": {"376": 50.0}},
    {"constraint": {"regex": "(ab|cd)+"}, "top_k": 1, "order": [*DEFAULT_ORDER[2:], "constraint", "bias"]},
    {"constraint": {"regex": "a{3}"}, "banned": ["a"]},
    {"constraint": {"regex": "(a|b| )*"}, "stop": ["ab"], "include_stop": True},
    {"constraint": {"regex": ""}},
    {"constraint": {"regex": "a*b?"}, "max_tokens": 0},
]


@pytest.mark.parametrize("case", ORACLE_CASES, ids=str)
def test_the_story_is_the_oracles(tiny: Checkpoint, case: dict[str, Any]) -> None:
    for seed in range(2):
        check(tiny, "the quick", {"max_tokens": 12, "seed": seed, **case})


@pytest.mark.parametrize("prompt", ["the quick", ""])
def test_the_story_is_the_oracles_with_sentencepiece(metaspace: Checkpoint, prompt: str) -> None:
    """An empty prompt begins the text, and the space before its first token is none of it."""
    for regex in ("(the|a) [a-c ]{1,6}", "é{2}"):
        for seed in range(2):
            check(metaspace, prompt, {"constraint": {"regex": regex}, "max_tokens": 14, "seed": seed})


@pytest.fixture(scope="module")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = tmp_path_factory.mktemp("constrained") / "sp"
    return checkpoints.load(checkpoints.write_llama(folder, tokenizers.metaspace()))


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Bytes as tokens, and no end token at all."""
    folder: Path = tmp_path_factory.mktemp("constrained") / "bytes"
    return checkpoints.load(checkpoints.write_llama(folder, tokenizers.byte_level()))


@pytest.mark.parametrize("schema", SCHEMAS[:4], ids=str)
def test_without_an_end_token_a_run_ends_where_the_constraint_is_complete(letters: Checkpoint, schema: Any) -> None:
    for seed in range(6):
        got = run(letters, "the", constraint={"json_schema": schema}, seed=seed, max_tokens=60)
        assert got.ended.stop.reason in {StopReason.CONSTRAINT_COMPLETE, *CUT}
        check_schema_bound(got, schema)


class TestEndings:
    def test_where_nothing_but_an_end_is_left_no_end_token_is_picked(self, tiny_llama: Checkpoint) -> None:
        got = run(tiny_llama, "the", constraint={"choice": ["fox"]})
        assert (got.text, got.ended.stop.reason) == ("fox", StopReason.CONSTRAINT_COMPLETE)
        assert all(token.visible for token in got.tokens)

    def test_a_choice_that_begins_another_ends_with_an_end_token_or_goes_on(self, tiny_llama: Checkpoint) -> None:
        end = tiny_llama.info.end_token_ids[0]
        for bias, text, reason in ((50, "a", StopReason.EOS), (-50, "ab", StopReason.CONSTRAINT_COMPLETE)):
            got = run(tiny_llama, "the", constraint={"choice": ["a", "ab"]}, logit_bias={str(end): bias})
            assert (got.text, got.ended.stop.reason) == (text, reason)

    def test_an_empty_output_is_complete_before_its_first_token(self, tiny_llama: Checkpoint) -> None:
        got = run(tiny_llama, "the", constraint={"regex": ""})
        assert (got.token_ids, got.ended.stop.reason) == ((), StopReason.CONSTRAINT_COMPLETE)

    def test_on_the_last_token_of_the_budget_complete_comes_first(self, tiny_llama: Checkpoint) -> None:
        got = run(tiny_llama, "the", constraint={"regex": "[xyz]{3}"}, max_tokens=3)
        assert got.ended.stop.reason is StopReason.CONSTRAINT_COMPLETE
        assert got.ended.stop.also == (StopReason.MAX_TOKENS,)

    def test_a_complete_constraint_ends_a_run_before_min_tokens(self, tiny_llama: Checkpoint) -> None:
        got = run(tiny_llama, "the", constraint={"choice": ["xx"]}, min_tokens=50, max_tokens=60)
        assert got.ended.stop.reason is StopReason.CONSTRAINT_COMPLETE

    def test_min_tokens_holds_back_the_end_tokens_alone(self, tiny_llama: Checkpoint) -> None:
        end = tiny_llama.info.end_token_ids[0]
        bias = {str(end): 50.0}
        got = run(tiny_llama, "the", constraint={"regex": "x*"}, min_tokens=5, logit_bias=bias)
        assert (got.text, got.ended.stop.reason) == ("xxxxx", StopReason.EOS)

    def test_a_stop_string_cuts_what_the_constraint_would_go_on_with(self, tiny_llama: Checkpoint) -> None:
        got = run(tiny_llama, "the", constraint={"choice": ["abcd"]}, stop=["c"])
        assert (got.text, got.ended.stop.reason) == ("ab", StopReason.STOP_STRING)
        got = run(tiny_llama, "the", constraint={"choice": ["abcd"]}, stop=["d"])
        assert got.ended.stop.also == (StopReason.CONSTRAINT_COMPLETE,)

    def test_a_stop_token_is_allowed_as_text_alone(self, tiny_llama: Checkpoint) -> None:
        ids = [tiny_llama.tokenizer(letter).input_ids[0] for letter in "bz"]
        got = run(tiny_llama, "the", constraint={"choice": ["abc"]}, stop_token_ids=ids)
        assert (got.text, got.ended.stop.reason) == ("a", StopReason.STOP_TOKEN)

    def test_a_full_context_cuts(self, tiny_llama: Checkpoint) -> None:
        got = run(
            tiny_llama, "the " * 30, constraint={"json_schema": {"type": "string", "minLength": 500}}, max_tokens=500
        )
        assert got.ended.stop.reason is StopReason.CONTEXT_FULL

    def test_white_space_cannot_run_away(self, letters: Checkpoint) -> None:
        """Not even where the network wants nothing else."""
        blanks = {str(letters.tokenizer(blank).input_ids[0]): 100.0 for blank in " \n\t\r"}
        schema = {"type": "array", "items": {"enum": [1, "a b"]}, "minItems": 2, "maxItems": 2}
        got = run(letters, "the", constraint={"json_schema": schema}, logit_bias=blanks)
        assert got.ended.stop.reason is StopReason.CONSTRAINT_COMPLETE
        assert "".join(got.text.replace("a b", "").split()) == got.text.replace("a b", "")

    def test_a_grammar(self, tiny_llama: Checkpoint) -> None:
        grammar = 'start: item ("," item)*\nitem: "fox" | "(" start ")"'
        for seed in range(6):
            got = run(tiny_llama, "the", constraint={"grammar": grammar}, seed=seed, max_tokens=25)
            if got.ended.stop.reason in WHOLE:
                assert got.text.count("(") == got.text.count(")")
                assert set(got.text.replace("(", "").replace(")", "").split(",")) == {"fox"}


class TestDeadEnds:
    WORDS = tokenizers.words()

    def scripted(self, **options: Any) -> Checkpoint:
        return scripted_checkpoint(self.WORDS, Script(self.WORDS("the quick fox").input_ids, **options))

    def test_a_token_that_the_network_rules_out_ends_the_run_with_a_sentence(self) -> None:
        only = self.WORDS("z").input_ids[0]

        def nothing_else(logits: Any) -> Any:
            return logits.new_full(logits.shape, float("-inf")).index_fill(0, logits.new_tensor([only]).long(), 0.0)

        got = run(self.scripted(faults={1: nothing_else}), "a", constraint={"choice": ["the quick"]})
        assert got.text == "the"
        assert got.ended.stop.reason is StopReason.ERROR_CHECKPOINT
        assert got.ended.stop.message is not None
        assert "no probability to any token that the constraint allows" in got.ended.stop.message

    def test_what_cannot_be_compiled_is_refused_and_disturbs_nobody(self) -> None:
        engine = Engine(self.scripted(), num_rows=2)
        engine.add(request(engine.checkpoint, "a", sequence_id="a", max_tokens=3))
        first = engine.step()
        for constraint in ({"regex": "("}, {"json_schema": {"$ref": "#"}}):
            with pytest.raises(SettingError, match="constraint") as refused:
                engine.add(request(engine.checkpoint, "a", sequence_id="b", constraint=constraint))
            assert refused.value.field == "constraint"
        assert told([*first, *drain(engine)])["a"].text == "the quick fox"

    def test_saved_tokens_that_break_the_constraint_are_no_beginning(self) -> None:
        engine = Engine(self.scripted())
        broken = request(engine.checkpoint, "a", generated=self.WORDS("fox").input_ids, constraint={"choice": ["the"]})
        with pytest.raises(ConstraintError, match=r"does not take token \d+ at output position 0"):
            engine.add(broken)
        assert engine.num_active == 0


@pytest.mark.parametrize("schema", SCHEMAS[:3], ids=str)
def test_resumed_at_any_place_is_the_same_run(tiny: Checkpoint, schema: Any) -> None:
    case = {"constraint": {"json_schema": schema}, "seed": 3, "max_tokens": 30}
    whole = run(tiny, "the cat", **case)
    for place in range(whole.ended.num_tokens + 1):
        rest = run(tiny, "the cat", generated=whole.token_ids[:place], **case)
        assert whole.token_ids[:place] + rest.token_ids == whole.token_ids
        assert rest.ended.stop == whole.ended.stop
        for mine, theirs in zip(rest.tokens, whole.tokens[place:], strict=True):
            assert mine.tax is not None
            assert theirs.tax is not None
            assert mine.tax.bits == pytest.approx(theirs.tax.bits, abs=1e-3)  # 0.7 of it in nats
            assert mine.tax.displaced == theirs.tax.displaced


def test_rows_with_different_constraints_are_as_alone(tiny: Checkpoint) -> None:
    cases: dict[str, dict[str, Any]] = {
        "a": {"constraint": {"json_schema": PERSON}},
        "b": {"constraint": {"choice": ["the quick", "a cat"]}, "temperature": 1.5},
        "c": {"constraint": {"regex": "[a-f ]*"}, "temperature": 0.0},
        "d": {"temperature": 0.8},
    }
    assert_as_alone(tiny, "the cat", cases, max_tokens=20)
