"""Every error that Decode Lab raises on purpose, as one tree.

    DecodeLabError
    ├── RefusedError            the request cannot be done as asked; nothing was saved or started
    │   ├── SettingError        one control has a value it cannot have           (field, value)
    │   ├── PromptError         empty, not text, or longer than the context
    │   │   └── ChatError       messages that are none, or that the checkpoint's template cannot take
    │   ├── UnknownCheckpointError
    │   ├── NotFoundError       no such run or experiment
    │   └── LimitError          a stated bound (queue length, arms, size) is reached
    ├── UnavailableError        a part that is needed does not answer
    │   ├── BrokerUnavailableError    Redis / Valkey
    │   ├── DatabaseUnavailableError
    │   └── NoWorkerError             no live worker serves the checkpoint
    ├── CheckpointError         a checkpoint cannot be loaded
    │   ├── CheckpointMissingError
    │   ├── CheckpointBrokenError
    │   └── NotACausalLMError
    ├── EventError              what should be an event of a run is none, or only a newer version knows it
    └── RunError                a run that had started cannot go on; ends it with `error:<code>`
        ├── NumericalError      NaN, or nothing finite, in this run's logits
        ├── DeviceMemoryError
        ├── ConstraintError     what the constraint asks for cannot be continued
        └── LeaseLostError      another worker owns the run now; this one writes nothing more

A message is a sentence for the person who must act: what happened, the value, what to do.
"""

from typing import Any, ClassVar


class DecodeLabError(Exception):
    """Base of the tree. `code` is stable and machine-readable, `field` names the offending input where there is one."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        message = _as_text(message)
        super().__init__(message)
        self.message = message
        self.field = None if field is None else _as_text(field)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` commands and HTTP routes answer with."""
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


def _as_text(text: str) -> str:
    """What was refused may be no text itself; its lone surrogates are written out, so that JSON can hold the answer."""
    return text.encode("utf-8", "backslashreplace").decode()


class RefusedError(DecodeLabError):
    code = "refused"


class SettingError(RefusedError):
    code = "invalid_setting"


class PromptError(RefusedError):
    code = "invalid_prompt"

    def __init__(self, message: str, *, field: str | None = "prompt") -> None:
        super().__init__(message, field=field)


class ChatError(PromptError):
    code = "invalid_chat"

    def __init__(self, message: str, *, field: str | None = "messages") -> None:
        super().__init__(message, field=field)


class UnknownCheckpointError(RefusedError):
    code = "unknown_checkpoint"

    def __init__(self, message: str, *, field: str | None = "checkpoint") -> None:
        super().__init__(message, field=field)


class NotFoundError(RefusedError):
    code = "not_found"


class LimitError(RefusedError):
    code = "limit"


class UnavailableError(DecodeLabError):
    code = "unavailable"


class BrokerUnavailableError(UnavailableError):
    code = "broker_unavailable"


class DatabaseUnavailableError(UnavailableError):
    code = "database_unavailable"


class NoWorkerError(UnavailableError):
    code = "no_worker"


class CheckpointError(DecodeLabError):
    code = "checkpoint"


class CheckpointMissingError(CheckpointError):
    code = "checkpoint_missing"


class CheckpointBrokenError(CheckpointError):
    code = "checkpoint_broken"


class NotACausalLMError(CheckpointError):
    code = "not_a_causal_lm"


class EventError(DecodeLabError):
    code = "internal"


class RunError(DecodeLabError):
    code = "internal"


class NumericalError(RunError):
    code = "numerical"


class DeviceMemoryError(RunError):
    code = "out_of_memory"


class ConstraintError(RunError):
    code = "constraint"


class LeaseLostError(RunError):
    code = "lease_lost"
