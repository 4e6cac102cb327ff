"""The stage tables of `test_stage_tables`, worked by hand in fractions over four tokens.

A distribution is written as weights: w stands for the probability w / (sum of the weights), and its logit is ln w. With
L = ln 2, a penalty of n L divides a weight by 2^n, a temperature of 1/2 squares it, and all hand results are fractions.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from models.sampling import DEFAULT_ORDER

L = math.log(2)
HALF, QUARTER, EIGHTH, SIXTEENTH = (Fraction(1, n) for n in (2, 4, 8, 16))
STAGES = [stage.value for stage in DEFAULT_ORDER]
Weights = tuple[int | Fraction, ...]


@dataclass(frozen=True)
class Table:
    """What goes in, and the whole account that comes out."""

    name: str
    before: Weights
    settings: dict[str, Any]
    after: Weights  # in proportion; 0 where removed
    removed_by: tuple[str | None, ...] = (None,) * 4
    kept: dict[str, int] = field(default_factory=dict)
    removed_mass: dict[str, Fraction] = field(default_factory=dict)
    penalty: tuple[float, ...] = (0, 0, 0, 0)  # in units of L
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    end: frozenset[int] = frozenset()


def cut(
    name: str, before: Weights, settings: dict[str, Any], after: Weights, *, by: str, mass: Fraction | int, **rest: Any
) -> Table:
    """A table in which one stage removes: `mass` is the raw probability of the tokens whose weight is 0 `after` it."""
    removed_by = tuple(None if w else by for w in after)
    kept = sum(w > 0 for w in after)
    return Table(name, before, settings, after, removed_by, {by: kept}, {by: Fraction(mass)}, **rest)


# Tokens 1 and 2 were generated, 1 twice; 0 and 1 stand in the prompt; 3 is new.
HISTORY: dict[str, Any] = {"prompt": (0, 1), "output": (1, 2, 1)}
# z = 4L, 2L, 0, -L: two that a repetition penalty divides, one it leaves, one it would multiply.
SIGNS: Weights = (16, 4, 1, HALF)
# p = 1/2, 1/4, 1/8, 1/8
HALVES: Weights = (4, 2, 1, 1)

# Every stage is active, and the masses of HALVES tell who removed what. The end token is 0, and after the last token,
# 1, came 3 before. Counts in the output: token 1 once, token 2 twice.
ALL: dict[str, Any] = {
    "logit_bias": {"1": L},
    "banned": [3],
    "repetition_penalty": 2,
    "presence_penalty": 2 * L,
    "frequency_penalty": 2 * L,
    "no_repeat_ngram_size": 2,
    "min_tokens": 4,
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.8,
    "min_p": 0.2,
    "typical_p": 0.95,
}
ALL_HISTORY: dict[str, Any] = {"prompt": (1, 3), "output": (2, 2, 1), "end": frozenset({0})}

TABLES = [
    # +L on token 2 and -2L on token 0: 8/4, 4, 2*2, 2
    Table("bias", (8, 4, 2, 2), {"logit_bias": {"2": L, "0": -2 * L}}, (2, 4, 4, 2), penalty=(-2, 0, 1, 0)),
    cut(
        "a ban of all keeps the best, its bias included",
        (8, 4, 2, 2),
        {"logit_bias": {"1": 2 * L}, "banned": [0, 1, 2, 3]},
        (0, 1, 0, 0),
        by="bias",
        mass=Fraction(12, 16),
        penalty=(0, 2, 0, 0),
    ),
    cut("banned", HALVES, {"banned": [0, 3]}, (0, 2, 1, 0), by="bias", mass=HALF + EIGHTH),
    # A banned token takes its bias all the same: the account has both.
    cut(
        "bias and banned",
        HALVES,
        {"banned": [0], "logit_bias": {"0": L, "3": L}},
        (0, 2, 1, 2),
        by="bias",
        mass=HALF,
        penalty=(1, 0, 0, 1),
    ),
    # 4L/2 = 2L and 2L/2 = L for what was seen; 0/2 = 0 for token 2; token 3 is new.
    Table(
        "repetition, all",
        SIGNS,
        {"repetition_penalty": 2},
        (4, 2, 1, HALF),
        penalty=(-2, -1, 0, 0),
        **HISTORY,
    ),
    # Token 0 stands in the prompt alone: out of this scope. -L*2 = -2L for token 3, which is generated here.
    Table(
        "repetition, output",
        SIGNS,
        {"repetition_penalty": 2, "repetition_scope": "output"},
        (16, 2, 1, QUARTER),
        penalty=(0, -1, 0, -1),
        prompt=(0, 1),
        output=(1, 2, 3),
    ),
    # Below 1 it rewards: 4L*2 = 8L, 2L*2 = 4L, and -L/2 would make 2^(-1/2), so token 3 stays out of it.
    Table(
        "repetition below 1", SIGNS, {"repetition_penalty": 0.5}, (256, 16, 1, HALF), penalty=(4, 2, 0, 0), **HISTORY
    ),
    # In the output: token 1 twice, token 2 once. Presence: -L each.
    Table("presence, output", (8, 8, 4, 2), {"presence_penalty": L}, (8, 4, 2, 2), penalty=(0, -1, -1, 0), **HISTORY),
    # With the prompt: token 0 once, token 1 three times, token 2 once.
    Table(
        "presence, all",
        (8, 8, 4, 2),
        {"presence_penalty": L, "presence_frequency_scope": "all"},
        (4, 4, 2, 2),
        penalty=(-1, -1, -1, 0),
        **HISTORY,
    ),
    Table("frequency, output", (8, 8, 4, 2), {"frequency_penalty": L}, (8, 2, 2, 2), penalty=(0, -2, -1, 0), **HISTORY),
    Table(
        "frequency, all",
        (8, 8, 4, 2),
        {"frequency_penalty": L, "presence_frequency_scope": "all"},
        (4, 1, 2, 2),
        penalty=(-1, -3, -1, 0),
        **HISTORY,
    ),
    # Negative ones reward: token 1 by 2L + 2*L = 4L, token 2 by 2L + L = 3L.
    Table(
        "presence and frequency, rewarding",
        (8, 8, 4, 2),
        {"presence_penalty": -2 * L, "frequency_penalty": -L},
        (8, 128, 32, 2),
        penalty=(0, 4, 3, 0),
        **HISTORY,
    ),
    # The history is 0 1 1 2 1. After the last token, 1, came 1 and 2 before.
    cut(
        "no_repeat_ngram of 2",
        HALVES,
        {"no_repeat_ngram_size": 2},
        (4, 0, 0, 1),
        by="no_repeat_ngram",
        mass=QUARTER + EIGHTH,
        **HISTORY,
    ),
    # The last two are 2 1; they stand nowhere before.
    cut("no_repeat_ngram of 3", HALVES, {"no_repeat_ngram_size": 3}, HALVES, by="no_repeat_ngram", mass=0, **HISTORY),
    cut(
        "min_tokens, one short",
        HALVES,
        {"min_tokens": 4},
        (0, 2, 1, 0),
        by="min_tokens",
        mass=HALF + EIGHTH,
        end=frozenset({0, 3}),
        **HISTORY,
    ),
    Table("min_tokens, reached", HALVES, {"min_tokens": 3}, HALVES, end=frozenset({0, 3}), **HISTORY),
    Table("temperature 1/2", (4, 2, 1, HALF), {"temperature": 0.5}, (16, 4, 1, QUARTER)),
    Table("temperature 2", (16, 4, 1, QUARTER), {"temperature": 2}, (4, 2, 1, HALF)),
    # Greedy compares what the stages before it leave: 4/4 for token 0, so the first of the 2s wins. Nothing later acts,
    # although each would remove something.
    Table(
        "temperature 0",
        (4, 2, 2, 1),
        {"temperature": 0, "presence_penalty": 2 * L, "top_k": 1, "top_p": 0.1, "min_p": 0.9, "typical_p": 0.1},
        (1, 2, 2, 1),
        penalty=(-2, 0, 0, 0),
        output=(0, 0),
    ),
    # The second largest is 4, and there are two of it.
    cut("top_k with a tie", (8, 4, 4, 2), {"top_k": 2}, (8, 4, 4, 0), by="top_k", mass=Fraction(1, 9)),
    cut("top_k over the vocabulary", HALVES, {"top_k": 99}, HALVES, by="top_k", mass=0),
    # 1/2 < 0.6 <= 1/2 + 1/4: the token that crosses stays.
    cut("top_p, the crossing token", HALVES, {"top_p": 0.6}, (4, 2, 0, 0), by="top_p", mass=QUARTER),
    # 3/4 < 0.8 <= 3/4 + 1/8: one of the two equals crosses, and it is the one with the lower id.
    cut("top_p with a tie", HALVES, {"top_p": 0.8}, (4, 2, 1, 0), by="top_p", mass=EIGHTH),
    # Half is reached by two of four equals, exactly: the set is not larger than it must be.
    cut("top_p reached exactly", (1, 1, 1, 1), {"top_p": 0.5}, (1, 1, 0, 0), by="top_p", mass=HALF),
    # Below 0.4 * 1/2 = 1/5: the two eighths.
    cut("min_p", HALVES, {"min_p": 0.4}, (4, 2, 0, 0), by="min_p", mass=QUARTER),
    # What is as probable as the border is not below it.
    cut("min_p 1", (2, 2, 1, 1), {"min_p": 1}, (2, 2, 0, 0), by="min_p", mass=Fraction(1, 3)),
    # In bits: H = 1/2*1 + 1/4*2 + 1/8*3 + 1/8*3 = 7/4; |-log p - H| = 3/4, 1/4, 5/4, 5/4. Nearest first: 1, 0, then 2
    # and 3 alike. 1/4 >= 0.2: token 1 alone, although token 0 is the most probable.
    cut("typical, the nearest", HALVES, {"typical_p": 0.2}, (0, 1, 0, 0), by="typical", mass=1 - QUARTER),
    # 1/4 < 0.7 <= 1/4 + 1/2
    cut("typical, the crossing token", HALVES, {"typical_p": 0.7}, (4, 2, 0, 0), by="typical", mass=QUARTER),
    # 3/4 < 0.8 <= 7/8: token 2 crosses, and token 3 is as typical.
    cut("typical with a tie", HALVES, {"typical_p": 0.8}, HALVES, by="typical", mass=0),
    # In units of L. bias: 5, 4+1, 3, and 3 goes (1/8). repetition: 5/2 for token 1, 3/2 for token 2. presence and
    # frequency: token 1 loses 2+2, to -3/2; token 2 loses 2+4, to -9/2. no_repeat_ngram: 3, which is gone. min_tokens:
    # 0 goes (1/2). temperature: -3 and -9. top_k keeps both. top_p: 64 to 1, and 64/65 >= 0.8, so 2 goes (1/8).
    Table(
        "all stages",
        (32, 16, 8, 8),
        ALL,
        (0, 1, 0, 0),
        removed_by=("min_tokens", None, "top_p", "bias"),
        kept={"bias": 3, "no_repeat_ngram": 3, "min_tokens": 2, "top_k": 2, "top_p": 1, "min_p": 1, "typical": 1},
        removed_mass={
            **dict.fromkeys(["no_repeat_ngram", "top_k", "min_p", "typical"], Fraction(0)),
            "bias": EIGHTH,
            "min_tokens": HALF,
            "top_p": EIGHTH,
        },
        penalty=(0, 1 - 2.5 - 4, -1.5 - 6, 0),
        **ALL_HISTORY,
    ),
    # The same backwards. typical: 1/4 + 1/2 + 1/8 < 0.95, so all stay. min_p: 1/8 >= 0.2 * 1/2. top_p: 7/8 >= 0.8, so 3
    # goes (1/8). top_k keeps three. temperature: 10, 8, 6. min_tokens: 0 goes (1/2). no_repeat_ngram: 3, which is gone.
    # presence and frequency: 8-4 = 4 and 6-6 = 0. repetition: 2 and 0. bias: 3 and 0; 3 is banned, and gone.
    Table(
        "all stages backwards",
        (32, 16, 8, 8),
        {**ALL, "order": STAGES[::-1]},
        (0, 8, 1, 0),
        removed_by=("min_tokens", None, None, "top_p"),
        kept={"typical": 4, "min_p": 4, "top_p": 3, "top_k": 3, "min_tokens": 2, "no_repeat_ngram": 2, "bias": 2},
        removed_mass={
            **dict.fromkeys(["typical", "min_p", "top_k", "no_repeat_ngram", "bias"], Fraction(0)),
            "top_p": EIGHTH,
            "min_tokens": HALF,
        },
        penalty=(0, -4 - 2 + 1, -6, 0),
        **ALL_HISTORY,
    ),
]
