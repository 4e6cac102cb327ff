"""All texts of up to four tokens over a vocabulary of five, each with its exact probability, and what the engine says.

The enumeration is the oracle's: one uncached pass over each text, then its plain stages. A text ends with the end token
or with its fourth.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.sampling import DEFAULT_ORDER, Settings
from tests.fakes import checkpoints, tokenizers
from tests.fakes.engine_runs import drain, request, told
from tests.unit.engine_numbers.chi_square import p_value
from workers.engine import oracle
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.logits.pipeline import Row, process
from workers.engine.sampler import pick_rows

END = 4
LENGTH = 4
PROMPT = (0, 1, 0)
NUM_SEEDS = 3000
NUM_ENGINE_SEEDS = 20
LEAST_EXPECTED = 5  # of a cell in a chi-square test

Text = tuple[int, ...]

SETTINGS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.6, "temperature": 0.8},
    {"min_tokens": 3, "top_p": 0.8},
    {"typical_p": 0.7, "temperature": 1.5, "presence_penalty": 0.6, "frequency_penalty": 0.4},
    {"no_repeat_ngram_size": 2, "min_p": 0.1, "logit_bias": {"3": 1.5}},
    {"top_k": 3, "banned": [1], "min_tokens": 1, "order": [stage.value for stage in reversed(DEFAULT_ORDER)]},
    {"temperature": 0, "repetition_penalty": 1.3},
]


@dataclass(frozen=True)
class Tree:
    """A checkpoint's raw logits (vocab,) after the prompt and every text that can go on."""

    checkpoint: Checkpoint
    logits: dict[Text, np.ndarray]

    def place(self, text: Text, settings: Settings) -> oracle.Place:
        banned = self.checkpoint.banned_ids(settings)
        return oracle.Place(settings, list(PROMPT), list(text), banned, frozenset({END}))

    def logprobs(self, text: Text, settings: Settings) -> np.ndarray:
        """What the oracle gives for the token after `text`; at temperature 0 all mass lies on its pick."""
        logprobs = oracle.processed_logprobs(self.logits[text], self.place(text, settings))
        if settings.is_greedy:
            return np.where(np.arange(5) == np.argmax(logprobs), 0.0, -np.inf)
        return logprobs

    def probabilities(self, settings: Settings) -> dict[Text, float]:
        """Of every whole text, the impossible ones too."""
        done: dict[Text, float] = {}
        begun = {(): 1.0}
        while begun:
            longer = {}
            for text, mass in begun.items():
                for token_id, logprob in enumerate(self.logprobs(text, settings)):
                    longer[(*text, token_id)] = mass * math.exp(logprob)
            done |= {text: mass for text, mass in longer.items() if is_whole(text)}
            begun = {text: mass for text, mass in longer.items() if not is_whole(text)}
        return done


def is_whole(text: Text) -> bool:
    return len(text) == LENGTH or text[-1:] == (END,)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder: Path = tmp_path_factory.mktemp("five") / request.param
    # Small weights, so that no token is nearly certain.
    write, spread = {"llama": (checkpoints.write_llama, 0.22), "gpt2": (checkpoints.write_gpt2, 0.12)}[request.param]
    checkpoint = checkpoints.load(write(folder, tokenizers.letters(), vocab_size=5, initializer_range=spread))
    texts = [text for length in range(LENGTH) for text in itertools.product(range(END), repeat=length)]
    return Tree(checkpoint, {text: oracle.raw_logits(checkpoint, [*PROMPT, *text]) for text in texts})


def settings_of(values: dict[str, Any]) -> Settings:
    return Settings.parse({"max_tokens": LENGTH, "seed": 0, **values})


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_the_probabilities_of_all_texts_sum_to_one(tree: Tree, values: dict[str, Any]) -> None:
    probabilities = tree.probabilities(settings_of(values))
    assert len(probabilities) == 1 + 4 + 16 + 64 * 5  # ended after 1, 2, 3 tokens, or went on to the fourth
    assert math.fsum(probabilities.values()) == pytest.approx(1, abs=1e-9)
    num_possible = sum(p > 0 for p in probabilities.values())
    assert num_possible == 1 if values.get("temperature") == 0 else num_possible > 10


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_a_text_is_unreachable_exactly_where_the_enumeration_says_so(tree: Tree, values: dict[str, Any]) -> None:
    """At each of the 85 places where a text goes on, the engine's stages leave the oracle's tokens, as probable."""
    settings = settings_of(values)
    for text, logits in tree.logits.items():
        place = tree.place(text, settings)
        row = Row(settings, place.prompt_ids, place.output_ids, place.banned_ids, place.end_token_ids)
        mine = process(torch.from_numpy(logits)[None], [row]).logprobs[0].numpy()
        theirs = oracle.processed_logprobs(logits, place)
        assert np.isneginf(mine).tolist() == np.isneginf(theirs).tolist(), text
        assert np.exp(mine) == pytest.approx(np.exp(theirs), abs=1e-6)


ALTERNATING = [
    pytest.param(kind, v, id=f"{kind}-{v}") for kind, v in zip(["llama", "gpt2"] * 4, SETTINGS, strict=False)
]


@pytest.mark.parametrize(("tree", "values"), ALTERNATING, indirect=["tree"])
def test_each_text_is_said_as_often_as_it_is_probable(tree: Tree, values: dict[str, Any]) -> None:
    probabilities = tree.probabilities(settings_of(values))
    texts = picked(tree, settings_of(values))
    counts = Counter(texts.values())
    assert all(probabilities[text] > 0 for text in counts)
    assert {text for text, p in probabilities.items() if p > 30 / NUM_SEEDS} <= set(counts)
    cells = [text for text, p in probabilities.items() if p * NUM_SEEDS >= LEAST_EXPECTED]
    rare = NUM_SEEDS - sum(counts[text] for text in cells), 1 - math.fsum(probabilities[text] for text in cells)
    seen = torch.tensor([*(counts[text] for text in cells), rare[0]], dtype=torch.float64)
    expected = torch.tensor([*(probabilities[text] for text in cells), rare[1]], dtype=torch.float64) * NUM_SEEDS
    assert p_value(seen, expected.round(decimals=9)) > 0.001
    assert said(tree.checkpoint, values) == {seed: texts[seed] for seed in range(NUM_ENGINE_SEEDS)}


def picked(tree: Tree, settings: Settings) -> dict[int, Text]:
    """What each seed's picks make of the tree's logits: every seed a row of its own, with its own noise."""
    done: dict[int, Text] = {}
    begun: dict[Text, list[int]] = {(): list(range(NUM_SEEDS))}
    while begun:
        longer: dict[Text, list[int]] = {}
        for text, seeds in begun.items():
            place = tree.place(text, settings)
            rows = [
                Row(one, place.prompt_ids, place.output_ids, place.banned_ids, place.end_token_ids)
                for one in (settings.model_copy(update={"seed": seed}) for seed in seeds)
            ]
            processed = process(torch.from_numpy(tree.logits[text]).expand(len(seeds), -1), rows)
            picks = pick_rows(processed, rows, [len(text)] * len(seeds)).tolist()
            for seed, token_id in zip(seeds, picks, strict=True):
                longer.setdefault((*text, token_id), []).append(seed)
        done |= {seed: text for text, seeds in longer.items() if is_whole(text) for seed in seeds}
        begun = {text: seeds for text, seeds in longer.items() if not is_whole(text)}
    return done


def said(checkpoint: Checkpoint, values: dict[str, Any]) -> dict[int, Text]:
    """What each of the first seeds makes the engine say, all side by side."""
    engine = Engine(checkpoint, num_rows=NUM_ENGINE_SEEDS)
    for seed in range(NUM_ENGINE_SEEDS):
        settings = {"max_tokens": LENGTH, "seed": seed, "alternatives": 0, **values}
        engine.add(request(checkpoint, PROMPT, sequence_id=str(seed), **settings))
    return {int(seed): one.token_ids for seed, one in told(drain(engine)).items()}
