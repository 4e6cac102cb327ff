"""Values as words and numbers in escaped HTML. Nothing that a checkpoint or a user wrote leaves here as markup."""

import html
import math
from typing import Final

_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_NAT_IN_BITS: Final = 1 / math.log(2)


def esc(value: object) -> str:
    """`value` as text that is inert in element content and in quoted attributes."""
    return html.escape(sendable(str(value)), quote=True)


def sendable(text: str) -> str:
    """`text` as a browser can be sent it: a lone surrogate, which is no Unicode text, is a `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def spelled(text: str) -> str:
    """`text` with every character that cannot be seen spelled out: `\\n`, `\\u200b`. Not escaped for HTML."""
    return "".join(_spelled_char(c) for c in text)


def quoted(text: str) -> str:
    """A piece between quotes, spelled and escaped: `" city"`."""
    return f'<q class="dl-piece">{esc(spelled(text))}</q>'


def clipped(text: str, num_characters: int) -> str:
    """The start of a text in one line, escaped."""
    line = spelled(text[: num_characters + 1])
    return esc(line if len(text) <= num_characters else line[:num_characters] + "…")


def percent(logprob: float | None) -> str:
    """A natural log-probability as a percentage with three digits that mean something."""
    return percent_of(0.0 if logprob is None else math.exp(logprob))


def percent_of(probability: float) -> str:
    value = 100 * probability
    if value == 0:
        return "0 %"
    if value < 0.01:
        return "&lt;0.01 %"
    return f"{value:.2f} %" if value < 1 else f"{value:.1f} %"


def decimal(value: float | None, digits: int, *, signed: bool = False) -> str:
    """With a minus as wide as a plus, so that columns of figures align; "" for None."""
    if value is None:
        return ""
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "\N{MINUS SIGN}")


def exact(value: float) -> str:
    """The number to the last digit, in the shorter of two ways: `0.8`, `1e-05`, `0.1234567`."""
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def bits(nats: float) -> str:
    return f"{nats * _NAT_IN_BITS:.2f} bits"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def count(value: int, noun: str = "") -> str:
    """`1 token`, `49,152 tokens`."""
    number = f"{value:,}"
    return number if not noun else f"{number} {noun}" + ("" if value == 1 else "s")


def byte_size(value: int) -> str:
    if value < 1000:
        return f"{value} B"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    raise AssertionError(value)


def _spelled_char(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char == " " or char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
