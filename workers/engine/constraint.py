"""What a constraint allows next: a compiler for each checkpoint, a matcher for each sequence.

The unit is the byte. A token is allowed where the text so far, the token's bytes and some rest make an output that the
constraint accepts; how the tokenizer itself would spell that output makes no difference, and half a character is as
good as a whole one. Special tokens, and ids that the tokenizer does not have, are never allowed. The checkpoint's end
tokens are allowed exactly where the output may end; with `ignore_eos` they would end nothing, so they never are.

A constraint is about the text of the run. A stop string or a caller's stop token cuts that text wherever it comes, and
the run's stop record says so. `min_tokens` holds back end tokens, and no constraint that is complete.
"""

import functools
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from models.constraint import Constraint
from models.errors import ConstraintError
from models.grammar import constraint_error, grammar_of
from models.grammar_compiler import NOTHING, compile_grammar, make_tokenizer, refuse_error
from workers.engine.vocabulary import Vocabulary

Mask = NDArray[np.bool_]  # (vocab,): whether a token is allowed
NUM_KEPT: Final = 64
"""Positions of a given text for which what is allowed is remembered: more than any pass goes over."""

_NO_ENDS: Final[frozenset[int]] = frozenset()


class Compiler:
    """Compiles constraints for one vocabulary. The tokens are read when the first constraint comes."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, *, end_token_ids: frozenset[int]) -> None:
        """`vocab_size`: the ids that the network has logits for, which may be more than the tokenizer knows."""
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._end_token_ids = end_token_ids

    @functools.cached_property
    def _tokens(self) -> list[bytes]:
        """What each id brings to the text; b"" for an end token, a special one and one that is not there."""
        vocabulary, silent = self._vocabulary, self._end_token_ids
        return [
            b"" if token_id in silent or vocabulary.is_special(token_id) else vocabulary.token_bytes(token_id)
            for token_id in range(self._vocab_size)
        ]

    @functools.cached_property
    def _tokenizer(self) -> LLTokenizer:
        return make_tokenizer(self._tokens)

    @functools.cached_property
    def _silent_ids(self) -> NDArray[np.int64]:
        return np.flatnonzero([not token for token in self._tokens])

    @functools.cached_property
    def _opening_spaces(self) -> dict[int, int]:
        """The tokens that begin with spaces, and how many of these they lose where they begin a text.

        Empty for a tokenizer that never takes any.
        """
        vocabulary, ids = self._vocabulary, range(min(self._vocabulary.size, self._vocab_size))
        spaced = [token_id for token_id in ids if vocabulary.token_bytes(token_id).startswith(b" ")]
        lost = {token_id: vocabulary.num_opening_spaces(token_id) for token_id in spaced}
        return lost if any(lost.values()) else {}

    def compile(self, constraint: Constraint, *, ignore_eos: bool = False, begins_text: bool = False) -> "Matcher":
        """A matcher at the beginning of an output.

        `begins_text`: nothing visible stands before the output. Then a tokenizer that drops a text's first space drops
        the output's, and the constraint holds for what comes after it; a first token that would lose more, or keep
        it, is never allowed.

        Raises SettingError for what cannot be compiled, or that no output of this checkpoint can satisfy.
        """
        if not self._vocabulary.is_exact:
            reason = "this checkpoint's tokenizer does not say which bytes its tokens are; a constraint needs that"
            raise constraint_error(constraint, reason)
        lost = self._opening_spaces if begins_text else {}
        grammar = grammar_of(constraint, is_after_space=bool(lost))
        try:
            matcher = compile_grammar(grammar, self._tokenizer)
        except ValueError as exc:
            raise constraint_error(constraint, str(exc)) from exc
        return Matcher(
            matcher,
            self._vocab_size,
            end_token_ids=_NO_ENDS if ignore_eos else self._end_token_ids,
            silent_ids=self._silent_ids,
            never_first=frozenset(token_id for token_id, num_spaces in lost.items() if num_spaces != 1),
        )


class Matcher:
    """How far one output has come: `accept` every token of it, in order.

    Raises ConstraintError where it cannot go on.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        *,
        end_token_ids: frozenset[int],
        silent_ids: NDArray[np.int64],
        never_first: frozenset[int] = frozenset(),
    ) -> None:
        """`end_token_ids`: what is allowed where the output may end. `silent_ids`: tokens without text, which never
        continue it. `never_first`: tokens that may not begin it."""
        self._matcher = matcher
        self._silent_ids = silent_ids
        self._never_first = never_first
        self._vocab_size = vocab_size
        self._end_token_ids = end_token_ids
        self._num_accepted = 0
        self._going_on: Mask | None = None  # the tokens that continue the output; None until somebody asks

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def can_end(self) -> bool:
        """Whether the output so far is one that the constraint accepts."""
        return self._matcher.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether the constraint allows nothing but an end."""
        return self.can_end and not self._continuations().any()

    def allowed(self) -> Mask:
        """The tokens that may come next, ends included: (vocab,) of bool. Not empty, but where nothing but an end may
        come and there is no token for it."""
        mask = self._continuations().copy()
        if self.can_end:
            mask[list(self._end_token_ids)] = True
        return mask

    def accept(self, token_id: int) -> None:
        """Go on by a token. An end token changes nothing: the output was one that may end."""
        if token_id in self._end_token_ids and self.can_end:
            return
        if not self._matcher.consume_token(token_id):
            raise ConstraintError(
                f"the constraint does not take token {token_id} at output position {self._num_accepted}: "
                f"{self._reason()}"
            )
        self._num_accepted += 1
        self._going_on = None

    def fork(self) -> "Matcher":
        """A matcher that stands where this one stands, and goes its own way."""
        twin = Matcher(
            self._matcher.deep_copy(),
            self._vocab_size,
            end_token_ids=self._end_token_ids,
            silent_ids=self._silent_ids,
            never_first=self._never_first,
        )
        twin._num_accepted = self._num_accepted
        twin._going_on = self._going_on  # which nobody writes to
        return twin

    def _continuations(self) -> Mask:
        if self._going_on is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little").astype(bool)
            mask[self._silent_ids] = False
            if not self._num_accepted:
                mask[list(self._never_first)] = False
            if not mask.any() and not self.can_end:
                raise ConstraintError(
                    f"the constraint came to a dead end at output position {self._num_accepted}: {self._reason()}. "
                    "What was written before it is kept; change the constraint, or use another checkpoint"
                )
            self._going_on = mask
        return self._going_on

    def _reason(self) -> str:
        """Why it goes no further."""
        try:
            refuse_error(self._matcher)
        except ValueError as exc:
            if str(exc) != NOTHING:
                return str(exc)
        return "it asks for text there that no token of this checkpoint can write"


class Allowances:
    """What a constraint allows at each position of a text that is there already.

    After the first token that breaks it nothing can make the output right again: from there on everything counts as
    allowed, as if there were no constraint.

    Readers go forward, some positions at a time. The latest `NUM_KEPT` are remembered, so memory does not grow with the
    text; whoever asks for an earlier one has the text read again from its beginning.
    """

    def __init__(self, matcher: Matcher, token_ids: Sequence[int]) -> None:
        """`matcher` stands before the first of `token_ids`."""
        self._beginning = matcher
        self._vocab_size = matcher.vocab_size
        self._token_ids = token_ids
        self._begin()

    def _begin(self) -> None:
        self._matcher: Matcher | None = self._beginning.fork()
        self._masks: deque[NDArray[np.uint8]] = deque(maxlen=NUM_KEPT)  # packed, of the latest positions
        self._num_read = 0  # positions

    def at(self, position: int) -> Mask:
        """What may stand at `position`, at most the one after the last token."""
        if position < self._num_read - len(self._masks):
            self._begin()
        while self._num_read <= position:
            self._masks.append(np.packbits(self._next()))
            self._num_read += 1
        return np.unpackbits(self._masks[position - self._num_read], count=self._vocab_size).astype(bool)

    def _next(self) -> Mask:
        position = self._num_read
        if position and self._matcher is not None:
            token_id = self._token_ids[position - 1]
            if self._matcher.allowed()[token_id]:
                self._matcher.accept(token_id)
            else:
                self._matcher = None
        allowed = None if self._matcher is None else self._allowed_now(self._matcher)
        return np.ones(self._vocab_size, dtype=bool) if allowed is None or not allowed.any() else allowed

    def _allowed_now(self, matcher: Matcher) -> Mask | None:
        """None at a dead end, where a run would have ended."""
        try:
            return matcher.allowed()
        except ConstraintError:
            self._matcher = None
            return None
