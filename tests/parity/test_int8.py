"""Weights of 8 bits: what is rounded, and that nothing else is."""

import copy
from pathlib import Path

import pytest
import torch

from models.errors import SettingError
from tests.fakes import checkpoints
from tests.fakes.engine_runs import run
from tests.fakes.families import FAMILIES
from tests.parity.reference import LOGPROB_TOLERANCE
from workers.engine.checkpoint import Checkpoint, choose_device
from workers.engine.rounding import LARGEST, Rounded
from workers.engine.runner import Runner


@pytest.fixture(scope="module", params=[name for name, family in FAMILIES.items() if family.is_fused])
def rounded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = FAMILIES[request.param].write(tmp_path_factory.mktemp("int8") / "tiny")
    checkpoint = checkpoints.load(folder, dtype="int8")
    assert checkpoint.info.dtype == "int8"
    assert checkpoint.info.is_fused
    return checkpoint


def test_a_row_by_hand() -> None:
    weight = torch.tensor([[0.5, -1.27, 0.004, 0.015], [0.0, 0.0, 0.0, 0.0]])
    found = Rounded.of(weight)
    assert found.numbers.tolist() == [[50, -127, 0, 2], [0, 0, 0, 0]]  # 0.4 -> 0, 1.5 -> 2, the even one
    assert found.scales.tolist() == pytest.approx([0.01, 1.0])
    assert torch.allclose(found.values, torch.tensor([[0.5, -1.27, 0.0, 0.02], [0.0] * 4]))


def test_no_weight_moves_by_more_than_half_a_step() -> None:
    weight = torch.randn(64, 300, generator=torch.Generator().manual_seed(1))
    found = Rounded.of(weight)
    moved = (found.values - weight).abs()
    assert (moved <= found.scales.unsqueeze(1) * (0.5 + 1e-5)).all()
    assert (found.numbers.abs().amax(dim=1) == LARGEST).all()


@torch.inference_mode()
def test_steps_and_prompts_are_of_one_network(rounded: Checkpoint) -> None:
    """The kernels' numbers are those of the network with the rounded weights, in float64."""
    ids = torch.randint(3, checkpoints.VOCAB_SIZE, (60,), generator=torch.Generator().manual_seed(2)).tolist()
    runner = Runner(rounded)
    cache = runner.new_cache()
    logits = torch.cat([runner.decode(cache, token_id) for token_id in ids])
    exact = copy.deepcopy(rounded.network).double()(input_ids=torch.tensor([ids])).logits[0]
    assert (logits.double().log_softmax(-1) - exact.log_softmax(-1)).abs().max() < LOGPROB_TOLERANCE


def test_the_rounding_shows(rounded: Checkpoint, tmp_path: Path) -> None:
    """It is another network than the one in float32: near, and not the same."""
    family = next(f for f in FAMILIES.values() if f.is_fused)
    exact = family.load(tmp_path / "exact")
    same = checkpoints.load(tmp_path / "exact", dtype="int8")
    told = [run(checkpoint, "the quick brown fox", max_tokens=1) for checkpoint in (exact, same)]
    first, second = (one.tokens[0].candidates for one in told)
    moved = [abs(a.raw_logprob - b.raw_logprob) for a in first for b in second if a.token_id == b.token_id]
    assert 1e-6 < max(moved) < 0.5


def test_what_gains_nothing_is_refused(tmp_path: Path) -> None:
    folder = checkpoints.write_gpt2(tmp_path / "gpt2")
    with pytest.raises(SettingError, match=r"int8 would gain nothing.*GPT2LMHeadModel.*float32"):
        checkpoints.load(folder, dtype="int8")


def test_it_is_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingError, match="int8 is for a CPU, and the device is cuda:0"):
        choose_device("cuda", "int8")
