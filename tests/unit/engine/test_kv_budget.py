"""The budget for keys and values: who waits, who gives way, and that nobody's tokens change."""

import random
from typing import Any

import pytest
import torch

from models.events import Prefilled, StopReason
from tests.fakes.engine_runs import Told, assert_alike, drain, request, run, told
from workers.engine.cache import SequenceCache, room_for
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0, "max_tokens": 30},
    {"seed": 1, "max_tokens": 25},
    {"seed": 2, "temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.2, "max_tokens": 35},
    {"seed": 3, "top_k": 20, "max_tokens": 20, "constraint": {"regex": "[a-z ]{40,90}"}},
]


def prompt(number: int) -> list[int]:
    return [(31 * number + 17 * i) % 400 for i in range(8 + 9 * number)]


def all_at_once(engine: Engine) -> None:
    for number, settings in enumerate(OPTIONS):
        engine.add(request(engine.checkpoint, prompt(number), sequence_id=str(number), **settings))


def check(got: dict[str, Told], checkpoint: Checkpoint) -> None:
    for number, settings in enumerate(OPTIONS):
        assert_alike(got[str(number)], run(checkpoint, prompt(number), **settings))


@pytest.mark.parametrize(
    ("num_positions", "expected"), [(1, 256), (204, 256), (205, 256), (206, 320), (1000, 1280), (8192, 10240)]
)
def test_room_grows_in_steps(num_positions: int, expected: int) -> None:
    assert room_for(num_positions) == expected


@pytest.mark.parametrize("num_fitting", [1, 2, 3])
def test_those_without_room_wait(tiny: Checkpoint, num_fitting: int) -> None:
    """Each of these sequences takes the room of 256 positions."""
    engine = Engine(tiny, num_rows=4, kv_budget_bytes=num_fitting * tiny.info.kv_bytes(256))
    all_at_once(engine)
    most = 0
    outputs = []
    while engine.has_work:
        outputs += engine.step()
        most = max(most, len(engine._memory._held))
    assert most == num_fitting
    check(told(outputs), tiny)


def test_the_one_that_began_last_gives_way_and_goes_on_later(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both begin with room for 16 positions; as they grow there is no room for both."""
    monkeypatch.setattr("workers.engine.cache._FIRST_POSITIONS", 0)
    monkeypatch.setattr("workers.engine.cache.room_for", lambda num_positions: -(-num_positions // 16) * 16)
    engine = Engine(tiny, num_rows=2, kv_budget_bytes=tiny.info.kv_bytes(80))
    for name, seed in {"first": 1, "last": 2}.items():
        engine.add(request(tiny, prompt(0), sequence_id=name, seed=seed, max_tokens=50, ignore_eos=True))
    outputs = drain(engine)
    got = told(outputs)
    for name, seed in {"first": 1, "last": 2}.items():
        assert_alike(got[name], run(tiny, prompt(0), seed=seed, max_tokens=50, ignore_eos=True))
    first, last = (got[name].ended.passes for name in ("first", "last"))
    assert (first.prefill, first.prompt_tokens_computed) == (1, len(prompt(0)))
    assert last.prefill > 1
    ends = [o.sequence_id for o in outputs if o.payload is got["first"].ended or o.payload is got["last"].ended]
    assert ends == ["first", "last"]


def test_one_that_is_alone_is_never_put_back(tiny: Checkpoint) -> None:
    engine = Engine(tiny, kv_budget_bytes=1)
    engine.add(request(tiny, prompt(1), max_tokens=5))
    got = told(drain(engine))["a"]
    assert_alike(got, run(tiny, prompt(1), max_tokens=5))


def test_what_ended_ones_left_goes_before_anybody_waits(tiny: Checkpoint) -> None:
    engine = Engine(tiny, num_rows=2, kv_budget_bytes=2 * tiny.info.kv_bytes(256))
    for number in range(4):
        engine.add(request(tiny, prompt(number), sequence_id=str(number), max_tokens=3))
        drain(engine)
    assert engine._memory._prefixes.num_bytes > 0
    all_at_once(engine)
    check(told(drain(engine)), tiny)
    assert engine._memory._prefixes.num_bytes <= 2 * tiny.info.kv_bytes(256)


@pytest.mark.parametrize("seed", range(5))
def test_any_row_taken_away_at_any_time_changes_no_token(tiny: Checkpoint, seed: int) -> None:
    chance = random.Random(seed)
    engine = Engine(tiny, num_rows=3)
    all_at_once(engine)
    engine.add(request(tiny, prompt(5), sequence_id="beams", num_beams=3, max_tokens=6))
    outputs = []
    for step in range(1000):
        outputs += engine.step()
        if step % 3 == 2:
            engine.evict(chance.choice(["0", "1", "2", "3", "beams"]))
    assert not engine.has_work
    got = told(outputs)  # also: nobody is said to be prefilled twice
    check(got, tiny)
    assert_alike(got["beams"], run(tiny, prompt(5), num_beams=3, max_tokens=6))
    assert any(t.ended.passes.prefill > 1 for t in got.values())
    assert sum(isinstance(o.payload, Prefilled) for o in outputs) == 5


def test_a_cancel_reaches_one_that_waits_for_room(tiny: Checkpoint) -> None:
    engine = Engine(tiny, num_rows=2)
    engine.add(request(tiny, prompt(1), max_tokens=20))
    outputs = [output for _ in range(5) for output in engine.step()]
    engine.evict("a")
    engine.cancel("a")
    got = told([*outputs, *drain(engine)])["a"]
    assert (got.ended.stop.reason, len(got.tokens)) == (StopReason.CANCELLED, 5)


def test_without_memory_for_a_copy_a_sequence_computes_everything_itself(
    tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: SequenceCache, num_positions: int, *_: object) -> SequenceCache:
        raise torch.OutOfMemoryError(f"out of memory for {num_positions} positions")

    monkeypatch.setattr(SequenceCache, "beginning", no_room)
    engine = Engine(tiny, num_rows=2)
    for name in ("a", "b"):
        engine.add(request(tiny, prompt(3), sequence_id=name, max_tokens=4))
    got = told(drain(engine))
    for name in ("a", "b"):
        assert got[name].ended.passes.prompt_tokens_computed == len(prompt(3))
        assert_alike(got[name], run(tiny, prompt(3), max_tokens=4))
