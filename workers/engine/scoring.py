"""Score: what a checkpoint and settings make of a text that is given (teacher forcing).

The engine runs over the text as it runs over its own picks, only that a pass takes several tokens at once: the tokens
are those of a generated run, as if each given token had been picked at its position. A generated run that is scored
with its own settings has its own log-probabilities, raw and processed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.beams import BeamsTraced
from models.errors import RunError
from models.events import Ended, Prefilled, StopReason, TokenPicked
from models.sampling import Settings
from models.score import ScoreFigures, score_figures
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request


@dataclass(frozen=True, slots=True)
class Score:
    """A scored text."""

    tokens: tuple[TokenPicked, ...]
    figures: ScoreFigures
    ended: Ended  # passes, positions and bytes of the cache, times


def score(checkpoint: Checkpoint, prompt_ids: Sequence[int], given_ids: Sequence[int], settings: Settings) -> Score:
    """Score `given_ids` after `prompt_ids` under `settings`, whose stop rules have no part in it.

    `settings.seed` must be set; it gives the noise that the candidates show, and has no influence on any probability.
    Raises PromptError, SettingError, and RunError where the checkpoint's numbers are no distribution.
    """
    engine = Engine(checkpoint)
    engine.add(Request.to_score("score", tuple(prompt_ids), settings, given=tuple(given_ids)))
    payloads: list[Prefilled | TokenPicked | BeamsTraced | Ended] = []
    while engine.has_work:
        payloads.extend(output.payload for output in engine.step())
    (ended,) = (payload for payload in payloads if isinstance(payload, Ended))
    if ended.stop.reason is not StopReason.MAX_TOKENS:
        raise RunError(ended.stop.message or f"the score ended for another reason than its text: {ended.stop.reason}")
    tokens = tuple(payload for payload in payloads if isinstance(payload, TokenPicked))
    return Score(tokens, score_figures(tokens, is_greedy=settings.is_greedy), ended)
