"""A chat as its checkpoint's template writes it, so that what the template does not take is refused before it is saved.

A worker renders with transformers, whose word counts. The environment here has what transformers (5.24,
`utils/chat_template_utils.py`) gives to a template, and one thing more: every turn of a loop and every call of a macro
looks at the clock, because the template is the operator's and the messages are anybody's.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any, Final, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from models.chat import Chat
from models.chat_template import TemplateSource, failures_told

MAX_RENDERING_S: Final = 2.0
MAX_RENDERED_CHARACTERS: Final = 4_000_000


def rendered(chat: Chat, source: TemplateSource, *, name: str) -> str | None:
    """The prompt after which the assistant speaks; None where it is not known soon enough, or too much to look at.

    Raises ChatError where the template of the checkpoint `name` cannot be used or does not take this chat.
    """
    with failures_told(name):
        try:
            return "".join(_pieces(chat, source))
        except _UnfinishedError:
            return None


def _pieces(chat: Chat, source: TemplateSource) -> Iterator[str]:
    environment = _Environment(time.monotonic() + MAX_RENDERING_S)
    template = Template.from_code(environment, _compiled(source.template), environment.make_globals(None))
    variables = {
        **source.special_tokens,
        "messages": chat.as_list(),
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    num_characters = 0
    for piece in template.generate(variables):
        num_characters += len(piece)
        if num_characters > MAX_RENDERED_CHARACTERS:
            raise _UnfinishedError
        yield piece


@lru_cache(maxsize=8)
def _compiled(template: str) -> CodeType:
    """Raises TemplateSyntaxError."""
    environment = _Environment(0)
    tree = environment.parse(template)
    repeated: list[nodes.For | nodes.Macro] = [*tree.find_all(nodes.For), *tree.find_all(nodes.Macro)]
    for node in repeated:
        look = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(look, lineno=node.lineno))
    return environment.compile(tree)


class _UnfinishedError(Exception):
    """The rendering is given up."""


class _Environment(ImmutableSandboxedEnvironment):
    """Of one rendering, which is given up at `ends_at` on the monotonic clock."""

    def __init__(self, ends_at: float) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._ends_at = ends_at
        self.filters["tojson"] = _tojson
        self.globals.update(
            raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace
        )

    def check_time(self) -> None:
        if time.monotonic() > self._ends_at:
            raise _UnfinishedError


class _Generation(Extension):
    """`{% generation %}` marks what an assistant said, for training; a prompt has its text alone."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it as an instance's

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A call, because its body then has a scope of its own, as in transformers.
        return nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(lineno)

    def _unchanged(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict` without the attributes of a class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace` without names that Python keeps for itself."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be the name of an attribute
        for name in dict(*args[1:], **kwargs):
            _check_attribute(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"an attribute of a namespace cannot be named {name!r}; its name begins with an underscore")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the escapes for HTML of Jinja's own filter. Templates may name the options by position."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 - local and without a zone, as transformers gives it
