"""Pearson's chi-square test, written out."""

import torch
from torch import Tensor


def p_value(counts: Tensor, expected: Tensor) -> float:
    """How probable a deviation as large as that of `counts` from `expected` is by chance; both (cells,) float64.

    With k cells that can be met, sum (n - e)^2 / e has k - 1 degrees of freedom, and its survival function at x is the
    regularised upper incomplete gamma function Q((k - 1) / 2, x / 2). A count in a cell that cannot be met gives 0.
    """
    possible = expected > 0
    if float(counts[~possible].sum()) > 0:
        return 0.0
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    degrees = torch.tensor(float(possible.sum()) - 1.0, dtype=torch.float64)
    return float(torch.special.gammaincc(degrees / 2, statistic / 2)) if degrees else 1.0
