"""e^x in float32 by operations that a compiler can do 16 at a time. The series is Cephes' (Moshier), by its figures."""

from typing import Any, Final

import numpy as np

from workers.engine.kernels.compiled import compiled
from workers.engine.kernels.lanes import of_bits

_LOG2_E: Final = np.float32(1.44269504088896341)
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
_LOWEST: Final = np.float32(-87.0)
_HIGHEST: Final = np.float32(88.0)
_HALF: Final = np.float32(0.5)
_ONE: Final = np.float32(1.0)
_C0: Final = np.float32(1.9875691500e-4)
_C1: Final = np.float32(1.3981999507e-3)
_C2: Final = np.float32(8.3334519073e-3)
_C3: Final = np.float32(4.1665795894e-2)
_C4: Final = np.float32(1.6666665459e-1)
_C5: Final = np.float32(5.0000001201e-1)


@compiled
def exp(x: Any) -> Any:
    """e^x in float32, within 2 units in the last place from -87 up to 88; beyond, that of the nearest of the two."""
    x = min(max(x, _LOWEST), _HIGHEST)
    power = np.floor(x * _LOG2_E + _HALF)
    rest = x - power * _LN2_HIGH - power * _LN2_LOW
    series = ((((_C0 * rest + _C1) * rest + _C2) * rest + _C3) * rest + _C4) * rest + _C5
    return (series * rest * rest + rest + _ONE) * of_bits((np.int32(power) + np.int32(127)) << np.int32(23))
