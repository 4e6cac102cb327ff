"""Every control of a run, its neutral value and its bounds: SEMANTICS 2 and 4 as one frozen value.

A `Settings` that exists is valid by itself. What depends on a checkpoint (ids inside the vocabulary) is checked by
`Settings.check_vocabulary`. Nothing is clamped, nothing unknown is accepted.
"""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from models.constraint import Constraint
from models.errors import SettingError
from models.json_values import MAX_COUNT, Doubled, doubled_name, marking_doubled, refuse_surrogates

MAX_STOP_STRINGS: Final = 16
MAX_STOP_STRING_CHARACTERS: Final = 256
MAX_BIASES: Final = 300
MAX_ALTERNATIVES: Final = 100
MAX_BEAMS: Final = 16
MAX_NEW_TOKENS: Final = 1_000_000
MAX_SEED: Final = 2**64 - 1


class Stage(StrEnum):
    """The stages that turn raw into processed log-probabilities, in their default order."""

    BIAS = "bias"
    CONSTRAINT = "constraint"
    REPETITION = "repetition"
    PRESENCE_FREQUENCY = "presence_frequency"
    NO_REPEAT_NGRAM = "no_repeat_ngram"
    MIN_TOKENS = "min_tokens"
    TEMPERATURE = "temperature"
    TOP_K = "top_k"
    TOP_P = "top_p"
    MIN_P = "min_p"
    TYPICAL = "typical"


DEFAULT_ORDER: Final = tuple(Stage)
_STAGES: Final = frozenset(Stage)


class Scope(StrEnum):
    """Which tokens a penalty counts."""

    ALL = "all"  # prompt and output
    OUTPUT = "output"


_TokenId = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Settings(BaseModel):
    """The effective settings of one run, complete: every field has its value, neutral or not.

    The neutral value of each control is its default here, except `max_tokens`, which is a budget and not a control.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    temperature: float = Field(1.0, ge=0, le=100)
    top_k: int = Field(0, ge=0, le=MAX_COUNT)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, gt=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0)
    repetition_scope: Scope = Scope.ALL
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_frequency_scope: Scope = Scope.OUTPUT
    no_repeat_ngram_size: int = Field(0, ge=0, le=MAX_COUNT)
    logit_bias: dict[_TokenId, float] = Field(default_factory=dict, max_length=MAX_BIASES)
    banned: tuple[_TokenId | str, ...] = Field((), max_length=MAX_BIASES)
    constraint: Constraint | None = None
    # Above 1: beam search. It draws nothing, so the seed and the stages from temperature on are inert.
    num_beams: int = Field(1, ge=1, le=MAX_BEAMS)
    length_penalty: float = Field(1.0, ge=-100, le=100)  # of beam search: score = log-probability / length ** penalty
    early_stopping: bool | Literal["never"] = False  # of beam search
    order: tuple[Stage, ...] = DEFAULT_ORDER
    min_tokens: int = Field(0, ge=0, le=MAX_COUNT)
    max_tokens: int = Field(128, ge=0, le=MAX_NEW_TOKENS)
    stop: tuple[str, ...] = Field((), max_length=MAX_STOP_STRINGS)
    include_stop: bool = False
    stop_token_ids: tuple[_TokenId, ...] = Field((), max_length=MAX_BIASES)
    ignore_eos: bool = False
    alternatives: int = Field(20, ge=0, le=MAX_ALTERNATIVES)
    parse_special: bool = False
    seed: int | None = Field(None, ge=0, le=MAX_SEED)

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _ids_from_json_keys(cls, value: Any) -> Any:
        """JSON objects have string keys: `{"42": -1.5}` names token 42."""
        if not isinstance(value, dict):
            return value
        biases = {int(k) if isinstance(k, str) and k.isascii() and k.isdigit() else k: v for k, v in value.items()}
        if len(biases) < len(value):
            raise ValueError("a token is named twice; give it one bias")
        return biases

    @field_validator("banned", "stop", "stop_token_ids", mode="before")
    @classmethod
    def _tuple_from_json_array(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("repetition_scope", "presence_frequency_scope", mode="before")
    @classmethod
    def _scope_from_text(cls, value: Any) -> Any:
        return Scope(value) if isinstance(value, str) and value in set(Scope) else value

    @field_validator("order", mode="before")
    @classmethod
    def _stages_from_text(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(Stage(v) if isinstance(v, str) and v in _STAGES else v for v in value)
        return value

    @field_validator("stop")
    @classmethod
    def _check_stop_strings(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not text:
                raise ValueError("a stop string is empty; remove it")
            if len(text) > MAX_STOP_STRING_CHARACTERS:
                raise ValueError(
                    f"a stop string has {len(text)} characters; at most {MAX_STOP_STRING_CHARACTERS} are allowed"
                )
            refuse_surrogates(text)
        return value

    @field_validator("banned")
    @classmethod
    def _check_banned(cls, value: tuple[int | str, ...]) -> tuple[int | str, ...]:
        for item in value:
            if isinstance(item, str):
                if not item:
                    raise ValueError("a banned string is empty; remove it")
                refuse_surrogates(item)
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if sorted(self.order) != sorted(DEFAULT_ORDER):
            raise ValueError(f"order must name each of {', '.join(DEFAULT_ORDER)} exactly once")
        if self.constraint is not None and self.is_greedy:
            place = self.order.index
            if place(Stage.CONSTRAINT) > place(Stage.TEMPERATURE):
                raise ValueError("at temperature 0 nothing acts after temperature; put constraint before it")
        return self

    @model_validator(mode="after")
    def _check_beams(self) -> Self:
        if self.num_beams > 1 and self.stop:
            reason = (
                "a beam search does not look for stop strings, so there can be none while num_beams is "
                f"{self.num_beams}; leave it out, or set num_beams to 1"
            )
            raise PydanticCustomError("not_with_beams", "{reason}", {"field": "stop", "reason": reason})
        return self

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Build settings from plain JSON values; missing fields are neutral.

        Raises SettingError naming the field, the value and the bound, for the first field that is wrong.
        """
        if not isinstance(values, dict):
            raise SettingError(f"settings must be an object of field: value, not {_show(values)}", field="settings")
        try:
            return cls.model_validate(values)
        except ValidationError as exc:
            raise _setting_error(exc) from exc

    @classmethod
    def parse_json(cls, text: str) -> Self:
        """Like `parse`, from the text of a JSON object. A field that is given twice is refused."""
        try:
            # NaN and Infinity are read here, so that their refusal can name the field.
            values = json.loads(text, object_pairs_hook=marking_doubled)
        except (ValueError, RecursionError) as exc:
            raise SettingError(f"settings are not valid JSON: {exc}", field="settings") from exc
        if isinstance(values, Doubled):
            raise SettingError(f"{values.name} is given twice; give it one value", field=values.name)
        for field, value in values.items() if isinstance(values, dict) else ():
            refuse_doubled(value, field)
        return cls.parse(values)

    def with_changes(self, **changes: Any) -> Self:
        """A validated copy with some fields changed. Raises SettingError."""
        return self.parse({**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values. `parse(as_dict())` gives an equal value."""
        return self.model_dump(mode="json")

    def changed(self) -> dict[str, Any]:
        """The fields that are not at their default, as plain JSON values, without the seed."""
        return {k: v for k, v in self.as_dict().items() if k != "seed" and v != _NEUTRAL_VALUES[k]}

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise SettingError for a token id that the checkpoint's vocabulary of `vocab_size` ids does not have."""
        named = {
            "logit_bias": self.logit_bias,
            "banned": [i for i in self.banned if isinstance(i, int)],
            "stop_token_ids": self.stop_token_ids,
        }
        for field, ids in named.items():
            for token_id in ids:
                if token_id >= vocab_size:
                    raise SettingError(
                        f"{field}: token id {token_id} is outside the vocabulary; ids go from 0 to {vocab_size - 1}",
                        field=field,
                    )

    def check_given(self) -> None:
        """Raise SettingError where a text that is given has no distribution of its own at each position."""
        if self.num_beams > 1:
            raise SettingError(
                f"num_beams: it is {self.num_beams}, and a text that is given is not searched for; leave it at 1",
                field="num_beams",
            )


def refuse_doubled(value: Any, field: str) -> None:
    """Raise SettingError for the value of a field, read by `marking_doubled`, in which a name is given twice."""
    if (name := doubled_name(value)) is not None:
        raise SettingError(f"{field}: {name} is given twice; give it one value", field=field)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _setting_error(exc: ValidationError) -> SettingError:
    """The first problem of a pydantic report, told as a sentence that names field, value and bound."""
    problem: Any = exc.errors()[0]
    place = "order" if problem["type"] == "value_error" else "settings"  # of a problem of the settings as a whole
    field = str(problem["loc"][0]) if problem["loc"] else place
    if field == "constraint" and len(problem["loc"]) > 1:
        return _constraint_error(f"constraint.{problem['loc'][1]}", problem)
    match problem["type"]:
        case "extra_forbidden":
            known = ", ".join(sorted(Settings.model_fields))
            return SettingError(f"{field} is not a setting; the settings are {known}", field=field)
        case "not_with_beams":
            field = problem["ctx"]["field"]
            return SettingError(f"{field}: {problem['ctx']['reason']}", field=field)
        case "value_error":
            return SettingError(f"{field}: {problem['ctx']['error']}", field=field)
        case _ if field == "early_stopping":  # pydantic reports on one kind of its values alone
            shown = _show(problem["input"])
            return SettingError(f'early_stopping: it is true, false or "never", got {shown}', field=field)
        case _:
            return SettingError(f"{field}: {_reason(problem)}", field=field)


def _constraint_error(place: str, problem: Any) -> SettingError:
    """A problem inside the constraint, told with its place there."""
    match problem["type"]:
        case "extra_forbidden":
            reason = f"{place} is not a kind of constraint; the kinds are {', '.join(Constraint.model_fields)}"
        case "value_error":
            reason = f"{place}: {problem['ctx']['error']}"
        case _:
            reason = f"{place}: {_reason(problem)}"
    return SettingError(reason, field="constraint")


def _reason(problem: Any) -> str:
    message: str = problem["msg"]
    return f"{message[0].lower()}{message[1:]}, got {_show(problem['input'])}"


NEUTRAL: Final = Settings()
"""Nothing changed: the processed distribution equals the raw one."""
_NEUTRAL_VALUES: Final = NEUTRAL.as_dict()


def derived_seed(seed: int, place: str) -> int:
    """32 bits of a hash of both: the seed of what belongs to `seed` and has noise of its own."""
    digest = hashlib.sha256(f"decodelab:{seed}:{place}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
