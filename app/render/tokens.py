"""What the token strip needs of each token, as one compact line, and the scales that colour it.

A strip's value only ever grows at its end, so that a browser is sent what is new and nothing twice: one line of JSON a
token, `[text, raw, processed, entropy, rank]`, with `[.., kind, extra]` where the token is not plain text.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.render.text import sendable, spelled
from models.events import TokenPicked

PLAIN: Final = 0
SPECIAL: Final = 1  # an end token or another special token: its spelling, as a chip
PART: Final = 2  # a part of a character: its bytes, as a chip
WITHHELD: Final = 3  # cut away wholly by a stop string
CUT: Final = 4  # cut in part: the rest of the piece is `extra`


@dataclass(frozen=True, slots=True)
class Scale:
    """One way to colour tokens. `edges` are the upper bounds of the first shades, in the unit of the measure."""

    name: str
    measure: str  # "raw", "processed": probability; "surprisal", "entropy": bits; "rank"
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    help: str


# Shade 0 is the page itself: what the checkpoint expected. For probabilities the edges are lower bounds.
_PROBABILITY_EDGES: Final = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)
_PROBABILITY_LABELS: Final = ("≥90 %", "70", "50", "30", "10", "3", "1", "<1 %")
_BIT_EDGES: Final = (0.25, 0.75, 1.5, 2.5, 4, 6, 8)
_BIT_LABELS: Final = ("<¼ bit", "¾", "1½", "2½", "4", "6", "8", ">8 bits")

SCALES: Final = (
    Scale("processed", "processed", _PROBABILITY_EDGES, _PROBABILITY_LABELS, "probability after the settings"),
    Scale("raw", "raw", _PROBABILITY_EDGES, _PROBABILITY_LABELS, "probability that the checkpoint gave"),
    Scale("surprisal", "surprisal", _BIT_EDGES, _BIT_LABELS, "bits of surprise: minus log2 of the raw probability"),
    Scale("entropy", "entropy", _BIT_EDGES, _BIT_LABELS, "how undecided the checkpoint was at this token, in bits"),
    Scale(
        "rank",
        "rank",
        (1, 2, 4, 8, 16, 64, 256),
        ("1st", "2", "4", "8", "16", "64", "256", ">256"),
        "place of the token among all, by raw probability",
    ),
)


def scales() -> list[dict[str, Any]]:
    """The scales as plain values for the browser."""
    return [
        {"name": s.name, "measure": s.measure, "edges": list(s.edges), "labels": list(s.labels), "help": s.help}
        for s in SCALES
    ]


def line(token: TokenPicked) -> str:
    """One token's line, with its newline. Strict JSON; hostile text is data here and `textContent` in the browser."""
    values: list[Any] = [
        sendable(token.text),  # the exact bytes stay in the record
        round(token.raw_logprob, 4),
        None if token.logprob is None else round(token.logprob, 4),
        round(token.entropy, 3),
        token.rank,
    ]
    kind, extra = _kind(token)
    if kind != PLAIN:
        values += [kind, extra]
    return orjson.dumps(values).decode() + "\n"


def _kind(token: TokenPicked) -> tuple[int, str]:
    if token.withheld:
        return WITHHELD, spelled(token.piece)
    if not token.visible:
        return SPECIAL, spelled(token.piece) or f"#{token.token_id}"
    if not token.piece and not token.text:
        return PART, token.token_bytes.hex(" ") or f"#{token.token_id}"
    if token.text != token.piece and token.piece.startswith(token.text):
        return CUT, spelled(token.piece[len(token.text) :])
    return PLAIN, ""
