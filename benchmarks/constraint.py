"""What a constraint costs at a vocabulary of 49,152: compiling, and one step of its matcher, in milliseconds.

    python -m benchmarks.constraint [--checkpoint data/checkpoints/smollm2-135m-instruct] [--repeat 5]

A line is one constraint. `check` is the trial in a process of its own, by the clock; `compile` the compilation for the
checkpoint's tokens; `mask` what a step asks of the matcher (go on by a token, and what may come next). The process's
own CPU time, which other programs on the machine disturb less. Outputs are drawn at random from what is allowed.
"""

import argparse
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from models.constraint import Constraint
from models.grammar import check_constraint
from workers.engine.constraint import Compiler
from workers.engine.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "naïve 😀"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"value": True, "next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}
CASES: dict[str, dict[str, Any]] = {
    "object": {"json_schema": PERSON},
    "recursive": {"json_schema": TREE},
    "any JSON": {"json_schema": True},
    "1,000 choices": {"choice": [f"choice number {i}" for i in range(1000)]},
    "3,000 values": {"json_schema": {"enum": [f"value number {i}" for i in range(3000)]}},
    "1,500 properties": {"json_schema": {"properties": {f"p{i}": True for i in range(1500)}}},
    "regex": {"regex": "(a|b)*a(a|b){200}"},
    "grammar": {"grammar": 'start: item ("," item)*\nitem: /[a-z]+/ | "(" start ")"'},
}
LENGTH = 60


def walk(compiler: Compiler, constraint: Constraint, seed: int) -> tuple[float, list[float]]:
    """Seconds of the compilation, and of each step of one output."""
    began = time.process_time()
    matcher = compiler.compile(constraint)
    compile_s = time.process_time() - began
    steps, draw = [], random.Random(seed)
    while len(steps) < LENGTH and not matcher.is_complete:
        token_id = draw.choice(np.flatnonzero(matcher.allowed()).tolist())
        began = time.process_time()
        matcher.accept(token_id)
        matcher.allowed()
        steps.append(time.process_time() - began)
    return compile_s, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("data/checkpoints/smollm2-135m-instruct"))
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.checkpoint, local_files_only=True))
    compiler = Compiler(vocabulary, vocabulary.size, end_token_ids=frozenset())
    compiler.compile(Constraint(regex="a"))  # reads the tokens
    print(f"{'constraint':<18}{'check':>8}{'compile':>9}{'mask p50':>10}{'p99':>8}{'max':>8}")
    for name, values in CASES.items():
        constraint = Constraint.model_validate(values)
        began = time.perf_counter()
        check_constraint(constraint)
        check_s = time.perf_counter() - began
        told = [walk(compiler, constraint, seed) for seed in range(options.repeat)]
        steps = np.array([step for _, of_run in told for step in of_run]) * 1000
        compile_ms = float(np.median([compile_s for compile_s, _ in told])) * 1000
        p50, p99 = np.percentile(steps, [50, 99])
        print(f"{name:<18}{check_s * 1000:>8.0f}{compile_ms:>9.1f}{p50:>10.3f}{p99:>8.3f}{steps.max():>8.3f}")


if __name__ == "__main__":
    main()
