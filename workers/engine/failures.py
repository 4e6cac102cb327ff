"""The one place where an error becomes the reason that ends a run. Plain Python."""

from models.errors import CheckpointError, ConstraintError, DeviceMemoryError, NumericalError, RefusedError
from models.events import StopReason


def reason_for(exc: Exception) -> StopReason:
    """Why a run that met `exc` has ended."""
    match exc:
        case NumericalError():
            return StopReason.ERROR_NUMERICAL
        case DeviceMemoryError() | MemoryError():
            return StopReason.ERROR_OUT_OF_MEMORY
        case RefusedError() | CheckpointError() | ConstraintError():
            return StopReason.ERROR_CHECKPOINT  # this checkpoint cannot run this prompt with these settings
        case _:
            return StopReason.ERROR_INTERNAL
