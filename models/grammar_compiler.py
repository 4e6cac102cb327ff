"""Compile a grammar under limits; run as a program, try one out and be killed where that takes too long.

llguidance's own limits bound most of what it does, and are set here. What they do not bound (intersections, a
`multipleOf` of many digits) only shows when it is tried, and cannot be interrupted inside a process. So whoever takes a
grammar from outside has it tried out first, in a process of its own whose computing time the kernel bounds.

This file knows the standard library and llguidance alone: the process starts in a tenth of a second.
"""

import json
import resource
import signal
import sys
import threading
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

CPU_S: Final = 0.7  # computing time of a trial, its start included
_MEMORY_BYTES: Final = 2 << 30
# The compiler recurses along references: a chain of 1,000 in a schema of 100 KB overflows the usual 8 MB, and with it
# the whole process. Only what is used of a stack takes memory.
_STACK_BYTES: Final = 256 << 20
_NUM_TRIED: Final = 24  # bytes of one output that a trial goes through
_MAX_MESSAGE: Final = 200
NOTHING: Final = "nothing can satisfy it"
_TOO_MUCH: Final = "a step of it takes too much work; make it simpler, or left-recursive where it is right-recursive"
_IN_PLAIN_WORDS: Final = {  # how a message of the library begins that means something to its authors alone
    "NoExtension": NOTHING,
    "parser error: Too many items": _TOO_MUCH,
    "Parser Error: Current row has": _TOO_MUCH,
    "lexer error: too many": _TOO_MUCH,
    "parser stopped": "it goes no further",
    "panic": "the compiler cannot read it",
}
_threads = threading.Lock()  # the size of a stack is set for the process, before a thread is started


def limits() -> LLParserLimits:
    """A third of the default work at compilation, two fifths at a step: about 0.3 s at the worst."""
    return LLParserLimits(initial_lexer_fuel=300_000, step_max_items=20_000, verbose_errors=False)


def compile_grammar(grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    """A matcher that can begin. Raises ValueError with a sentence where the grammar is none or nothing satisfies it."""
    matcher = _in_deep_thread(grammar, tokenizer)
    refuse_error(matcher)
    matcher.compute_bitmask()
    refuse_error(matcher)
    return matcher


def refuse_error(matcher: LLMatcher) -> None:
    """Raise ValueError with the matcher's error, where it has one: from then on it accepts nothing."""
    if matcher.is_error():
        raise ValueError(_sentence(matcher.get_error()))


def bytes_tokenizer() -> LLTokenizer:
    """Every byte is a token, and 256 is the end."""
    return make_tokenizer([bytes([i]) for i in range(256)])


def make_tokenizer(tokens: list[bytes]) -> LLTokenizer:
    """A tokenizer with these tokens and one more, the end, which no grammar can name. A b"" is never allowed."""
    return LLTokenizer(TokenizerWrapper(_Tokens(tokens)), n_vocab=len(tokens) + 1, eos_token=len(tokens))


class _Tokens:
    """What llguidance asks of a tokenizer. Its encoding is used where one spelling is forced, which is never done."""

    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()

    def __init__(self, tokens: list[bytes]) -> None:
        self.eos_token_id = len(tokens)
        self.tokens = [*tokens, b""]

    def __call__(self, *_: object) -> list[int]:
        return []


def _in_deep_thread(grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    made: list[LLMatcher] = []

    def make() -> None:
        made.append(LLMatcher(tokenizer, grammar, log_level=0, limits=limits()))

    with _threads:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=make, name="grammar")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return made[0]


def _sentence(error: str) -> str:
    """The compiler's message in one line: where it quotes at length, the line that says what is wrong."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    for beginning, words in _IN_PLAIN_WORDS.items():
        if lines and lines[0].startswith(beginning):
            return words
    told = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    return told if len(told) <= _MAX_MESSAGE else told[: _MAX_MESSAGE - 3] + "..."


def _try_out(grammar: str) -> None:
    """Compile and go through the beginning of one output. Raises ValueError."""
    matcher = compile_grammar(grammar, bytes_tokenizer())
    for _ in range(_NUM_TRIED):
        mask = int.from_bytes(matcher.compute_bitmask(), "little") & ((1 << 256) - 1)
        refuse_error(matcher)
        if not mask or matcher.is_stopped():
            return
        matcher.consume_token((mask & -mask).bit_length() - 1)  # the lowest byte that is allowed
        refuse_error(matcher)


def main() -> None:
    """Reads a grammar, writes {"error": sentence or null}."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process, whatever it is doing
    error = None
    try:
        _try_out(sys.stdin.buffer.read().decode())
    except ValueError as exc:
        error = str(exc)
    sys.stdout.write(json.dumps({"error": error}))


if __name__ == "__main__":
    main()
