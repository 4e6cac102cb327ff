"""A tokenizer for which the spelling of chosen tokens is ordinary text.

The switch that `tokenizers` has for this (`encode_special_tokens`) leaves two gaps: it knows the tokens that are marked
as special alone, and it keeps those from being looked for in the text, but not from being found by the model that
splits the rest (Unigram, WordPiece, or BPE that ignores merges, where the spelling is in their vocabulary).

Here the tokens are renamed: each gets a name that nobody can guess, with its id and everything else as before. What is
spelled in a text is then no token at all, and a token is wherever its new name is put.
"""

import json
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from tokenizers import Tokenizer

from models.errors import CheckpointBrokenError


class PlainTokenizer:
    """Reads texts; safe to share between threads."""

    def __init__(self, original: Tokenizer, spelled: Collection[str]) -> None:
        """`spelled`: the tokens that a text may spell without meaning them.

        Raises CheckpointBrokenError for a tokenizer whose ids depend on the tokens' names.
        """
        # Lower-case letters and digits, because no normalizer changes them; of one length, so that none begins another.
        secret = secrets.token_hex(12)
        self._names = {token: f"{secret}{index:04x}" for index, token in enumerate(spelled)}
        self._tokenizer = Tokenizer.from_str(json.dumps(_renamed(json.loads(original.to_str()), self._names)))
        for token, name in self._names.items():
            if self._tokenizer.token_to_id(name) != original.token_to_id(token):
                raise CheckpointBrokenError(f"the tokenizer cannot tell the token {token} from text that spells it")

    @property
    def spelled(self) -> frozenset[str]:
        return frozenset(self._names)

    def name(self, token: str) -> str:
        """What to write in a text where one of the tokens `spelled` is meant."""
        return self._names[token]

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


def _renamed(parts: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of a tokenizer with tokens renamed, which neither cuts off nor fills up."""
    parts["truncation"] = parts["padding"] = None
    for token in parts["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = parts["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): i for token, i in model["vocab"].items()}
    else:  # Unigram
        model["vocab"] = [[names.get(token, token), score] for token, score in model["vocab"]]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _makes(merge, names)]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    return parts


def _makes(merge: str | list[str], names: Mapping[str, str]) -> bool:
    """Whether a merge has to do with a renamed token: as one string with a space, or as two."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return bool({left, right, left + right} & names.keys())
