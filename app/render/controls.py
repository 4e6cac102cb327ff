"""The controls of a run as data: one table gives the panels their rows, the help its formulas, the form its kinds."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Control:
    """One row. `low`, `high`, `step` are the slider's, not the bounds of the value."""

    field: str
    kind: str  # "number", "integer", "flag", "choice", "lines", "order"
    help: str
    formula: str = ""
    off: str = ""  # how the neutral value reads; "" where the number itself is neutral
    low: float = 0
    high: float = 1
    step: float = 0.01
    choices: tuple[str, ...] = ()
    has_slider: bool = False
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    title: str  # "" for the rows that are always open
    controls: tuple[Control, ...]


GROUPS: Final = (
    Group(
        "",
        (
            Control(
                "temperature",
                "number",
                "Divides every logit: below 1 sharpens, above 1 flattens, 0 always takes the best.",
                "z / T",
                low=0,
                high=2,
                step=0.05,
                has_slider=True,
            ),
            Control(
                "top_k",
                "integer",
                "Keeps the k best tokens; ties with the k-th stay.",
                "z ≥ the k-th largest",
                off="off",
                low=0,
                high=200,
                step=1,
                has_slider=True,
            ),
            Control(
                "top_p",
                "number",
                "Keeps the smallest set of best tokens whose probability reaches p, the crossing one included.",
                "Σ p ≥ top_p",
                off="off",
                has_slider=True,
            ),
            Control(
                "min_p",
                "number",
                "Removes tokens that are much less probable than the best one.",
                "p < min_p · p_max is removed",
                off="off",
                has_slider=True,
            ),
            Control(
                "typical_p",
                "number",
                "Keeps the tokens whose surprise is closest to the entropy, up to this mass.",
                "smallest |−log p − H| first, Σ p ≥ typical_p",
                off="off",
                has_slider=True,
            ),
        ),
    ),
    Group(
        "penalties",
        (
            Control(
                "repetition_penalty",
                "number",
                "Weakens every token that has occurred, once, however often it did.",
                "z / r where z > 0, else z · r",
                off="off",
                low=0.5,
                high=2,
                step=0.01,
                has_slider=True,
            ),
            Control(
                "repetition_scope",
                "choice",
                "Which tokens count for repetition_penalty: prompt and output (as transformers) or output alone.",
                choices=("all", "output"),
            ),
            Control(
                "presence_penalty",
                "number",
                "Lowers every token that has occurred by a fixed amount.",
                "z − presence, where count > 0",
                off="off",
                low=-2,
                high=2,
                step=0.05,
                has_slider=True,
            ),
            Control(
                "frequency_penalty",
                "number",
                "Lowers a token by this amount for each time it has occurred.",
                "z − frequency · count",
                off="off",
                low=-2,
                high=2,
                step=0.05,
                has_slider=True,
            ),
            Control(
                "presence_frequency_scope",
                "choice",
                "Which tokens presence and frequency count: output alone (as the OpenAI API) or prompt and output.",
                choices=("output", "all"),
            ),
            Control(
                "no_repeat_ngram_size",
                "integer",
                "Removes every token that would complete a run of n tokens seen before in prompt or output.",
                "n-gram seen before is removed",
                off="off",
            ),
        ),
    ),
    Group(
        "bias, bans, constraint",
        (
            Control(
                "logit_bias",
                "lines",
                "Adds a number to the logits of single tokens.",
                "z + bias",
                placeholder="token id: bias, one a line",
            ),
            Control(
                "banned",
                "lines",
                "Tokens that must not come: an id, or a text that is one token.",
                placeholder='id or "text", one a line',
            ),
            Control(
                "constraint",
                "lines",
                "What the whole output must be: json_schema, regex, choice or grammar, as JSON. The run ends where "
                "nothing but an end is left; JSON comes without white space between its parts.",
                "what would break it is removed",
                placeholder='{"choice": ["yes", "no"]}',
            ),
        ),
    ),
    Group(
        "beam search",
        (
            Control(
                "num_beams",
                "integer",
                "Follows this many texts side by side, 2 to 16, and takes the best. Nothing is drawn then: temperature "
                "and what cuts the tail are inert, and so is the seed. A constraint binds each of them. The text comes "
                "when the search has ended.",
                off="off",
            ),
            Control(
                "length_penalty",
                "number",
                "Of beam search: above 0 favours long texts, below 0 short ones.",
                "Σ ln p / length ^ length_penalty",
                low=-2,
                high=2,
                step=0.1,
                has_slider=True,
            ),
            Control(
                "early_stopping",
                "choice",
                "Of beam search, once num_beams texts are complete: true ends it, false goes on while the best one "
                "that runs beats the worst of them now, never while it could do so later.",
                choices=("false", "true", "never"),
            ),
        ),
    ),
    Group(
        "stops",
        (
            Control(
                "stop",
                "lines",
                "The run ends where its text contains one of these. Write \\n for a line break.",
                placeholder="one a line",
            ),
            Control("include_stop", "flag", "Leaves the stop string in the text."),
            Control("stop_token_ids", "lines", "The run ends at one of these tokens.", placeholder="ids, one a line"),
            Control("ignore_eos", "flag", "Goes on after the checkpoint's end token."),
            Control("min_tokens", "integer", "End tokens are removed until this many tokens are there.", off="off"),
        ),
    ),
    Group(
        "order, prompt, record",
        (
            Control("order", "order", "The stages act on the logits from top to bottom."),
            Control(
                "parse_special",
                "flag",
                "Special tokens written in the prompt count as such, not as plain text. "
                "A begin-of-text token that it begins with is not put before it again.",
            ),
            Control("alternatives", "integer", "How many candidates are recorded for each token, by raw probability."),
        ),
    ),
)

BUDGET: Final = (
    Control("seed", "integer", "The randomness, whole: same seed and settings, same text."),
    Control("max_tokens", "integer", "A budget, never a target: it changes no probability."),
)

CONTROLS: Final[dict[str, Control]] = {c.field: c for g in GROUPS for c in g.controls} | {c.field: c for c in BUDGET}
