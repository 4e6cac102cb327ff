"""The text of one sequence while it grows: which part of it each token brought, and which tokens may be shown.

A token may be shown when its text is final. Without stop strings that is at once. With them, a token waits, whole,
while a part of its text, or of the character that it has begun, could still become part of a stop string. What was
shown is therefore never taken back: texts of the tokens + tail = text of the run.

End tokens, the caller's stop tokens and special tokens bring no text: they are shown by their spelling.
"""

import dataclasses
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.events import NearMiss, TokenPicked
from models.sampling import Settings
from workers.engine.detokenizer import Detokenizer, TokenTexts
from workers.engine.stopping import Match, StopScanner


class Spellings(TokenTexts, Protocol):
    """What the transcript asks of a vocabulary."""

    def spelling(self, token_id: int) -> str: ...


@dataclass(frozen=True, slots=True)
class _Held:
    """A token that was not shown yet, with its characters start..end of the text."""

    token: TokenPicked | None  # None for a saved token, which an earlier attempt has shown
    piece: str
    is_visible: bool
    start: int
    end: int

    def is_safe(self, num_safe: int) -> bool:
        """Whether no stop string can touch it. A token without text has begun the character that comes next."""
        begins_character = self.is_visible and not self.piece
        return self.end + begins_character <= num_safe

    def is_withheld(self, cut: int) -> bool:
        return self.is_visible and self.start >= cut

    def shown(self, cut: int | None) -> TokenPicked | None:
        """The token with its final text, where the run's text ends at character `cut`."""
        if self.token is None:
            return None
        withheld = cut is not None and self.is_withheld(cut)
        kept = self.piece if cut is None else self.piece[: max(0, cut - self.start)]
        return dataclasses.replace(
            self.token,
            piece=self.piece,
            text=kept if self.is_visible else "",
            visible=self.is_visible and not withheld,
            withheld=withheld,
        )


class Transcript:
    """Reads token ids in order. After a match nothing more may be read."""

    def __init__(
        self, vocabulary: Spellings, settings: Settings, silent_ids: Collection[int], *, after: Sequence[int] = ()
    ) -> None:
        """`silent_ids`: tokens that bring no text although they are not special: end tokens and stop tokens.

        `after`: the ids of the prompt, whose text this one continues.
        """
        self._vocabulary = vocabulary
        self._silent_ids = silent_ids
        self._detokenizer = Detokenizer(vocabulary, after=after)
        self._scanner = StopScanner(settings.stop, include_stop=settings.include_stop)
        self._has_stop = bool(settings.stop)
        self._held: deque[_Held] = deque()
        self._length = 0  # characters so far

    def read(self, token_id: int, token: TokenPicked | None) -> Match | None:
        """Take the next token, and hold its event `token` until its text is final. Returns the match it completes."""
        is_visible = not (token_id in self._silent_ids or self._vocabulary.is_special(token_id))
        text = self._detokenizer.push(token_id) if is_visible else ""
        start, self._length = self._length, self._length + len(text)
        piece = text if is_visible else self._vocabulary.spelling(token_id)
        self._held.append(_Held(token, piece, is_visible, start, self._length))
        return self._scanner.push(text)

    def release(self) -> list[TokenPicked]:
        """The tokens whose text has become final, in order."""
        num_safe = self._scanner.num_safe
        released = []
        while self._held and (not self._has_stop or self._held[0].is_safe(num_safe)):
            released.append(self._held.popleft().shown(None))
        return [token for token in released if token is not None]

    def close(self, match: Match | None) -> tuple[list[TokenPicked], int, str]:
        """End the text, at the cut of `match` where one ended the run.

        Returns the tokens that were still held, how many tokens the match took away wholly, and the text after the
        last token: U+FFFD for bytes that never became a character.
        """
        cut = match.cut if match else None
        held, self._held = self._held, deque()
        released = [token for token in (h.shown(cut) for h in held) if token is not None]
        withheld = 0 if cut is None else sum(h.is_withheld(cut) for h in held)
        return released, withheld, "" if match else self._detokenizer.flush()

    def misses(self) -> tuple[NearMiss, ...]:
        return self._scanner.misses()
