"""A comparison as the page knows it so far: its arms, where each leaves the first, and their figures."""

from dataclasses import dataclass, field
from typing import Any

from app.compare import Divergence, explain, figures, first_divergence
from app.render.ending import reason_words
from app.render.live import RunView
from app.render.text import count, decimal, esc, milliseconds


@dataclass(slots=True)
class Arm:
    """One column."""

    name: str
    label: str  # its settings in short
    view: RunView
    divergence: Divergence | None = None
    num_compared: int = 0


@dataclass(slots=True)
class CompareView:
    """The arms of one comparison; the first is what the others are compared with."""

    experiment_id: str
    arms: list[Arm] = field(default_factory=list)
    num_left_out: int = 0  # arms of the comparison that the page has no column for

    def update_divergence(self) -> None:
        """Look at the tokens that came since the last call; a divergence that was found stays."""
        base = self.arms[0].view
        for arm in self.arms[1:]:
            if arm.divergence is None:
                _compare(base, arm)

    def columns(self) -> dict[str, Any]:
        """The value of the columns: every strip with its arm's name, label and place of divergence."""
        arms = [
            {**a.view.strip(), "name": a.name, "label": a.label, "divergence": self._position(i)}
            for i, a in enumerate(self.arms)
        ]
        return {"experiment": self.experiment_id, "arms": arms}

    def words(self) -> str:
        """The sentences about divergence and the table of figures as HTML."""
        sentences = self._left_out() + "".join(_sentence(self.arms[0], arm) for arm in self.arms[1:])
        return f'<div class="dl-outcome">{sentences}{self._table()}</div>'

    def _position(self, index: int) -> int | None:
        """Where arm `index` leaves the first; for the first itself, where the earliest other leaves it."""
        if index:
            divergence = self.arms[index].divergence
            return divergence.position if divergence else None
        return min((a.divergence.position for a in self.arms[1:] if a.divergence), default=None)

    def _left_out(self) -> str:
        if not self.num_left_out:
            return ""
        shown, number = len(self.arms), len(self.arms) + self.num_left_out
        words = f"This comparison has {number} arms; the first {shown} are shown here, all of them in the history."
        return f'<p class="dl-divergence dl-soft">{words}</p>'

    def _table(self) -> str:
        rows = "".join(_figures_row(arm) for arm in self.arms)
        return (
            '<div class="dl-scroll"><table class="dl-table"><thead><tr><th>arm</th><th>settings</th><th>stop</th>'
            '<th class="dl-num">tokens</th><th class="dl-num">mean raw logprob</th>'
            '<th class="dl-num">raw perplexity</th>'
            '<th class="dl-num">distinct-2</th><th class="dl-num">TTFT</th><th class="dl-num">tok/s</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )


def _compare(base: RunView, arm: Arm) -> None:
    both_ended = base.ended is not None and arm.view.ended is not None
    num_common = min(len(base.tokens), len(arm.view.tokens))
    if both_ended:
        arm.divergence = first_divergence(base.tokens, arm.view.tokens)
        return
    start, arm.num_compared = arm.num_compared, num_common
    arm.divergence = first_divergence(base.tokens[start:num_common], arm.view.tokens[start:num_common])


def _sentence(base: Arm, arm: Arm) -> str:
    if arm.divergence is not None:
        words = esc(explain(arm.divergence, a=base.name, b=arm.name))
        return f'<p class="dl-divergence"><b>{esc(arm.name)}</b> leaves {esc(base.name)}. {words}</p>'
    same = "is the same, token for token, as" if arm.view.ended and base.view.ended else "is so far the same as"
    return f'<p class="dl-divergence dl-soft"><b>{esc(arm.name)}</b> {same} {esc(base.name)}.</p>'


def _figures_row(arm: Arm) -> str:
    ended, found = arm.view.ended, figures(arm.view.tokens)
    timing = ended.timing if ended else None
    cells = [
        count(found.num_tokens),
        decimal(found.mean_logprob, 3),
        decimal(found.perplexity, 2),
        decimal(found.distinct.get(2), 2),
        milliseconds(timing.ttft_ms) if timing else "",
        decimal(timing.tokens_per_s if timing else None, 1),
    ]
    stop = esc(reason_words(ended.stop.reason)) if ended else f'<span class="dl-soft">{arm.view.state}</span>'
    numbers = "".join(f'<td class="dl-num">{cell}</td>' for cell in cells)
    return f'<tr><th scope="row">{esc(arm.name)}</th><td>{esc(arm.label)}</td><td>{stop}</td>{numbers}</tr>'
