"""What one text has in place of another, in whole tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True)
class Change:
    """Tokens `base_start..base_end` of the baseline stand as `start..end` in the other text; either may be empty."""

    base_start: int
    base_end: int
    start: int
    end: int


def changes(base: Sequence[int], other: Sequence[int]) -> list[Change]:
    """Where `other` differs from `base`, in order; [] for equal texts. Both are token ids.

    Outside the changes the two have the same tokens, so replacing each makes `other` of `base`.
    """
    # Its heuristic would call every frequent token of a long text junk.
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [Change(*places) for kind, *places in matcher.get_opcodes() if kind != "equal"]
