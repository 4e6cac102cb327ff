"""Row-wise arithmetic: against plain NumPy, and the same bits alone, in a batch and under any number of threads."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from models.sampling import Scope
from tests.unit.engine_numbers.rows import row
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.rows import kth_largest, row_counts, row_sums, sorted_values

SIZE = 49152


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(5, SIZE, generator=torch.Generator().manual_seed(9), dtype=dtype) * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_have_the_same_bits_alone_and_in_a_batch(dtype: torch.dtype, threads: int) -> None:
    values = numbers(dtype)
    together = row_sums(values)
    assert [float(row_sums(values[i : i + 1])[0]) for i in range(5)] == together.tolist()
    assert together.tolist() == pytest.approx(values.double().numpy().sum(axis=1).tolist(), rel=1e-4)


def test_a_distribution_has_the_same_bits_alone_and_in_a_batch(threads: int) -> None:
    together = Distribution.of(numbers())
    for i in range(5):
        alone = Distribution.of(numbers()[i : i + 1])
        for name in ("weights", "total", "best", "log_total", "entropy"):
            assert torch.equal(getattr(alone, name)[0], getattr(together, name)[i]), name


def test_a_distribution_is_right_to_a_ten_millionth() -> None:
    logits = numbers()
    logits[2, ::7] = -torch.inf
    logits[3] *= 20
    distribution = Distribution.of(logits)
    exact = logits.double().log_softmax(dim=-1)
    kept = exact > -torch.inf
    assert (distribution.logprobs - exact)[kept].abs().max() < 1e-7
    assert torch.equal(distribution.logprobs > -torch.inf, kept)
    p = exact.exp()
    entropy = -(p * exact.nan_to_num(neginf=0.0)).sum(dim=-1)
    assert distribution.entropy.tolist() == pytest.approx(entropy.tolist(), abs=3e-7)
    mask = logits > 1
    assert distribution.mass(mask).tolist() == pytest.approx((p * mask).sum(dim=-1).tolist(), abs=1e-7)


def test_order_statistics_and_counts() -> None:
    values = numbers()
    expected = np.sort(values.numpy(), axis=-1)
    assert np.array_equal(sorted_values(values).numpy(), expected)
    ks = [1, 2, 50, SIZE - 1, SIZE]
    found = kth_largest(values, ks).squeeze(1).tolist()
    assert found == [float(expected[i, SIZE - k]) for i, k in enumerate(ks)]
    assert row_counts(values > 1).tolist() == (values.numpy() > 1).sum(axis=1).tolist()


def test_history_takes_lists_and_arrays_alike() -> None:
    lists = row(prompt=[3, 1], output=[2])
    assert lists.history(Scope.ALL).tolist() == [3, 1, 2]
    assert lists.history(Scope.OUTPUT).tolist() == [2]
    arrays = row()
    arrays = type(arrays)(arrays.settings, np.array([3, 1]), np.array([2]))
    assert arrays.history(Scope.ALL).tolist() == [3, 1, 2]
