"""A chat template and a tokenizer as a worker publishes them, for pages without a worker: a byte a token."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from models.chat_template import TemplateSource

CHATML = TemplateSource(
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    {"bos_token": "<|im_start|>"},
)


@cache
def byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    return tokenizer
