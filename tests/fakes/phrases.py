"""A scripted network that says a phrase, in the tokens of `tokenizers.words`."""

from tests.fakes import scripted, tokenizers
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.checkpoint import Checkpoint

WORDS = tokenizers.words()
EOS = WORDS.eos_token_id
FOX = " fox jumps over the lazy dog"


def ids(text: str) -> list[int]:
    return list(WORDS(text).input_ids)


def saying(text: str, *, end: bool = False, context_length: int = 8192, **faults: scripted.Fault) -> Checkpoint:
    """A network that says `text`, then its end token where asked to. Faults by step: `at_3=...`."""
    script = Script(
        [*ids(text), *([EOS] if end else [])],
        faults={int(name.removeprefix("at_")): fault for name, fault in faults.items()},
    )
    return scripted_checkpoint(WORDS, script, context_length=context_length)
