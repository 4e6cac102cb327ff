"""Tokenizers with chat templates, each after a family that is in use, over a few words."""

import functools
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.fakes import tokenizers

LLAMA_2 = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant/user/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n'"
    " + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
# Turns are marked by added tokens that are not special, and the template drops the thinking of earlier answers.
THINKING = (
    "{{ bos_token }}{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'user' %}{{ '<｜User｜>' + content }}"
    "{% elif message['role'] == 'assistant' %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{{ '<｜Assistant｜>' + content + eos_token }}{% else %}{{ content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"
)
# The name of a turn's token is put together, so that it stands nowhere in the template.
PHI = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@functools.cache
def chat_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """One of `FAMILIES`."""
    return FAMILIES[name]()


def llama_2() -> PreTrainedTokenizerFast:
    built = tokenizers.metaspace()
    built.chat_template = LLAMA_2
    return built


def llama_2_first() -> PreTrainedTokenizerFast:
    """The newer form: a space is put before the very beginning of a text alone, not after every special token."""
    backend = tokenizers.metaspace().backend_tokenizer
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=LLAMA_2
    )


def llama_3() -> PreTrainedTokenizerFast:
    special = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|reserved_0|>"]
    backend = _with_added(special)
    bos = ("<|begin_of_text|>", backend.token_to_id("<|begin_of_text|>"))
    backend.post_processor = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=bos[0], eos_token="<|eot_id|>", chat_template=LLAMA_3
    )


def gemma() -> PreTrainedTokenizerFast:
    """Spaces are marks and none is put before a text; runs of line ends are tokens of their own."""
    backend = tokenizers.metaspace().backend_tokenizer
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(" "), behavior="merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(t, special=True) for t in ("<start_of_turn>", "<end_of_turn>")])
    backend.add_tokens([AddedToken(t, normalized=False) for t in ("\n", "\n\n")])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=GEMMA
    )


def thinking() -> PreTrainedTokenizerFast:
    plain = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"]
    backend = _with_added(["<｜begin｜>", "<｜end｜>"], plain)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<｜begin｜>", eos_token="<｜end｜>", chat_template=THINKING
    )


def phi() -> PreTrainedTokenizerFast:
    """Its special tokens take the spaces behind them."""
    backend = tokenizers.words().backend_tokenizer
    special = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    backend.add_special_tokens([AddedToken(text, special=True, rstrip=True) for text in special])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=PHI)


def unigram() -> PreTrainedTokenizerFast:
    """Its model has the special tokens in its own vocabulary, and finds them in any text that spells them."""
    pieces = [
        *("<unk>", "<s>", "</s>"),
        "▁",
        *map(chr, range(33, 127)),
        *(f"▁{word}" for word in ("the", "fox", "dog")),
    ]
    scores = [(piece, 0.0 if index < 3 else -float(8 - len(piece))) for index, piece in enumerate(pieces)]
    backend = Tokenizer(models.Unigram(scores, 0, False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    backend.add_special_tokens([AddedToken(text, special=True) for text in pieces[:3]])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=LLAMA_2
    )


FAMILIES = {
    "chatml": tokenizers.chatml,
    "llama_2": llama_2,
    "llama_2_first": llama_2_first,
    "llama_3": llama_3,
    "gemma": gemma,
    "thinking": thinking,
    "phi": phi,
    "unigram": unigram,
}


def _with_added(special: Sequence[str], others: Sequence[str] = ()) -> Any:
    backend = tokenizers.words().backend_tokenizer
    backend.add_special_tokens([AddedToken(text, special=True) for text in special])
    backend.add_tokens([AddedToken(text, normalized=False) for text in others])
    return backend
