"""A chat becomes a prompt: the checkpoint's own template around it, and in the messages nothing but text.

The template is rendered by transformers with the messages as they are, and encoded without adding anything: a chat has
the ids of `apply_chat_template(messages, tokenize=True)`, and one BOS, where the template writes it.

What a message spells must not become a control token. Those are the tokens that are marked as special, and the added
tokens that the template itself writes, because some checkpoints mark their turns with tokens that are not special. So
the template is rendered once more, with every such spelling in a message replaced by a mark that nobody can guess.
Where the two renderings are the same but for the marks, whatever still reads as a control token is the template's own;
the rest is encoded as text. A mark also stands at the edge of a message that begins or ends with a part of a control
token, as the template might write the other part.

A template may act on what it finds in a message (`'</think>' in content`); then the renderings differ. A chat that
spells a special token is refused there; a token that is not special is left to the template, which gives it a meaning.
A template that takes a text apart and joins it anew is beyond this: it alone knows what it makes.
"""

import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer

from models.chat import Chat
from models.chat_template import TemplateSource, failures_told, without_template
from models.errors import ChatError
from workers.engine.plain import PlainTokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What is sent."""

    text: str  # as the template gives it
    token_ids: tuple[int, ...]


def template_source(tokenizer: Any) -> TemplateSource | None:
    """What transformers' `tokenizer` renders chats with; None where it has no template, or several and no default."""
    try:
        return TemplateSource(str(tokenizer.get_chat_template()), tokenizer.special_tokens_map)
    except ValueError:
        return None


class ChatTemplate:
    """The template of one checkpoint. May be used by several threads."""

    def __init__(self, tokenizer: Any, parsing: Tokenizer, plain: PlainTokenizer, *, name: str) -> None:
        """`tokenizer`: transformers' one; `parsing` and `plain`: its backend, for texts in which special tokens count
        and do not. `name`: the checkpoint's."""
        self._tokenizer = tokenizer
        self._parsing = parsing
        self._raw_plain = plain
        self._name = name

    @property
    def source(self) -> TemplateSource | None:
        """What others need to render as this one does."""
        return template_source(self._tokenizer)

    def prompt(self, chat: Chat) -> ChatPrompt:
        """The prompt after which the assistant speaks.

        Raises ChatError where there is no template, or it cannot take this chat.
        """
        text = self._render(chat)
        marks = _Marks()
        marked = self._marked(chat, text, marks)
        of_template = self._controls.found(marked)
        num_wanted = sum(token != self._tokenizer.unk_token for token in of_template)
        if of_template == self._controls.found(text):
            ids = tuple(self._parsing.encode(text, add_special_tokens=False).ids)
            if self._num_controls(ids) <= num_wanted:  # else the tokenizer's normalizer makes more of the text
                return ChatPrompt(text, ids)
        ids = self._plain.encode(marks.removed(self._controls.renamed(marked, self._plain)), add_special_tokens=False)
        if self._num_controls(ids) != num_wanted:
            raise ChatError(
                f"a message spells a control token of {self._name}, whose tokenizer cannot tell it from the template's "
                "own; take it out, or use a raw prompt"
            )
        return ChatPrompt(text, ids)

    def _num_controls(self, token_ids: Iterable[int]) -> int:
        return sum(token_id in self._control_ids for token_id in token_ids)

    def _render(self, chat: Chat) -> str:
        if self._tokenizer.chat_template is None:
            raise without_template(self._name)
        with failures_told(self._name):
            return str(self._tokenizer.apply_chat_template(chat.as_list(), tokenize=False, add_generation_prompt=True))

    def _marked(self, chat: Chat, text: str, marks: "_Marks") -> str:
        """The rendering whose messages spell no control token but those that the template acts on."""
        found = {token for message in chat.messages for token in self._controls.found(message.content)}
        special = found & self._controls.special
        others = [token for token in self._controls.tokens if token in found - special]
        hidden: set[str] = set()
        marked = text
        for group in (special, *({token} for token in others)):
            trial = self._render(self._hiding(chat, hidden | group, marks))
            if marks.removed(trial) == text:
                hidden |= group
                marked = trial
            elif group is special:
                raise ChatError(
                    f"the chat template of {self._name} acts on what a message spells "
                    f"({', '.join(sorted(special)) or 'a part of a control token'}), which cannot be sent as text; "
                    "take it out, or use a raw prompt"
                )
        return marked

    def _hiding(self, chat: Chat, hidden: Collection[str], marks: "_Marks") -> Chat:
        messages = (replace(m, content=self._controls.hidden(m.content, hidden, marks)) for m in chat.messages)
        return Chat(tuple(messages))

    @cached_property
    def _controls(self) -> "_Controls":
        added = self._parsing.get_added_tokens_decoder().values()
        return _Controls.of(list(added), str(self._tokenizer.get_chat_template()))

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        """But for the token that any unknown character becomes."""
        tokens = (token for token in self._controls.tokens if token != self._tokenizer.unk_token)
        return frozenset(i for token in tokens if (i := self._parsing.token_to_id(token)) is not None)

    @cached_property
    def _plain(self) -> PlainTokenizer:
        tokens = self._controls.tokens
        return self._raw_plain if self._raw_plain.spelled == set(tokens) else PlainTokenizer(self._parsing, tokens)


class _Marks:
    """Stand-ins for pieces of text, of letters and digits alone, so that a template finds nothing to act on."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(12)
        self._pieces: list[str] = []

    def of(self, piece: str) -> str:
        if piece not in self._pieces:
            self._pieces.append(piece)
        return f"{self._secret}{self._pieces.index(piece):04x}"

    def removed(self, text: str) -> str:
        """`text` with every mark replaced by what it stands for."""
        return re.sub(f"{self._secret}([0-9a-f]{{4}})", lambda mark: self._pieces[int(mark[1], 16)], text)


@dataclass(frozen=True, slots=True)
class _Controls:
    """The control tokens of a checkpoint, the longer one before its own beginning."""

    tokens: tuple[str, ...]
    special: frozenset[str]
    pattern: re.Pattern[str]
    beginnings: frozenset[str]  # of tokens, shorter than these
    endings: frozenset[str]

    @classmethod
    def of(cls, added_tokens: Collection[AddedToken], template: str) -> "_Controls":
        special = frozenset(t.content for t in added_tokens if t.special)
        written = {t.content for t in added_tokens if t.content in template and _is_mark(t.content)}
        tokens = tuple(sorted(special | written, key=lambda token: (-len(token), token)))
        alone = {t.content for t in added_tokens if t.single_word}
        patterns = (rf"(?<!\w){re.escape(t)}(?!\w)" if t in alone else re.escape(t) for t in tokens)
        return cls(
            tokens,
            special,
            re.compile("|".join(patterns) or "(?!)"),
            frozenset(token[:length] for token in tokens for length in range(1, len(token))),
            frozenset(token[start:] for token in tokens for start in range(1, len(token))),
        )

    def found(self, text: str) -> list[str]:
        """The tokens that `text` spells, in order."""
        return self.pattern.findall(text)

    def renamed(self, text: str, plain: PlainTokenizer) -> str:
        """`text` with the tokens that it spells under their names in `plain`."""
        return self.pattern.sub(lambda found: plain.name(found[0]), text)

    def hidden(self, content: str, tokens: Collection[str], marks: _Marks) -> str:
        """`content` with marks for those of `tokens` that it spells, and at an edge that is a part of any token."""
        core = content.strip()
        start = content.index(core)
        lengths = range(1, min(len(core), len(self.tokens[0])) + 1) if self.tokens else range(0)
        before = marks.of("") if any(core[:n] in self.endings for n in lengths) else ""
        after = marks.of("") if any(core[-n:] in self.beginnings for n in lengths) else ""
        inner = self.pattern.sub(lambda found: marks.of(found[0]) if found[0] in tokens else found[0], core)
        return content[:start] + before + inner + after + content[start + len(core) :]


def _is_mark(token: str) -> bool:
    """Whether an added token looks like one that marks something, and not like a word or white space."""
    return not (token.isspace() or token[0].isalnum())
