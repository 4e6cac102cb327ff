"""Real worker processes over a scripted checkpoint: everything is as in production but the network.

`WorkerProcess` starts one and can do to it what happens to processes. They are forked from a server that has imported
the libraries once, because each import of torch takes longer than most tests.
"""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.names import WORKERS_KEY, worker_key
from models.presence import WorkerPresence
from tests.fakes.services import PATIENCE_S, Valkey, wait_until

SENTENCE = " the quick brown fox jumps over lazy dog and runs from a cat to see what is there in"
TEXT = SENTENCE * 40  # 17 tokens each time, of which none begins like the prompts of the tests
START_TIMEOUT_S = 120  # the first one of a version compiles


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


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["workers.__main__", "workers.worker", "tests.fakes.scripted", "tests.fakes.tokenizers"])


@dataclass
class WorkerProcess:
    """One worker. The intervals are those of production made shorter, so that recovery can be watched."""

    valkey: Valkey
    database_url: str
    plan: Plan = field(default_factory=Plan)
    rows: int = 2
    settings: Mapping[str, object] = field(default_factory=dict)
    log: Path = Path(os.devnull)
    folder: Path | None = None  # of a real checkpoint to load instead, served as "tiny"
    _process: Any = None

    def start(self) -> "WorkerProcess":
        """Returns once the worker says in Redis that it is there."""
        self.launch()
        wait_until(self._is_there, timeout_s=START_TIMEOUT_S, what=f"the worker's presence (log: {self.log})")
        return self

    def launch(self) -> "WorkerProcess":
        """Returns at once."""
        quick = {"lease_s": 3, "lease_renew_s": 0.5, "sweep_every_s": 0.5, "requeue_after_s": 2, "drain_s": 1}
        variables = {
            "redis_url": self.valkey.url,
            "database_url": self.database_url,
            "checkpoints": f"tiny={self.folder}" if self.folder else "scripted=/nowhere",
            "rows": self.rows,
            "threads": 1,
            **quick,
            **self.settings,
        }
        environment = {f"DECODELAB_{name.upper()}": str(value) for name, value in variables.items()}
        plan = None if self.folder else json.dumps(asdict(self.plan))
        self._process = _FORKS.Process(target=_work, args=(environment, plan, str(self.log)))
        self._process.start()
        return self

    @property
    def pid(self) -> int:
        return int(self._process.pid)

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
        if self.has_left:
            raise AssertionError(f"the worker left with status {self._process.exitcode} (log: {self.log})")
        return self.presence is not None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As the kernel does it: no time for anything."""
        self._process.kill()
        self._process.join()

    def wait(self, timeout_s: float = PATIENCE_S) -> int | None:
        """The exit status; None when the process is still there."""
        self._process.join(timeout_s)
        status: int | None = self._process.exitcode
        return status

    @property
    def has_left(self) -> bool:
        return self._process.exitcode is not None


def _work(environment: Mapping[str, str], plan: str | None, log: str) -> None:
    """The worker's own process; without a plan it loads what the environment names."""
    from workers.__main__ import main

    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if plan is None:
        sys.exit(main())
    values = json.loads(plan)

    def load(entry: Any, *, device: str, dtype: str) -> Any:
        return scripted_as(entry.name, Plan(**values))

    sys.exit(main(load=load))


def scripted_as(name: str, plan: Plan) -> Any:
    """The plan as a loaded checkpoint of this name."""
    from tests.fakes import scripted, tokenizers

    known = {
        "nan": scripted.gives_nan,
        "infinity": scripted.gives_infinity,
        "nothing": scripted.gives_nothing,
        "kill": scripted.kills,
        "hang": scripted.sleeps(3600),
        "raise": scripted.raises(RuntimeError("the pass failed")),
    }
    tokenizer = tokenizers.words()
    ids = tokenizer(plan.text).input_ids
    slow = scripted.every_step(scripted.sleeps(plan.step_s), len(ids)) if plan.step_s else {}

    def script(faults: Mapping[Any, str]) -> scripted.Script:
        failing = {int(step): known[fault] for step, fault in faults.items()}
        return scripted.Script(ids, {**slow, **failing}, tokenizer.eos_token_id if plan.ends else None)

    return scripted.scripted_checkpoint(
        tokenizer,
        script({}),
        name=name,
        context_length=plan.context_length,
        by_first_id={tokenizer(first).input_ids[0]: script(faults) for first, faults in plan.faults.items()},
    )
