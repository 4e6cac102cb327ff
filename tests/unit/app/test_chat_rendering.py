"""The web process renders a chat as transformers does, refuses with the same sentence, and does not wait for ever."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from app import chat_rendering
from app.chat_rendering import rendered
from models.chat import Chat, Role
from models.chat_template import TemplateSource, failures_told
from models.errors import ChatError
from tests.fakes import tokenizers
from tests.fakes.chats import FAMILIES, chat_tokenizer
from workers.engine.chat import template_source

CHAT = Chat.parse(
    [
        {"role": "system", "content": " Be <kind> & 'brief'. "},
        {"role": "user", "content": "Wie heißt 日本 😀?\n"},
        {"role": "assistant", "content": "<think>hm</think>so"},
        {"role": "user", "content": ""},
    ]
)
CHATS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from([*map(str, Role)]), "content": st.text(max_size=12)}),
    min_size=1,
    max_size=5,
).map(Chat.parse)

TEMPLATES = {
    "blocks": "  {% for m in messages %}\n  {{ m.role }}\n\n  {% endfor %}\n  {# said #}\nend\n",
    "minus": "{%- for m in messages -%}\n {{- m.content }} {% endfor -%}\n end",
    "break": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "continue": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}",
    "json_options": "{{ messages[1] | tojson(true, 1, (',', ':'), true) }}",
    "json_sorted": "{{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=true, sort_keys=true) }}",
    "time": "{{ strftime_now('%Y-%m %z|%Z') }}{% if strftime_now is defined %}yes{% endif %}",
    "namespace": "{% set ns = namespace(n=0, self=1) %}"
    "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ ns.self }}",
    "scope": "{% set n = 0 %}{% for m in messages %}{% set n = n + 1 %}{% endfor %}{{ n }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% set x = 1 %}\n{% endgeneration %}"
    "{{ x }}{% endfor %}",
    "dict": "{% set d = dict(a=1, **{'b': 2}) %}{{ d.items() | list }}{{ dict.fromkeys('ab', 0) }}"
    "{{ dict.keys is defined }}",
    "macro": "{% macro say(m, n=1) %}[{{ m.content * n }}{{ caller() if caller }}]{% endmacro %}"
    "{{ say(messages[0], 2) }}{% call say(messages[1]) %}!{% endcall %}",
    "recursive": "{% for m in [messages] recursive %}{% if m is mapping %}{{ m.role }}{% else %}{{ loop(m) }}"
    "{% endif %}{% endfor %}",
    "else": "{% for m in messages if m.role == 'tool' %}{{ m }}{% else %}none{% endfor %}",
    "filters": "{{ messages | map(attribute='content') | join('|') | trim | upper }}"
    "{{ messages | selectattr('role', 'eq', 'user') | list }}",
    "tokens": "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token is defined }}",
    "asked": "{{ add_generation_prompt }}{{ tools is none }}{{ documents }}{{ tools is defined }}"
    "{{ builtin_tools is defined }}",
    "methods": "{{ messages[2].content.split('</think>')[-1].lstrip() }}{{ messages[0]['content'].startswith(' ') }}",
    "slices": "{{ messages[::-1][0].role }}{{ messages[1:] | length }}{{ range(3) | list }}",
    "no_html": "{{ '<&>' }}{{ messages[0].content | e }}",
}
FAILING = {
    "syntax": "a\n{% for %}",
    "unclosed": "{% if true %}\n\n",
    "no_tag": "\n{% nothing %}",
    "no_filter": "\n\n{{ messages | nothing }}",
    "no_end": "{% generation %}x",
    "break": "{% break %}",
    "raise": "{{ raise_exception('Only <two> turns, “please”') }}",
    "undefined": "{{ nothing.at.all }}",
    "undefined_call": "{{ nothing() }}",
    "no_key": "{{ messages[0].tool_calls[0] }}",
    "type": "{{ messages[0].content + 1 }}",
    "zero": "{{ 1 // 0 }}",
    "range": "{% for i in range(1000000) %}{% endfor %}",
    "immutable": "{{ messages.append(1) }}",
    "python": "{{ ''.__class__.__mro__ }}",
    "include": "{% include 'other' %}",
    "bad_format": "{{ strftime_now(7) }}",
}  # fmt: skip


def with_template(template: str) -> PreTrainedTokenizerFast:
    tokenizer = tokenizers.chatml()
    tokenizer.chat_template = template
    return tokenizer


def outcome(render: Callable[[], object]) -> object:
    """What it gives, or the sentence that refuses."""
    try:
        return render()
    except ChatError as exc:
        return exc


def ours(tokenizer: PreTrainedTokenizerFast, chat: Chat) -> object:
    source = template_source(tokenizer)
    assert source is not None
    return outcome(lambda: rendered(chat, TemplateSource.decode(source.encode()), name="tiny"))


def theirs(tokenizer: PreTrainedTokenizerFast, chat: Chat) -> object:
    def render() -> object:
        with failures_told("tiny"):
            return tokenizer.apply_chat_template(chat.as_list(), tokenize=False, add_generation_prompt=True)

    return outcome(render)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(chat=CHATS)
def test_any_chat_is_rendered_or_refused_as_by_transformers(name: str, chat: Chat) -> None:
    assert str(ours(chat_tokenizer(name), chat)) == str(theirs(chat_tokenizer(name), chat))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_gives_the_text_of_transformers(name: str) -> None:
    tokenizer = with_template(TEMPLATES[name])
    text = ours(tokenizer, CHAT)
    assert isinstance(text, str)
    assert text == theirs(tokenizer, CHAT)


@pytest.mark.parametrize("name", FAILING)
def test_a_template_fails_with_the_sentence_of_transformers(name: str) -> None:
    """Field fault 17."""
    tokenizer = with_template(FAILING[name])
    refused = ours(tokenizer, CHAT)
    assert isinstance(refused, ChatError)
    assert str(refused) == str(theirs(tokenizer, CHAT))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ namespace(_a=1) }}", "does not take this chat: "),
        ("{% set n = namespace() %}{% set n._a = 1 %}", "does not take this chat: "),
        ("{{ namespace(a=1) | tojson }}", "failed: "),
        ("{{ raise_exception() }}", "failed: "),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "failed: maximum recursion depth exceeded"),
    ],
)
def test_what_fails_inside_python_is_refused_as_well(template: str, words: str) -> None:
    """The sentence may name a function of the one that renders."""
    for refused in (ours(with_template(template), CHAT), theirs(with_template(template), CHAT)):
        assert isinstance(refused, ChatError)
        assert f"the chat template of tiny {words}" in str(refused)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in messages[0].content %}{% for b in messages[0].content %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
    ],
)
def test_a_rendering_that_takes_too_long_is_given_up(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_rendering, "MAX_RENDERING_S", 0.1)
    began = time.monotonic()
    assert rendered(Chat.said("x" * 1_000_000), TemplateSource(template, {}), name="tiny") is None
    assert time.monotonic() - began < 2


def test_a_rendering_that_is_too_much_is_given_up() -> None:
    source = TemplateSource("{% for i in range(9) %}{{ messages[0].content }}{% endfor %}", {})
    assert rendered(Chat.said("x" * 1_000_000), source, name="tiny") is None
    assert rendered(Chat.said("x" * 100_000), source, name="tiny") == "x" * 900_000
