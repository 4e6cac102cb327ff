"""Well-known settings as starting points: a name, the forms' texts, one sentence each. All else becomes neutral."""

from dataclasses import dataclass
from typing import Any, Final

from app.render.form import Form
from app.render.text import esc


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    form: Form
    help: str


PRESETS: Final = (
    Preset("neutral", {}, "Every control off: tokens are drawn from what the checkpoint itself gives."),
    Preset("greedy", {"temperature": "0"}, "Always the best token: one text for a prompt, prone to repeat itself."),
    Preset(
        "nucleus", {"top_p": "0.9"}, "The smallest set of best tokens that holds 90 %: the classic cut of the tail."
    ),
    Preset(
        "balanced",
        {"temperature": "0.7", "top_p": "0.9"},
        "A little sharper than the checkpoint and without its tail: a common default of chat programs.",
    ),
    Preset(
        "hidden top_k 50",
        {"top_k": "50"},
        "What transformers' generate() used to do unasked: the 50 best tokens, all else as it is.",
    ),
    Preset(
        "min_p",
        {"temperature": "1.5", "min_p": "0.1"},
        "Hot, but nothing below a tenth of the best: varied while the checkpoint is unsure, sober where it is not.",
    ),
    Preset(
        "typical", {"typical_p": "0.95"}, "Tokens about as surprising as the checkpoint expects, up to 95 % of mass."
    ),
    Preset(
        "no loops",
        {"temperature": "0.8", "top_p": "0.95", "repetition_penalty": "1.1", "no_repeat_ngram_size": "4"},
        "A mild penalty on what was said, and no four tokens twice in the same order.",
    ),
)


def preset_bar() -> str:
    """The choice of a preset; the browser fills the form from `presets`."""
    options = "".join(f'<option value="{esc(p.name)}">{esc(p.name)}</option>' for p in PRESETS)
    return (
        '<div class="dl-presets"><label>preset <select data-preset aria-describedby="dl-preset-help">'
        f'<option value="">(own)</option>{options}</select></label>'
        '<span id="dl-preset-help" class="dl-soft" role="status"></span></div>'
    )


def presets() -> list[dict[str, Any]]:
    """The presets as plain values for the browser."""
    return [{"name": p.name, "form": p.form, "help": p.help} for p in PRESETS]
