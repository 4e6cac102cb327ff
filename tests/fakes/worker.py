"""Real worker processes over a scripted checkpoint: everything is as in production but the network.

`python -m tests.fakes.worker` is such a worker; its script comes as JSON in DECODELAB_TEST_PLAN. `WorkerProcess` starts
one and can do to it what happens to processes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.names import WORKERS_KEY, worker_key
from models.presence import WorkerPresence
from tests.fakes.services import REPOSITORY, Valkey, wait_until

PLAN = "DECODELAB_TEST_PLAN"
SENTENCE = " the quick brown fox jumps over lazy dog and runs from a cat to see what is there in"
TEXT = SENTENCE * 40  # 17 tokens each time, of which none begins like the prompts of the tests
START_TIMEOUT_S = 40


@dataclass(frozen=True)
class Plan:
    """What the network says and how it fails.

    `faults`: first character of the prompt -> number of the token -> "nan", "infinity", "nothing", "kill", "raise" or
    "hang". Runs whose prompt begins otherwise meet none.
    """

    text: str = TEXT
    step_s: float = 0.0
    ends: bool = False  # the end token follows the text
    faults: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    context_length: int = 8192


@dataclass
class WorkerProcess:
    """One worker. The intervals are those of production made shorter, so that recovery can be watched."""

    valkey: Valkey
    database_url: str
    plan: Plan = field(default_factory=Plan)
    rows: int = 2
    settings: Mapping[str, object] = field(default_factory=dict)
    log: Path | None = None
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> "WorkerProcess":
        """Returns once the worker says in Redis that it is there."""
        self.launch()
        wait_until(self._is_there, timeout_s=START_TIMEOUT_S, what=f"the worker's presence (log: {self.log})")
        return self

    def launch(self) -> "WorkerProcess":
        quick = {
            "lease_s": 3,
            "lease_renew_s": 0.5,
            "sweep_every_s": 0.5,
            "requeue_after_s": 2,
            "drain_s": 1,
        }
        variables = {
            "redis_url": self.valkey.url,
            "database_url": self.database_url,
            "checkpoints": "scripted=/nowhere",
            "rows": self.rows,
            "threads": 1,
            **quick,
            **self.settings,
        }
        environment = {
            **os.environ,
            **{f"DECODELAB_{name.upper()}": str(value) for name, value in variables.items()},
            PLAN: json.dumps(asdict(self.plan)),
            "OMP_NUM_THREADS": "1",
        }
        output = subprocess.DEVNULL if self.log is None else self.log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.worker"],
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def presence(self) -> WorkerPresence | None:
        """What this process says of itself in Redis now."""
        with self.valkey.client() as client:
            for worker_id in client.zrange(WORKERS_KEY, 0, -1):
                data = client.get(worker_key(worker_id.decode()))
                if data is not None and WorkerPresence.decode(data).pid == self.pid:
                    return WorkerPresence.decode(data)
        return None

    def _is_there(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the worker left with status {self._process.returncode} (log: {self.log})")
        return self.presence is not None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As the kernel does it: no time for anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, timeout_s: float = 20) -> int:
        """The exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    @property
    def has_left(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None


def _load(entry: Any, *, device: str, dtype: str) -> Any:
    """The plan of the environment as a loaded checkpoint."""
    from tests.fakes import scripted, tokenizers

    plan = Plan(**json.loads(os.environ[PLAN]))
    tokenizer = tokenizers.words()
    ids = tokenizer(plan.text).input_ids
    then = tokenizer.eos_token_id if plan.ends else None

    def script(faults: Mapping[Any, str]) -> scripted.Script:
        slow = scripted.every_step(scripted.sleeps(plan.step_s), len(ids)) if plan.step_s else {}
        known = {int(step): _FAULTS[name] for step, name in faults.items()}
        return scripted.Script(ids, {**slow, **known}, then)

    return scripted.scripted_checkpoint(
        tokenizer,
        script({}),
        name=entry.name,
        context_length=plan.context_length,
        by_first_id={tokenizer(first).input_ids[0]: script(faults) for first, faults in plan.faults.items()},
    )


def main() -> int:
    from tests.fakes import scripted
    from workers.__main__ import main as run_worker

    _FAULTS.update(
        nan=scripted.gives_nan,
        infinity=scripted.gives_infinity,
        nothing=scripted.gives_nothing,
        kill=scripted.kills,
        hang=scripted.sleeps(3600),
        **{"raise": scripted.raises(RuntimeError("the pass failed"))},
    )
    return run_worker(load=_load)


_FAULTS: dict[str, Any] = {}

if __name__ == "__main__":
    sys.exit(main())
