"""What helps a person find their way: the keyboard map, and three hints after the first run."""

from typing import Final

KEYS: Final = (
    ("Ctrl+Enter", "run"),
    ("Esc", "stop the run; close this list"),
    ("P", "to the prompt"),
    ("T", "to the text"),
    ("← →", "in the text: the token before, the one after"),
    ("Home End", "in the text: the first token, the last one"),
    ("1 … 5", "colour by processed, raw, surprisal, entropy, rank"),
    ("?", "this list"),
)
"""What `static/guide.js` and `static/strip.js` do, by key."""

_HINTS: Final = (
    ("token", "Click a token: its rivals, their probabilities, and what removed each."),
    ("compare", '<a href="./compare">Compare</a> runs one prompt under several settings with the same randomness.'),
    ("history", '<a href="./history">History</a> has kept this run; its link, in the address bar, opens it again.'),
)


def guide() -> str:
    """The hints, hidden until they are due, and the list of keys as a dialog with the button that opens it."""
    rows = "".join(f"<tr><th scope='row'><kbd>{key}</kbd></th><td>{words}</td></tr>" for key, words in KEYS)
    got_it = '<button type="button" class="dl-link" data-got-it>got it</button>'
    items = "".join(f'<li data-hint="{name}" hidden><span>{words}</span>{got_it}</li>' for name, words in _HINTS)
    return (
        f'<ul class="dl-hints" aria-label="hints">{items}</ul>'
        '<button type="button" class="dl-link" data-keys>keyboard: ?</button>'
        '<dialog class="dl-keymap" aria-labelledby="dl-keymap-title"><h2 id="dl-keymap-title">Keyboard</h2>'
        f'<table><tbody>{rows}</tbody></table><button type="button" class="dl-link" data-close autofocus>close</button>'
        "</dialog>"
    )
