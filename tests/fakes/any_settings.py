"""Settings of every kind for the tiny checkpoints, as hypothesis draws them."""

from typing import Any

from hypothesis import strategies as st

from models.sampling import DEFAULT_ORDER, Scope

_TOKEN_IDS = st.integers(0, 511)
_CONSTRAINTS = [None, None, {"regex": "[a-z ]{0,40}"}, {"choice": [" the", " fox jumps", " a cat"]}]


def _possible(values: dict[str, Any]) -> dict[str, Any]:
    """A constraint must stand before temperature where that is 0."""
    return {name: value for name, value in values.items() if name != "order" or not values.get("constraint")}


any_settings = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.2, 0.9, 1.0, 4.0]),
        "top_k": st.integers(0, 600),
        "top_p": st.floats(0.05, 1.0),
        "min_p": st.floats(0.0, 1.0),
        "typical_p": st.floats(0.05, 1.0),
        "repetition_penalty": st.floats(0.3, 3.0),
        "repetition_scope": st.sampled_from([s.value for s in Scope]),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "presence_frequency_scope": st.sampled_from([s.value for s in Scope]),
        "no_repeat_ngram_size": st.integers(0, 3),
        "min_tokens": st.integers(0, 6),
        "logit_bias": st.dictionaries(_TOKEN_IDS.map(str), st.floats(-20, 20), max_size=4),
        "banned": st.lists(_TOKEN_IDS, max_size=4),
        "constraint": st.sampled_from(_CONSTRAINTS),
        "order": st.permutations([stage.value for stage in DEFAULT_ORDER]),
        "alternatives": st.integers(0, 30),
        "seed": st.integers(0, 2**64 - 1),
    },
).map(_possible)
"""What decides the distributions and the noise: every control but those that stop a run."""

any_stops = st.fixed_dictionaries(
    {},
    optional={
        "stop": st.lists(st.sampled_from(["a", "th", "e f", "\n", "zz", " "]), max_size=3, unique=True),
        "include_stop": st.booleans(),
        "ignore_eos": st.booleans(),
    },
)
"""What ends a run earlier or later."""
