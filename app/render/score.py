"""The figures of a scored text: what the checkpoint and the settings make of it."""

from collections.abc import Sequence

from app.render.ending import ending
from app.render.text import count, decimal, esc, quoted
from app.render.timing import cache_line
from models.events import Ended, Prefilled, TokenPicked
from models.sampling import Settings
from models.score import Impossible, ScoreFigures, score_figures


def score_facts(tokens: Sequence[TokenPicked], ended: Ended, prefilled: Prefilled | None, settings: Settings) -> str:
    """`score_words`, how the score ended, and what its passes computed."""
    return (
        f'<div class="dl-facts-block">{score_words(tokens, is_greedy=settings.is_greedy)}'
        f"{ending(ended, settings, is_scored=True)}{cache_line(ended, prefilled, read_too='the given text')}</div>"
    )


def score_words(tokens: Sequence[TokenPicked], *, is_greedy: bool) -> str:
    """Perplexity raw and processed, and the first token that the settings make impossible, as HTML."""
    figures = score_figures(tokens, is_greedy=is_greedy)
    if not figures.num_tokens:
        return '<p class="dl-hint">The text has no token.</p>'
    rows = _row("raw", figures.raw_perplexity, figures.raw_mean_logprob, figures.raw_logprob)
    rows += _row("processed", figures.perplexity, figures.mean_logprob, figures.logprob)
    return (
        '<table class="dl-score-figures"><thead><tr><th></th><th class="dl-num">perplexity</th>'
        '<th class="dl-num">nats a token</th><th class="dl-num">log-probability</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{_first_impossible(figures, tokens)}"
    )


def _row(name: str, perplexity: float | None, mean: float | None, total: float | None) -> str:
    cells = [
        _number(perplexity, 2, none="infinite" if total is None else "beyond a float"),
        _number(mean, 3, none="−∞"),
        _number(total, 2, none="−∞"),
    ]
    values = "".join(f'<td class="dl-num">{cell}</td>' for cell in cells)
    told = "" if perplexity is None else repr(perplexity)
    return f'<tr data-figures="{name}" data-perplexity="{told}"><th scope="row">{name}</th>{values}</tr>'


def _number(value: float | None, digits: int, *, none: str) -> str:
    return none if value is None else decimal(value, digits)


def _first_impossible(figures: ScoreFigures, tokens: Sequence[TokenPicked]) -> str:
    first = figures.first_impossible
    if first is None:
        return '<p class="dl-possible">These settings permit every token of the text.</p>'
    number = sum(token.logprob is None for token in tokens)
    more = f", the first of {count(number)}" if number > 1 else ""
    return (
        f'<p class="dl-possible" data-first-impossible="{first.position}">First impossible token{more}: '
        f'<button type="button" class="dl-link" data-goto="{first.position}">token {first.position}</button> '
        f"{quoted(first.piece)}, {_stage(first)}.</p>"
    )


def _stage(first: Impossible) -> str:
    if first.stage == "temperature":
        return "greedy decoding takes another"
    return f"removed by {esc(first.stage)}" if first.stage else "which nothing permits"
