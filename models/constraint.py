"""What the output of a run must be: one of four kinds, checked as far as this can be done without compiling it.

`models.grammar` compiles a constraint, and is the one that knows whether anything can satisfy it.
"""

import re
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from models.json_values import MAX_COUNT, objects_in, refuse_non_json, refuse_surrogates

MAX_CHOICES: Final = 1000
MAX_CONSTRAINT_BYTES: Final = 100_000
MAX_DEPTH: Final = 64
_NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_INNER_SCHEMA: Final = re.compile(r"%json\b")
# After strings and regexes, which may hold anything, are taken out.
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?![*/])(?:[^/\\\n]|\\.)+/|//[^\n]*|#[^\n]*')
_TOKEN_IDS: Final = re.compile(r"<\s*[\[|A-Za-z]")
_TEMPERATURE: Final = re.compile(r"\btemperature\s*=")  # the compiler reads it, and leaves it to its caller


class Constraint(BaseModel):
    """What the whole output must be: exactly one of the four."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    json_schema: dict[str, Any] | bool | None = None  # compact JSON: no white space outside its strings
    regex: str | None = None  # of the whole output
    choice: tuple[str, ...] | None = Field(None, max_length=MAX_CHOICES)
    grammar: str | None = None  # Lark's notation; the rule `start` is the output

    @field_validator("choice", mode="before")
    @classmethod
    def _tuple_from_json_array(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("json_schema", mode="before")
    @classmethod
    def _check_json_schema(cls, value: Any) -> Any:
        # Before anything else walks it: what is nested too deep would end in a recursion error there.
        refuse_non_json(value, max_depth=MAX_DEPTH)
        if value is False:
            raise ValueError("false is the schema that nothing satisfies")
        if isinstance(value, dict) and "x-guidance" in value:
            raise ValueError("x-guidance is not part of JSON Schema; remove it")
        for schema in objects_in(value):
            _refuse_wide_bounds(schema)
            _refuse_counted_keys(schema)
        return value

    @field_validator("choice")
    @classmethod
    def _check_choice(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None:
            if not value or not all(value):
                raise ValueError("it must list at least one text, and none may be empty")
            for text in value:
                refuse_surrogates(text)
        return value

    @field_validator("regex", "grammar")
    @classmethod
    def _check_text(cls, value: str | None) -> str | None:
        refuse_surrogates(value or "")
        return value

    @field_validator("grammar")
    @classmethod
    def _check_grammar(cls, value: str | None) -> str | None:
        if value is not None and _INNER_SCHEMA.search(value):
            raise ValueError("a schema inside a grammar (%json) is not supported; use json_schema")
        bare = _QUOTED.sub(" ", value or "")
        if _TEMPERATURE.search(bare):
            raise ValueError("a grammar changes no temperature; remove it, and set temperature itself")
        if found := _TOKEN_IDS.search(bare):
            raise ValueError(f"a grammar describes text, and names no tokens ({found[0]}...); write the text itself")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}, not {len(given)}")
        if len(self.model_dump_json().encode()) > MAX_CONSTRAINT_BYTES:
            raise ValueError(f"it is longer than {MAX_CONSTRAINT_BYTES:,} bytes; make it smaller")
        return self

    @model_serializer
    def _only_what_is_given(self) -> dict[str, Any]:
        return {name: value for name, value in self if value is not None}

    @property
    def kind(self) -> str:
        """The name of the one field that is given."""
        return next(name for name, value in self if value is not None)


def _refuse_wide_bounds(schema: dict[str, Any]) -> None:
    """The compiler would round them. A property may have such a name too: then it is no number."""
    for name in _NUMERIC:
        bound = schema.get(name)
        if isinstance(bound, int | float) and abs(bound) > MAX_COUNT:
            raise ValueError(f"{name} is {bound:.6g}; the bounds of numbers go to {MAX_COUNT}")


def _refuse_counted_keys(schema: dict[str, Any]) -> None:
    """The compiler would count a key that comes twice as two. Beside the required ones, one more is never doubled."""
    least, required = schema.get("minProperties"), schema.get("required")
    num_required = len({name for name in required if isinstance(name, str)}) if isinstance(required, list) else 0
    if isinstance(least, int | float) and least > num_required + 1:
        raise ValueError(
            f"minProperties is {least:.6g} and {num_required} are required; only one more can be asked for, as a "
            "name may come twice"
        )
