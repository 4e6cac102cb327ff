"""The grammar that a constraint stands for, and whether it may be used at all.

JSON is compact: no white space outside strings, so that it cannot run away, and a text has one spelling. What a
schema asks for and the compiler does not know is refused, never left out. No reference is ever fetched.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from llguidance import LLMatcher

from models.constraint import Constraint
from models.endless_schema import is_endless
from models.errors import SettingError

_TRIAL: Final = Path(__file__).with_name("grammar_compiler.py")
_TRIAL_S: Final = 20  # by the clock: on a busy machine the computing time of a trial takes longer
_COMPACT: Final = {
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    "coerce_one_of": False,
    "lenient": False,
    # Without \u: a key that spells a declared name with it would be taken for another one, and escape its schema.
    "json_allowed_escapes": 'nrbtf\\"',
}
_BODY: Final = "body"
# Where a text is forced, llguidance would allow only the tokens that the tokenizer itself would take for it.
_EVERY_SPELLING: Final = '%llguidance {"no_forcing": true}'


def grammar_of(constraint: Constraint, *, is_after_space: bool = False) -> str:
    """The constraint as a grammar of llguidance. `is_after_space`: the output is one space, then what it asks for."""
    space = '" " ' if is_after_space else ""
    output = {"name": "output", "lark_grammar": f"{_EVERY_SPELLING}\nstart: {space}@{_BODY}"}
    return json.dumps({"grammars": [output, {"name": _BODY, **_body(constraint)}]})


def check_constraint(constraint: Constraint) -> None:
    """Refuse what cannot be compiled, what nothing satisfies, and what takes too long: within a second of computing.

    It is tried with bytes for tokens, so the answer holds for every checkpoint that has a token for each byte.
    Raises SettingError.
    """
    if is_endless(constraint.json_schema):
        raise constraint_error(
            constraint, "nothing can satisfy it: every value would have to hold another, without end"
        )
    try:
        error = _trial(grammar_of(constraint))
    except subprocess.SubprocessError:  # not remembered: the machine may have been too busy
        error = _TOO_MUCH
    if error is not None:
        raise constraint_error(constraint, error)


def constraint_error(constraint: Constraint, reason: str) -> SettingError:
    return SettingError(f"constraint.{constraint.kind}: {reason}", field="constraint")


def _body(constraint: Constraint) -> dict[str, Any]:
    match constraint.kind:
        case "json_schema":
            schema = {} if constraint.json_schema is True else constraint.json_schema
            return {"json_schema": {**(schema or {}), "x-guidance": _COMPACT}}
        case "regex":
            return _regex(constraint.regex or "")
        case "choice":
            return _regex("|".join(map(_literal, constraint.choice or ())))
        case _:
            return {"lark_grammar": constraint.grammar}


def _regex(regex: str) -> dict[str, Any]:
    grammar: dict[str, Any] = json.loads(LLMatcher.grammar_from_regex(regex))["grammars"][0]
    return {"lark_grammar": grammar["lark_grammar"]}


def _literal(text: str) -> str:
    """A regex for this text alone."""
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text)


@functools.lru_cache(maxsize=256)
def _trial(grammar: str) -> str | None:
    """Compile it in a process of its own; the sentence that says what is wrong, or None.

    Raises SubprocessError where the process gave no answer for another reason than the constraint.
    """
    trial = subprocess.run(
        [sys.executable, "-P", str(_TRIAL)], input=grammar.encode(), capture_output=True, timeout=_TRIAL_S
    )
    if trial.returncode < 0:  # ended by a signal: its time was up, or its stack
        return _TOO_MUCH
    trial.check_returncode()
    error: str | None = json.loads(trial.stdout)["error"]
    return error


_TOO_MUCH: Final = "it takes too long to compile; make it smaller, or less nested"
