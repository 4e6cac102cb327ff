"""Small tokenizers, built in code: each shows one way in which tokens and text do not match one to one."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SENTENCE = "the quick brown fox jumps over lazy dog and runs from a cat to see what is there in"
_WORDS = _SENTENCE.split()


def byte_level() -> PreTrainedTokenizerFast:
    """Bytes as tokens, no merges: an emoji is 4 tokens. Ids follow the sorted byte alphabet; no BOS, no EOS."""
    return PreTrainedTokenizerFast(tokenizer_object=_byte_level([]))


def byte_level_in_a_sequence() -> PreTrainedTokenizerFast:
    """Like `byte_level`, its decoder the only one of a sequence."""
    tokenizer = _byte_level([])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def words() -> PreTrainedTokenizerFast:
    """Byte-level with merges for some words with and without a space before them, an end token, no BOS."""
    tokenizer = _byte_level([f" {word}" for word in _WORDS] + _WORDS)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def chatml() -> PreTrainedTokenizerFast:
    """Like `words`, with ChatML's special tokens and template; its end token is <|im_end|>."""
    tokenizer = _byte_level([f" {word}" for word in _WORDS] + _WORDS)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=CHATML
    )


def metaspace() -> PreTrainedTokenizerFast:
    """As SentencePiece does it: a space is part of the word after it, bytes as a fallback, BOS put before a text."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for character in ("▁", *map(chr, range(33, 127))):
        vocabulary[character] = len(vocabulary)
    merges = _add_merged(vocabulary, [f"▁{word}" for word in _WORDS])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def cleaning() -> PreTrainedTokenizerFast:
    """One token a word or mark, joined by spaces, whose own decoding removes the spaces before marks."""
    vocabulary = {word: index for index, word in enumerate(["[UNK]", "[EOS]", ".", ",", "!", "'s", *_WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|'s|[^\w\s]"), behavior="removed", invert=True)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("[UNK]", "[EOS]")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[EOS]", clean_up_tokenization_spaces=True
    )


def letters() -> PreTrainedTokenizerFast:
    """Four letters and an end token: few enough to try every text. No other byte has a token."""
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate("abcd")} | {"<end>": 4}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def _byte_level(whole: list[str]) -> Tokenizer:
    """Byte-level BPE whose merges make each text of `whole` one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    merges = _add_merged(vocabulary, [text.replace(" ", "Ġ") for text in whole])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_merged(vocabulary: dict[str, int], symbols: list[str]) -> list[tuple[str, str]]:
    """Add each of `symbols` and its beginnings to `vocabulary`; the merges that build them letter by letter."""
    merges = []
    for symbol in symbols:
        for end in range(2, len(symbol) + 1):
            if symbol[:end] not in vocabulary:
                vocabulary[symbol[:end]] = len(vocabulary)
                merges.append((symbol[: end - 1], symbol[end - 1]))
    return merges
