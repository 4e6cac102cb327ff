"""The lineage of a beam search: every step's beams, who continued whom, and the path that won."""

from app.render.text import count, decimal, esc
from models.beams import BeamStep, BeamsTraced

MAX_STEPS = 120  # drawn; the record has up to 2,000
STEP_WIDTH = 26
BEAM_HEIGHT = 18
MARGIN = 10
_ROUNDING = 2e-6


def lineage(traced: BeamsTraced | None, pieces: dict[int, str]) -> str:
    """A fold with the drawing. `pieces`: the texts of tokens that are known, by id; the others show their id."""
    if traced is None or not traced.steps:
        return ""
    shown = traced.steps[:MAX_STEPS]
    width = 2 * MARGIN + STEP_WIDTH * len(shown)
    height = 2 * MARGIN + BEAM_HEIGHT * max(len(step.beams) + len(step.finished) for step in shown)
    winners = _winning_places(traced)
    drawn = "".join(_step(i, step, shown[i - 1] if i else None, winners, pieces) for i, step in enumerate(shown))
    left = f", the first {count(MAX_STEPS)} are drawn" if traced.num_steps > len(shown) else ""
    pruned = _pruned(traced, pieces)
    return (
        '<details class="dl-fold dl-lineage" open><summary>beam lineage <span class="dl-soft">'
        f"{count(traced.num_beams)} beams, {count(traced.num_steps, 'step')}{left}; best score "
        f"{decimal(traced.sequence_score, 4)}</span></summary>"
        f'<div class="dl-scroll" tabindex="0" role="region" aria-label="lineage of the beams"><svg width="{width}" '
        f'height="{height}" role="img" aria-label="each column is a step, the best beam on top; the winner\'s path is '
        f'marked">{drawn}</svg></div>{pruned}</details>'
    )


def _winning_places(traced: BeamsTraced) -> list[int]:
    """The winner's place in each step: the parent of its next token, and for its last one whoever has its score."""
    places = list(traced.beam_indices[1:])
    last = len(traced.beam_indices) - 1
    if 0 <= last < len(traced.steps):
        step = traced.steps[last]
        ends = enumerate((*step.beams, *step.finished))
        parent, score = traced.beam_indices[last], traced.sequence_score
        places += [i for i, beam in ends if beam.parent == parent and abs(beam.score - score) < _ROUNDING][:1]
    return places


def _step(number: int, step: BeamStep, before: BeamStep | None, winners: list[int], pieces: dict[int, str]) -> str:
    marks = []
    for place, beam in enumerate((*step.beams, *step.finished)):
        is_winner = number < len(winners) and winners[number] == place
        name = pieces.get(beam.token_id, f"#{beam.token_id}")
        words = f"step {number}, {name!r}: log-probability {beam.total:.4f}, score {beam.score:.4f}"
        is_end = place >= len(step.beams)
        line = "" if before is None else _line(number, place, beam.parent, is_winner=is_winner)
        marks.append(line + _mark(number, place, words, is_winner=is_winner, is_end=is_end))
    return "".join(marks)


def _line(number: int, place: int, parent: int, *, is_winner: bool) -> str:
    (x, y), (px, py) = _at(number, place), _at(number - 1, parent)
    return f'<path d="M{px} {py}C{px + 12} {py} {x - 12} {y} {x} {y}"{_class(is_winner)}/>'


def _mark(number: int, place: int, words: str, *, is_winner: bool, is_end: bool) -> str:
    """A circle, or a square for a beam that ended there."""
    x, y = _at(number, place)
    if is_end:
        title = f"<title>{esc(words)}, ended here</title>"
        return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"{_class(is_winner)}>{title}</rect>'
    return f'<circle cx="{x}" cy="{y}" r="4"{_class(is_winner)}><title>{esc(words)}</title></circle>'


def _at(number: int, place: int) -> tuple[int, int]:
    return MARGIN + STEP_WIDTH * number + 4, MARGIN + BEAM_HEIGHT * place + 4


def _class(is_winner: bool) -> str:
    return ' class="dl-won"' if is_winner else ""


def _pruned(traced: BeamsTraced, pieces: dict[int, str]) -> str:
    """The closest losers of all steps: what a wider search would have kept first."""
    lost = [(p.margin, number, p.token_id) for number, step in enumerate(traced.steps) for p in step.pruned]
    if not lost:
        return ""
    items = "".join(
        f"<li>step {number}: <code>{esc(repr(pieces.get(token_id, f'#{token_id}')))}</code> lost by "
        f"{decimal(margin, 4)} nats</li>"
        for margin, number, token_id in sorted(lost)[:5]
    )
    return f'<p class="dl-soft">Dropped by the smallest margins:</p><ul>{items}</ul>'
