"""What a matcher allows: byte for byte what its slow twin says, and never a token that is no text."""

import functools
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from models.constraint import Constraint
from models.errors import ConstraintError, SettingError
from models.sampling import Settings
from tests.fakes import tokenizers
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint import NUM_KEPT, Allowances, Compiler, Mask, Matcher
from workers.engine.constraint_oracle import allowed_next
from workers.engine.vocabulary import Vocabulary

KINDS = ("words", "metaspace", "byte_level", "chatml")
CHECKPOINTS = {kind: scripted_checkpoint(getattr(tokenizers, kind)(), Script([5])) for kind in KINDS}
LETTER_A = next(i for i in range(300) if CHECKPOINTS["words"].vocabulary.token_bytes(i) == b"a")
TEXT = 40  # an ordinary token of each


def matcher(checkpoint: Checkpoint, constraint: dict[str, Any], **options: Any) -> Matcher:
    return checkpoint.constraints.compile(Constraint.model_validate(constraint), **options)


def texts(checkpoint: Checkpoint, allowed: Matcher) -> set[bytes]:
    """What may come next; b"$" is an end."""
    ends = checkpoint.info.end_token_ids
    ids = np.flatnonzero(allowed.allowed()).tolist()
    return {b"$" if i in ends else checkpoint.vocabulary.token_bytes(i) for i in ids}


def feed(target: Matcher, checkpoint: Checkpoint, text: bytes) -> None:
    """Go on byte by byte, with tokens of one byte."""
    vocabulary = checkpoint.vocabulary
    for byte in text:
        token_id = next(i for i in range(vocabulary.size) if vocabulary.token_bytes(i) == bytes([byte]))
        target.accept(token_id)


class TestAgainstTheTwin:
    atoms = st.sampled_from(
        ["a", "th", "the", " fox", "e", "😀", "é", "[a-e]", "[^q\x80-\U0010ffff]", "\\{", '"', "\n"]
    )

    @staticmethod
    def walk(kind: str, constraint: dict[str, Any], *, seed: int, begins_text: bool) -> None:
        """Take tokens at random, and compare what is allowed after each."""
        checkpoint = CHECKPOINTS[kind]
        prompt_ids = () if begins_text else (TEXT,)
        wanted = Settings.parse({"constraint": constraint, "ignore_eos": seed % 3 == 0})
        got = matcher(checkpoint, constraint, ignore_eos=wanted.ignore_eos, begins_text=begins_text)
        output: list[int] = []
        for _ in range(8):
            expected = allowed_next(checkpoint, prompt_ids, output, wanted)
            assert expected is not None
            assert np.flatnonzero(got.allowed()).tolist() == np.flatnonzero(expected).tolist()
            going_on = sorted(set(np.flatnonzero(expected).tolist()) - set(checkpoint.info.end_token_ids))
            assert got.is_complete == (not going_on)
            if not going_on:
                return
            output.append(random.Random(seed + len(output)).choice(going_on))
            got.accept(output[-1])

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        kind=st.sampled_from(KINDS),
        choice=st.lists(
            st.text(st.sampled_from('ath fox"\\{é😀😁\n^$.*|()[]-~&#'), min_size=1, max_size=6), min_size=1, max_size=5
        ),
        seed=st.integers(0, 99),
        begins_text=st.booleans(),
    )
    def test_a_choice_list(self, kind: str, choice: list[str], seed: int, begins_text: bool) -> None:
        self.walk(kind, {"choice": choice}, seed=seed, begins_text=begins_text)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        kind=st.sampled_from(KINDS),
        regex=st.recursive(
            atoms,
            lambda inner: st.one_of(
                st.tuples(inner, inner).map("".join),
                st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
                st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])).map(
                    lambda pair: f"(?:{pair[0]}){pair[1]}"
                ),
            ),
            max_leaves=5,
        ),
        seed=st.integers(0, 99),
        begins_text=st.booleans(),
    )
    def test_a_regex(self, kind: str, regex: str, seed: int, begins_text: bool) -> None:
        self.walk(kind, {"regex": regex}, seed=seed, begins_text=begins_text)


class TestEnds:
    @pytest.mark.parametrize("kind", ["words", "chatml", "metaspace"])
    def test_a_choice_that_begins_another_may_end_and_is_not_complete(self, kind: str) -> None:
        checkpoint = CHECKPOINTS[kind]
        got = matcher(checkpoint, {"choice": ["a", "ab"]})
        assert (got.can_end, got.is_complete, texts(checkpoint, got)) == (False, False, {b"a"})
        feed(got, checkpoint, b"a")
        assert (got.can_end, got.is_complete, texts(checkpoint, got)) == (True, False, {b"b", b"$"})
        feed(got, checkpoint, b"b")
        assert (got.can_end, got.is_complete, texts(checkpoint, got)) == (True, True, {b"$"})

    def test_an_end_that_ends_nothing_is_never_allowed(self) -> None:
        checkpoint = CHECKPOINTS["words"]
        got = matcher(checkpoint, {"choice": ["a", "ab"]}, ignore_eos=True)
        feed(got, checkpoint, b"a")
        assert texts(checkpoint, got) == {b"b"}
        feed(got, checkpoint, b"b")
        assert got.is_complete
        assert not got.allowed().any()

    def test_every_end_token_of_a_checkpoint_is_an_end(self) -> None:
        checkpoint = CHECKPOINTS["words"]
        compiler = Compiler(checkpoint.vocabulary, 512, end_token_ids=frozenset({7, 500}))
        got = compiler.compile(Constraint(regex="a?"))
        assert np.flatnonzero(got.allowed()).tolist() == sorted({7, 500, checkpoint.tokenizer("a").input_ids[0]})
        got.accept(7)
        with pytest.raises(ConstraintError, match="does not take token 8 at output position 0"):
            got.accept(8)

    def test_an_empty_text_is_complete_at_once(self) -> None:
        assert matcher(CHECKPOINTS["words"], {"regex": ""}).is_complete

    def test_without_an_end_token_what_may_end_goes_on(self) -> None:
        checkpoint = CHECKPOINTS["byte_level"]
        got = matcher(checkpoint, {"regex": "a?"})
        assert (got.can_end, texts(checkpoint, got)) == (True, {b"a"})


class TestTokens:
    def test_tokens_that_are_no_text_are_never_allowed(self) -> None:
        checkpoint = CHECKPOINTS["chatml"]
        got = Compiler(checkpoint.vocabulary, 1000, end_token_ids=frozenset({3})).compile(Constraint(regex="(?s).*"))
        mask = got.allowed()
        assert mask.shape == (1000,)
        assert not mask[checkpoint.vocabulary.size :].any()
        assert not any(mask[i] for i in range(checkpoint.vocabulary.size) if checkpoint.vocabulary.is_special(i))
        assert mask[3]

    def test_every_spelling_of_a_text_is_allowed(self) -> None:
        """Not only the one that the tokenizer itself would take."""
        checkpoint = CHECKPOINTS["words"]
        got = matcher(checkpoint, {"choice": ["the fox"]})
        assert texts(checkpoint, got) == {b"t", b"th", b"the"}
        feed(got, checkpoint, b"t")
        assert texts(checkpoint, got) == {b"h", b"he"} & {
            checkpoint.vocabulary.token_bytes(i) for i in range(checkpoint.vocabulary.size)
        }

    def test_half_a_character_is_allowed_and_no_end(self) -> None:
        checkpoint = CHECKPOINTS["byte_level"]
        got = matcher(checkpoint, {"choice": ["😀", "😁", "é"]})
        assert texts(checkpoint, got) == {b"\xf0", b"\xc3"}
        feed(got, checkpoint, b"\xf0\x9f\x98")
        assert (got.can_end, texts(checkpoint, got)) == (False, {b"\x80", b"\x81"})

    def test_at_the_beginning_of_a_text_the_space_that_is_dropped_does_not_count(self) -> None:
        checkpoint = CHECKPOINTS["metaspace"]
        got = matcher(checkpoint, {"choice": ["the"]}, begins_text=True)
        assert b" the" in texts(checkpoint, got)
        assert b"t" not in texts(checkpoint, got)
        assert b"the" not in texts(checkpoint, matcher(checkpoint, {"choice": [" the"]}))

    def test_a_token_that_keeps_its_space_at_the_beginning_of_a_text_does_not_come_first(self) -> None:
        """Metaspace drops its own marks; the space of a byte token stays. Ids beyond the network's are none."""
        tokenizer = tokenizers.metaspace()
        backend, num_ids = tokenizer.backend_tokenizer, len(tokenizer)
        backend.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
        tokenizer.add_tokens(["\u2581\u2581zz"])
        read = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
        vocabulary = Vocabulary.from_tokenizer(read)
        assert vocabulary.is_exact
        compiler = Compiler(vocabulary, num_ids, end_token_ids=frozenset({2}))
        allowed = compiler.compile(Constraint(choice=("yes",)), begins_text=True).allowed()
        assert allowed.any()
        assert not allowed[read.convert_tokens_to_ids("<0x20>")]

    def test_a_fork_goes_its_own_way(self) -> None:
        checkpoint = CHECKPOINTS["words"]
        one = matcher(checkpoint, {"choice": ["ab", "ac"]})
        feed(one, checkpoint, b"a")
        other = one.fork()
        feed(one, checkpoint, b"b")
        assert texts(checkpoint, other) == {b"b", b"c"}
        assert one.is_complete


class TestOfAGivenText:
    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(st.lists(st.integers(0, 300), max_size=12))
    def test_any_position_in_any_order_is_what_a_matcher_allows_there(self, positions: list[int]) -> None:
        got, expected = self.allowances(), self.expected()
        for position in positions:
            assert (got.at(position) == expected[position]).all()

    def test_memory_does_not_grow_with_the_text(self) -> None:
        got = self.allowances()
        tracemalloc.start()
        held = []
        for position in (NUM_KEPT + 10, 240):
            for earlier in range(position):
                got.at(earlier)
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert held[1] - held[0] < 4000  # a mask of this small vocabulary is 150 bytes

    @staticmethod
    def allowances() -> Allowances:
        """Of the letter a 300 times where 250 are allowed: after the 251st everything is."""
        checkpoint = CHECKPOINTS["words"]
        return Allowances(matcher(checkpoint, {"regex": "a{250}b?"}), [LETTER_A] * 300)

    @staticmethod
    @functools.cache
    def expected() -> list[Mask]:
        walked, masks = matcher(CHECKPOINTS["words"], {"regex": "a{250}b?"}), []
        for _ in range(250):
            masks.append(walked.allowed())
            walked.accept(LETTER_A)
        everything = np.ones(walked.vocab_size, dtype=bool)
        return [*masks, walked.allowed(), *[everything] * 50]


class TestRefusals:
    def test_a_tokenizer_without_bytes_has_no_constraints(self) -> None:
        checkpoint = scripted_checkpoint(tokenizers.cleaning(), Script([5]))
        with pytest.raises(SettingError, match="does not say which bytes its tokens are") as refused:
            matcher(checkpoint, {"regex": "a"})
        assert refused.value.field == "constraint"

    def test_what_no_token_of_this_checkpoint_can_begin_is_refused(self) -> None:
        with pytest.raises(SettingError, match=r"constraint.regex: nothing can satisfy it"):
            self.two_letters().compile(Constraint(regex="c"))

    def test_a_dead_end_is_told_at_its_position(self) -> None:
        got = self.two_letters().compile(Constraint(regex="abc"))
        got.accept(0)
        got.accept(1)
        with pytest.raises(ConstraintError) as dead_end:
            got.allowed()
        assert dead_end.value.message == (
            "the constraint came to a dead end at output position 2: it asks for text there that no token of this "
            "checkpoint can write. What was written before it is kept; change the constraint, or use another checkpoint"
        )

    def test_a_limit_of_the_compiler_is_told_in_plain_words(self) -> None:
        got = self.two_letters().compile(Constraint(grammar='start: s\ns: s s s | "a" | "b" |'))

        def write() -> None:
            for token_id in [0, 1] * 400:
                got.accept(token_id)
                got.allowed()

        with pytest.raises(ConstraintError, match="takes too much work; make it simpler, or left-recursive"):
            write()

    @staticmethod
    def two_letters() -> Compiler:
        """A checkpoint with the tokens a and b."""
        tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
        tokenizer.decoder = decoders.ByteLevel()
        vocabulary = Vocabulary.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
        return Compiler(vocabulary, 2, end_token_ids=frozenset())
