"""A loaded network with its tokenizer and the facts that others need of it.

Loading reads local files only, never runs code that came with a checkpoint, and refuses a folder whose weights do not
fill the network: transformers would fill the gaps with random numbers.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from models.chat import Chat
from models.errors import CheckpointBrokenError, CheckpointError, NotACausalLMError, PromptError, SettingError
from models.presence import CheckpointInfo
from models.sampling import Settings
from workers.engine.catalog import CatalogEntry, check_prepared
from workers.engine.chat import ChatPrompt, ChatTemplate, template_source
from workers.engine.constraint import Compiler
from workers.engine.fused import is_fusable
from workers.engine.plain import PlainTokenizer
from workers.engine.rounding import round_weights
from workers.engine.trial import Findings, try_out
from workers.engine.vocabulary import Vocabulary
from workers.engine.weights import weights_digest

_CUDA: Final = re.compile(r"cuda(?::(?P<number>[0-9]{1,4}))?")
_CONTEXT_NAMES: Final = ("max_position_embeddings", "max_seq_len", "seq_length")  # the others: MPT, BLOOM
UNBOUNDED_CONTEXT: Final = 1 << 20
"""Positions of a checkpoint that has no bound of its own, so that every run ends and a mistyped prompt is refused."""
INT8: Final = "int8"
"""Weights of 8 bits, everything else in float32."""
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, INT8: torch.float32}


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What the engine runs. `network` is called as transformers calls a causal language model."""

    info: CheckpointInfo
    network: Any
    tokenizer: Any  # transformers' tokenizer
    vocabulary: Vocabulary
    tokenizer_json: bytes  # the backend tokenizer; the same bytes give the same ids anywhere
    parsing: Tokenizer  # special tokens in a text become their ids
    plain: PlainTokenizer  # special tokens in a text are ordinary characters
    chat: ChatTemplate
    constraints: Compiler

    @classmethod
    def assemble(cls, info: CheckpointInfo, network: Any, tokenizer: Any) -> "Checkpoint":
        """Add what follows from the tokenizer."""
        tokenizer_json = tokenizer.backend_tokenizer.to_str().encode()
        parsing = Tokenizer.from_str(tokenizer_json.decode())
        parsing.no_truncation()  # a folder may have saved a length; what is too long is refused, not cut
        parsing.no_padding()
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        plain = PlainTokenizer(parsing, vocabulary.special_tokens)
        return cls(
            info=info,
            network=network,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            tokenizer_json=tokenizer_json,
            parsing=parsing,
            plain=plain,
            chat=ChatTemplate(tokenizer, parsing, plain, name=info.name),
            constraints=Compiler(vocabulary, info.vocab_size, end_token_ids=frozenset(info.end_token_ids)),
        )

    def encode(self, prompt: str, *, parse_special: bool = False, continues: bool = False) -> tuple[int, ...]:
        """The ids of a raw prompt, with what the tokenizer itself puts around it (such as BOS); without that for a text
        that `continues` one. It is encoded by itself: no token reaches from the prompt into it.

        A BOS that the text begins with is not put before it again. An empty prompt gives what is put around it, or
        nothing. Raises PromptError for a text with lone surrogates.
        """
        try:
            prompt.encode()
        except UnicodeEncodeError as exc:
            raise PromptError(
                f"character {exc.start} of the {'text' if continues else 'prompt'} is a lone surrogate, which is not "
                "text; remove it",
                field="text" if continues else "prompt",
            ) from exc
        if not parse_special:
            return self.plain.encode(prompt, add_special_tokens=not continues)
        ids = tuple(self.parsing.encode(prompt, add_special_tokens=not continues).ids)
        is_doubled = not continues and self.info.adds_bos and ids[:2] == (self.info.bos_token_id,) * 2
        return ids[1:] if is_doubled else ids

    def encode_chat(self, chat: Chat) -> ChatPrompt:
        """The prompt after which the assistant speaks. Raises ChatError."""
        return self.chat.prompt(chat)

    def banned_ids(self, settings: Settings) -> frozenset[int]:
        """The ids of `settings.banned`. Raises SettingError for a string that is not exactly one token."""
        ids = {item for item in settings.banned if isinstance(item, int)}
        for text in (item for item in settings.banned if isinstance(item, str)):
            found = self.parsing.encode(text, add_special_tokens=False).ids
            if len(found) != 1:
                raise SettingError(
                    f"banned: {text!r} is {len(found)} tokens of this checkpoint; only a single token can be banned",
                    field="banned",
                )
            ids.add(found[0])
        return frozenset(ids)


def load_checkpoint(entry: CatalogEntry, *, device: str = "auto", dtype: str = "auto") -> Checkpoint:
    """Load a prepared checkpoint in evaluation mode. `auto` is the GPU where there is one, and float32 on a CPU.

    Raises CheckpointError (its kinds say more), SettingError for a device or dtype that does not exist here.
    """
    transformers_logging.disable_progress_bar()
    check_prepared(entry)
    device, dtype = choose_device(device, dtype)
    config = _read_config(entry.folder)
    tokenizer = _load_tokenizer(entry.folder)
    network = place(_load_network(entry.folder, DTYPES[dtype]), device, name=entry.name)
    if dtype == INT8:
        _round(network, name=entry.name)
    findings = try_out(network, name=entry.name, vocab_size=config.get_text_config().vocab_size)
    return Checkpoint.assemble(_info(entry, config, tokenizer, network, findings, dtype), network, tokenizer)


def choose_device(device: str, dtype: str) -> tuple[str, str]:
    """The device and dtype that the words mean here. Raises SettingError."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        device = cuda_device(device, num_devices=torch.cuda.device_count())
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    if dtype not in DTYPES:
        raise SettingError(f"dtype: {dtype!r} is none of auto, {', '.join(DTYPES)}", field="dtype")
    if dtype == INT8 and device != "cpu":
        raise SettingError(f"dtype: int8 is for a CPU, and the device is {device}; choose bfloat16", field="dtype")
    return device, dtype


def cuda_device(device: str, *, num_devices: int) -> str:
    """`cuda` or `cuda:N` with its number, where torch sees so many devices. Raises SettingError."""
    found = _CUDA.fullmatch(device)
    if found is None:
        raise SettingError(f"device: {device!r} is none of auto, cpu, cuda, cuda:NUMBER", field="device")
    if not num_devices:
        raise SettingError(f"device: {device} was asked for, but torch sees no CUDA device", field="device")
    number = int(found["number"] or 0)
    if number >= num_devices:
        raise SettingError(f"device: there is no {device}; the last one is cuda:{num_devices - 1}", field="device")
    return f"cuda:{number}"


def place(network: Any, device: str, *, name: str) -> Any:
    """The network on its device. Raises CheckpointError where that has no room for it, or does not work at all."""
    try:
        return network.to(device)
    except (RuntimeError, MemoryError) as exc:
        reason = (str(exc).strip() or type(exc).__name__).splitlines()[0]
        raise CheckpointError(f"{name} cannot be put on {device}: {reason}") from exc


def _round(network: Any, *, name: str) -> None:
    if not is_fusable(network):
        raise SettingError(
            f"dtype: int8 would gain nothing for {name}, as the steps of a {type(network).__name__} are not compiled; "
            "choose float32",
            field="dtype",
        )
    round_weights(network)


def end_token_ids(ids: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    """All end tokens that config, generation config and tokenizer name, each an id, a list of ids or None; sorted."""
    flat = {i for value in ids for i in (value if isinstance(value, list | tuple) else [value])}
    return tuple(sorted(i for i in flat if isinstance(i, int) and 0 <= i < vocab_size))


def _read_config(folder: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as exc:
        raise CheckpointBrokenError(f"{folder / 'config.json'} cannot be read: {_first_line(exc)}") from exc
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    architectures = config.architectures or []
    if known is None or (architectures and not set(architectures) & set(_all_causal())):
        what = architectures[0] if architectures else f"model type {config.model_type!r}"
        raise NotACausalLMError(f"{folder} holds {what}, which is no causal language model; choose one that is")
    return config


def _all_causal() -> list[str]:
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    return [n for name in names for n in (name if isinstance(name, list | tuple) else [name])]


def _load_tokenizer(folder: Path) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as exc:
        raise CheckpointBrokenError(f"the tokenizer in {folder} cannot be read: {_first_line(exc)}") from exc
    # Where a folder has no tokenizer at all, transformers makes one that knows special tokens alone.
    if not getattr(tokenizer, "is_fast", False) or set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise CheckpointBrokenError(f"{folder} has no fast tokenizer (tokenizer.json); Decode Lab needs one")
    return tokenizer


def _load_network(folder: Path, dtype: torch.dtype) -> Any:
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # told below, by name
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as exc:
        raise CheckpointBrokenError(f"the weights in {folder} cannot be loaded: {_first_line(exc)}") from exc
    misshapen = (key if isinstance(key, str) else key[0] for key in report["mismatched_keys"])  # or with both shapes
    gaps = sorted([*report["missing_keys"], *misshapen])
    if gaps:
        raise CheckpointBrokenError(
            f"the weights in {folder} do not fill the network: {len(gaps)} missing or misshapen, such as {gaps[0]}"
        )
    return network.eval().requires_grad_(False)


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]


def _info(
    entry: CatalogEntry, config: Any, tokenizer: Any, network: Any, findings: Findings, dtype: str
) -> CheckpointInfo:
    text = config.get_text_config()
    bos = tokenizer.bos_token_id
    sources = (text, config, network.generation_config, tokenizer)
    named = [getattr(source, "eos_token_id", None) for source in sources]
    weight = network.get_input_embeddings().weight
    template = template_source(tokenizer)
    return CheckpointInfo(
        name=entry.name,
        source=str(entry.source),
        revision=entry.revision,
        weights_digest=weights_digest(entry.folder),
        architecture=type(network).__name__,
        num_parameters=network.num_parameters(),
        vocab_size=text.vocab_size,
        context_length=_context_length(text, entry.folder, is_bounded=findings.takes_positions),
        end_token_ids=end_token_ids(named, text.vocab_size),
        bos_token_id=bos,
        adds_bos=bos is not None and tokenizer.backend_tokenizer.encode("").ids[:1] == [bos],
        has_chat_template=tokenizer.chat_template is not None,
        num_layers=text.num_hidden_layers,
        num_kv_heads=findings.num_kv_heads,
        head_size=findings.head_size,
        device=str(weight.device),
        dtype=INT8 if dtype == INT8 else str(weight.dtype).removeprefix("torch."),
        tokenizer_digest=hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        chat_template_digest="" if template is None else template.digest,
        memory=findings.memory,
        prefills_whole=findings.prefills_whole,
        alone_because=findings.alone_because,
        is_fused=findings.is_fused,
    )


def _context_length(config: Any, folder: Path, *, is_bounded: bool) -> int:
    """The first length that the config names; where it names none, a network that looks up no position has no bound."""
    lengths = (getattr(config, name, None) for name in _CONTEXT_NAMES)
    named = next((length for length in lengths if isinstance(length, int) and length >= 2), None)
    if named is None and is_bounded:
        raise CheckpointBrokenError(f"{folder / 'config.json'} names no context length ({_CONTEXT_NAMES[0]})")
    return named or UNBOUNDED_CONTEXT
