"""After loading and a rehearsal nothing is compiled any more: nobody's first token waits for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.services import REPOSITORY

# In a process of its own, as what other tests have compiled in this one stays.
PROGRAM = """
import json, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from tests.fakes import checkpoints
from tests.fakes.engine_runs import request
from workers.engine.engine import Engine, Request
from workers.engine.rehearsal import rehearse

def compiled():
    kernels = [module for name, module in sys.modules.items() if name.startswith("workers.engine.kernels.")]
    functions = {id(f): f for module in kernels for f in vars(module).values() if isinstance(f, Dispatcher)}
    return {f"{f.py_func.__module__}.{f.py_func.__qualname__}{s}" for f in functions.values() for s in f.signatures}

checkpoint = checkpoints.load(getattr(checkpoints, sys.argv[1])(Path(sys.argv[2])))
rehearse("cpu")
before = compiled()
engine = Engine(checkpoint, num_rows=4)
kinds = (
    {}, {"top_p": 0.9, "temperature": 0.7}, {"temperature": 0}, {"min_p": 0.1, "top_k": 9}, {"temperature": 0.7},
    {"top_p": 0.9}, {"repetition_penalty": 1.2}, {"frequency_penalty": 0.3, "temperature": 0.7, "top_p": 0.9},
    {"temperature": 0, "repetition_penalty": 1.2}, {"logit_bias": {"5": 1.5}}, {"banned": [5]}, {"min_tokens": 2},
    {"no_repeat_ngram_size": 2}, {"alternatives": 0}, {"constraint": {"choice": ["fox", "quick"]}},
)

def run(*together):
    for number, settings in enumerate(together):
        engine.add(request(checkpoint, "the quick brown fox", sequence_id=str(number), **{"max_tokens": 4, **settings}))
    while engine.has_work:
        engine.step()

for kind in kinds:
    run(kind)
    run(kind, kind)
run(*kinds[:4])
asked = request(checkpoint, "the quick")
engine.add(Request.to_score("given", asked.prompt_token_ids, asked.settings, given=(5, 6, 7, 8)))
run(kinds[0])
print(json.dumps({"before": len(before), "late": sorted(compiled() - before)}))
"""


@pytest.mark.parametrize("write", ["write_llama", "write_gpt2"])
def test_no_run_waits_for_a_compiler(write: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, write, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["before"] > 5
    assert counted["late"] == []
