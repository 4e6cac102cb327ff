"""Texts that try to be more than text, by kind. What runs as a script, however it got in, sets `window.pwned`."""

from dataclasses import replace
from typing import Final

from models.events import TokenPicked
from tests.fakes.scripted_runs import token

IMAGE: Final = '<img src=x onerror="window.pwned=1">'

KINDS: Final[dict[str, str]] = {
    "script": "<script>window.pwned=1</script>",
    "image": IMAGE,
    "svg": "<svg onload=window.pwned=1>",
    "double quote": '" autofocus onfocus="window.pwned=1" x="',
    "single quote": "' onmouseover='window.pwned=1' y='",
    "comment": "<!-- --!><!--><img src=x onerror=window.pwned=1>-->",
    "end tags": "</textarea></title></style></script></select><img src=x onerror=window.pwned=1>",
    "link": '<a href="javascript:window.pwned=1">x</a>',
    "markdown": "[x](javascript:window.pwned=1) ![x](//example.com/x.png) $$\\href{javascript:window.pwned=1}{x}$$",
    "templates": "{{constructor.constructor('window.pwned=1')()}}${window.pwned=1}`${window.pwned=1}`{%x%}#{7*7}",
    "entities": "&lt;img src=x onerror=window.pwned=1&gt;&#60;img&#62;&amp;amp;",
    "both directions": "\u202eevil\u202c\u2066x\u2069\u200f\u202d",
    "no width": "\u200b\u200c\u200d\ufeff\u00ad\u2060",
    "marks": "a" + "\u0301\u0489" * 200,
    "terminal": "\x1b[31mred\x1b]0;title\x07\x08",
    "no character": "\0",
    "long": "x" * 10_000,
}

TYPED: Final = " ".join(text for kind, text in KINDS.items() if kind not in ("terminal", "no character"))
"""What a person can paste into a field."""


def hostile_tokens() -> list[TokenPicked]:
    """A token of each kind, its rivals too, and a lone surrogate, which is no text at all."""
    texts = list(KINDS.values())
    tokens = [_with_rivals(token(i, text), texts) for i, text in enumerate(texts)]
    lone = token(len(texts), "?")
    rivals = tuple(replace(c, piece="\ud800") if c.token_id == lone.token_id else c for c in lone.candidates)
    tokens.append(replace(lone, piece="\ud800", text="\ud800", token_bytes=b"\xed\xa0\x80", candidates=rivals))
    return tokens


def _with_rivals(picked: TokenPicked, texts: list[str]) -> TokenPicked:
    rivals = [c for c in picked.candidates if c.token_id != picked.token_id]
    names = {c.token_id: text for c, text in zip(rivals, texts[picked.position % 2 :: 2], strict=False)}
    return replace(
        picked, candidates=tuple(replace(c, piece=names.get(c.token_id, c.piece)) for c in picked.candidates)
    )
