"""Beam search as a policy: what becomes of the continuations of the running beams in one step.

The rules are transformers' (5.24, `GenerationMixin._beam_search`). In one step

1. every running beam is continued by every token; a continuation's total is its beam's total and the token's
   log-probability, added in float32;
2. the best `num_contenders` continuations by total are looked at, equals by beam and then by token id. They are enough
   that `num_beams` of them do not end with an end token;
3. the best `num_beams` of those that do not end run on. A continuation ends with an end token, and at the longest
   length whatever its token is. Where there is a constraint, its judge may say of a continuation that it ends (nothing
   but an end may follow), or that it is impossible (nothing may): that one is as if it had never been looked at;
4. those that end and stand among the best `num_beams` of all finish with a score, total / length ** length_penalty.
   The length is that of the generated tokens alone. The best `num_beams` finished ones of all steps are kept;
5. everything else is pruned, and its margin says by how much it lost.

There is one difference. transformers marks a free place by a number, a total or score of -1e9: where the vocabulary
leaves fewer continuations than there are places it runs copies of other beams there, which can finish too, and it
takes no score below that. Here a beam that does not exist is not there, and a step may have fewer beams, or none.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

import torch
from torch import Tensor

# Bounds of length ** length_penalty, so that no score leaves float64: a total is far above -1e8.
_LEAST_DIVISOR: Final = 1e-300
_GREATEST_DIVISOR: Final = 1e300


@dataclass(frozen=True, slots=True)
class BeamRules:
    """What one search follows."""

    num_beams: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    end_token_ids: frozenset[int]  # tokens that end a beam
    max_length: int  # generated tokens that a beam can have, at least 1

    @property
    def num_contenders(self) -> int:
        """Continuations that a step looks at."""
        return max(2, 1 + len(self.end_token_ids)) * self.num_beams

    def score(self, total: float, length: int) -> float:
        """total / length ** length_penalty, held inside float64. `length` is at least 1."""
        exponent = self.length_penalty * math.log10(length)
        divisor = length**self.length_penalty if abs(exponent) < math.log10(_GREATEST_DIVISOR) else None
        if divisor is None:
            divisor = _GREATEST_DIVISOR if exponent > 0 else _LEAST_DIVISOR
        return min(max(total / divisor, -sys.float_info.max), sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A running beam and one more token."""

    parent: int  # the beam's place in the step before, best first
    token_id: int
    total: float  # a float32: the sum of the processed log-probabilities of its tokens


class Fate(Enum):
    """What a token makes of its beam."""

    GOES_ON = auto()
    ENDS = auto()
    IMPOSSIBLE = auto()


Judge = Callable[[Continuation], Fate]


def goes_on(_: Continuation) -> Fate:
    """The judge of a search without a constraint."""
    return Fate.GOES_ON


@dataclass(frozen=True, slots=True)
class Finish:
    """A continuation that has ended, with the score that ranks it among all finished ones."""

    continuation: Continuation
    score: float


@dataclass(frozen=True, slots=True)
class Loss:
    """A continuation that is dropped, and what it would have needed more.

    The margin is a difference of totals; of scores for one that ended and found `num_beams` better finished ones.
    """

    continuation: Continuation
    margin: float


@dataclass(frozen=True, slots=True)
class Step:
    """What one step decides. All three lists are best first."""

    running: tuple[Continuation, ...]  # at most num_beams
    finished: tuple[Finish, ...]  # those of this step that are kept, for now
    pruned: tuple[Loss, ...]  # at most num_beams, those that came closest
    is_over: bool  # the search ends here


def decide(
    logprobs: Tensor,
    totals: Sequence[float],
    finished_scores: Sequence[float],
    *,
    length: int,
    rules: BeamRules,
    judge: Judge = goes_on,
) -> Step:
    """Decide a step from the processed log-probabilities (beams, vocab), float32, of the tokens that come next.

    `totals`: those of the running beams, best first; `finished_scores`: those kept so far; `length`: generated tokens
    of each continuation, this one included; `judge`: asked once of each that is looked at.
    """
    fates = {c: judge(c) for c in _best(logprobs, totals, rules.num_contenders)}
    contenders = [c for c, fate in fates.items() if fate is not Fate.IMPOSSIBLE]
    is_last = length >= rules.max_length
    ended = {c for c in contenders if is_last or c.token_id in rules.end_token_ids or fates[c] is Fate.ENDS}
    going = [c for c in contenders if c not in ended]
    ending = [c for c in contenders[: rules.num_beams] if c in ended]
    late = [c for c in contenders[rules.num_beams :] if c in ended]  # too far down to finish
    finishes = [Finish(c, rules.score(c.total, length)) for c in ending]
    num_finished = _num_entering(finishes, finished_scores, rules.num_beams)
    scores = sorted([*finished_scores, *(f.score for f in finishes)], reverse=True)[: rules.num_beams]
    losses = [
        *_behind(going[rules.num_beams - 1 : rules.num_beams], going[rules.num_beams :]),
        *_behind(contenders[rules.num_beams - 1 : rules.num_beams], late),
        *(Loss(f.continuation, scores[-1] - f.score) for f in finishes[num_finished:]),
    ]
    running = tuple(going[: rules.num_beams])
    return Step(
        running=running,
        finished=tuple(finishes[:num_finished]),
        pruned=tuple(sorted(losses, key=lambda loss: -loss.continuation.total)[: rules.num_beams]),
        is_over=is_last or not running or _is_settled(running[0].total, scores, length=length, rules=rules),
    )


def _best(logprobs: Tensor, totals: Sequence[float], num: int) -> list[Continuation]:
    """The `num` possible continuations of the greatest total, best first; equals by beam, then by token id."""
    vocab_size = logprobs.shape[1]
    before = torch.tensor(totals, dtype=logprobs.dtype, device=logprobs.device)
    limits = torch.finfo(logprobs.dtype)
    sums = (logprobs + before.unsqueeze(1)).flatten()  # (beams * vocab,)
    # A bias may be as large as float32 goes, so that sums leave it. What was impossible before stays so.
    sums = torch.where(logprobs.flatten() == -torch.inf, sums, sums.clamp(limits.min, limits.max))
    # topk takes any of equal numbers, so it is asked for the border alone. Minus infinity is impossible.
    border = torch.topk(sums, min(num, sums.numel())).values[-1].clamp_min(limits.min)
    places = (sums >= border).nonzero().squeeze(1)
    found, order = torch.sort(sums[places], descending=True, stable=True)
    numbers = zip(places[order][:num].tolist(), found[:num].tolist(), strict=True)
    return [Continuation(place // vocab_size, place % vocab_size, total) for place, total in numbers]


def _num_entering(finishes: Sequence[Finish], scores: Sequence[float], num_beams: int) -> int:
    """How many of `finishes`, best first, get a place among the best; an earlier one keeps its place against an equal.

    All of them have the same length, so that their order by score is that by total.
    """
    return sum(sum(s >= f.score for s in scores) + place < num_beams for place, f in enumerate(finishes))


def _behind(last: Sequence[Continuation], dropped: Sequence[Continuation]) -> list[Loss]:
    """What each of `dropped` lacks to the last that was taken."""
    return [Loss(c, taken.total - c.total) for taken in last for c in dropped]


def _is_settled(best_total: float, scores: Sequence[float], *, length: int, rules: BeamRules) -> bool:
    """Whether the search stops although beams could run on; `scores` are the finished ones, best first.

    Only with `num_beams` finished beams. `early_stopping` true: at once. False: where the best running beam, scored at
    its present length, is not better than the worst of them. "never": the same, with the longest length in place of
    the present one where the penalty favours long texts.
    """
    if len(scores) < rules.num_beams:
        return False
    if rules.early_stopping is True:
        return True
    favours_long = rules.early_stopping == "never" and rules.length_penalty > 0
    return rules.score(best_total, rules.max_length if favours_long else length) <= scores[-1]
