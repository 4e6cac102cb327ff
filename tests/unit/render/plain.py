"""HTML as a person reads it."""

import html
import re


def plain(markup: str) -> str:
    """The text between the tags, quotations in quotes, white space as one space."""
    quoted = re.sub(r"<q[^>]*>(.*?)</q>", r'"\1"', markup)
    inline = re.sub(r"</?(?:b|button|a|span|code|i)\b[^>]*>", "", quoted)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", inline)).split())
