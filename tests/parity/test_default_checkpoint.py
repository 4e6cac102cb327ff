"""The default checkpoint against transformers: 20 prompts, greedy, five settings, and a beam search."""

from typing import Any

import pytest

from tests.fakes.engine_runs import run
from tests.parity.agreement import SETTINGS, heard, processed_agree, raw_agree
from tests.parity.reference import generated_by_transformers
from tests.parity.test_beams import agree, by_transformers, by_us
from workers.engine.checkpoint import Checkpoint

pytestmark = pytest.mark.checkpoint

PROMPTS = [
    "A",
    " ",
    "Hello, my name is",
    "The three primary colours are red,",
    "SELECT name FROM users WHERE",
    "Il était une fois",
    "私の名前は",
    "#include <stdio.h>\n\nint main(",
    "Q: What is 7 times 8?\nA:",
    "The opposite of hot is",
    "<html>\n<body>\n",
    "Roses are red, violets are",
    "\n\n\n",
    "In 1969, the first man on the moon was",
    "x = [1, 2, 3]\nprint(x[",
    "yes yes yes yes yes yes yes",
    "Dear Sir or Madam,\n\n",
    "3.14159265358979323846",
    "ΑΒΓ αβγ 123 !?",
    "The cat sat on the mat. The dog sat on the rug. The bird sat on the branch. " * 4,
]


@pytest.mark.parametrize("prompt", PROMPTS, ids=[f"prompt{i}" for i in range(len(PROMPTS))])
def test_greedy_and_beams_are_generates(default_checkpoint: Checkpoint, prompt: str) -> None:
    prompt_ids = default_checkpoint.encode(prompt)
    with heard() as own:
        got = run(default_checkpoint, prompt_ids, temperature=0.0, max_tokens=8)
    assert list(got.token_ids) == generated_by_transformers(default_checkpoint, prompt_ids, num_tokens=8)
    raw_agree(default_checkpoint, prompt_ids, got, own)
    found, _ = by_us(default_checkpoint, prompt_ids, num_beams=3, max_tokens=4)
    agree(found, by_transformers(default_checkpoint, prompt_ids, num_beams=3, max_new_tokens=4))


@pytest.mark.parametrize("case", SETTINGS, ids=str)
def test_processed_logprobs_are_those_of_the_processors(default_checkpoint: Checkpoint, case: dict[str, Any]) -> None:
    for number, prompt in enumerate(PROMPTS):
        processed_agree(default_checkpoint, default_checkpoint.encode(prompt), case, max_tokens=2, seed=number)
