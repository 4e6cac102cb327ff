"""Vector instructions for the kernels: what the compiler would choose, in an order of adding that is written down.

A row's numbers must not depend on how many other rows there are. A compiler that vectorizes a sum by itself may add in
another order for another number of rows, so sums are spelled out here: 16 partial sums, each over every 16th product,
then halves onto halves, then what does not fill 16 lanes. LLVM maps 16 lanes onto what the processor has.

Memory is given by address and stride in numbers. `kind` stands for the type of what is stored: a float32 is one, a
uint16 holds the upper half of one (bfloat16), an int8 a whole number; its value is not read.
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES: Final = 16
_FLOAT: Final = ir.FloatType()
_LANES: Final = ir.VectorType(_FLOAT, LANES)
_I64: Final = ir.IntType(64)

Emit = tuple[Any, Callable[..., Any]]


@intrinsic(prefer_literal=True)
def dots(
    _: Any, kind: Any, rows: Any, columns: Any, x: Any, x_stride: Any, w: Any, w_stride: Any, width: Any, out: Any,
    out_stride: Any,
) -> Emit:  # fmt: skip
    """dots(kind, rows, columns, x, x_stride, w, w_stride, width, out, out_stride): scalar products.

    `out[r, c] = sum of x[r, i] * w[c, i] over i < width`; `x` and `out` are float32, `w` is of `kind`. `rows` and
    `columns` are constants; rows x columns accumulators must fit into the processor's registers.
    """
    num_rows, num_columns = rows.literal_value, columns.literal_value

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        x, x_stride, w, w_stride, width, out, out_stride = arguments[3:]
        sums = [[_variable(build, _LANES) for _ in range(num_columns)] for _ in range(num_rows)]
        whole = build.and_(width, _I64(-LANES))
        with cgutils.for_range_slice(build, _I64(0), whole, _I64(LANES), intp=_I64) as (i, _):
            weights = [_load(build, kind, _at(build, kind, w, w_stride, c, i), LANES) for c in range(num_columns)]
            for r in range(num_rows):
                values = _load(build, types.float32, _at(build, types.float32, x, x_stride, r, i), LANES)
                for c in range(num_columns):
                    build.store(_fma(build, values, weights[c], build.load(sums[r][c])), sums[r][c])
        totals = _totals(build, [build.load(lanes) for row in sums for lanes in row])
        for r in range(num_rows):
            for c in range(num_columns):
                place = _at(build, types.float32, out, out_stride, r, _I64(c))
                _store(build, build.extract_element(totals, ir.IntType(32)(r * num_columns + c)), place)
                with cgutils.for_range_slice(build, whole, width, _I64(1), intp=_I64) as (i, _):
                    value = _load(build, types.float32, _at(build, types.float32, x, x_stride, r, i), 1)
                    weight = _load(build, kind, _at(build, kind, w, w_stride, c, i), 1)
                    _store(build, _fma(build, value, weight, _load(build, types.float32, place, 1)), place)

    return types.void(kind, rows, columns, *(types.int64,) * 7), _without_result(emit)


@intrinsic(prefer_literal=True)
def mix(
    _: Any, kind: Any, rows: Any, blocks: Any, shares: Any, shares_stride: Any, v: Any, v_stride: Any, num: Any,
    out: Any, out_stride: Any,
) -> Emit:  # fmt: skip
    """mix(kind, rows, blocks, shares, shares_stride, v, v_stride, num, out, out_stride): weighted sums of vectors.

    `out[r, i] = sum of shares[r, n] * v[n, i] over n < num`, for the first 16 x `blocks` places of a vector; in order.
    """
    num_rows, num_blocks = rows.literal_value, blocks.literal_value

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        shares, shares_stride, v, v_stride, num, out, out_stride = arguments[3:]
        sums = [[_variable(build, _LANES) for _ in range(num_blocks)] for _ in range(num_rows)]
        with cgutils.for_range_slice(build, _I64(0), num, _I64(1), intp=_I64) as (n, _):
            row = build.mul(n, v_stride)
            places = [build.add(row, _I64(b * LANES)) for b in range(num_blocks)]
            vectors = [_load(build, kind, _at(build, kind, v, _I64(0), 0, place), LANES) for place in places]
            for r in range(num_rows):
                share = _load(build, types.float32, _at(build, types.float32, shares, shares_stride, r, n), 1)
                for b in range(num_blocks):
                    build.store(_fma(build, _splat(build, share), vectors[b], build.load(sums[r][b])), sums[r][b])
        for r in range(num_rows):
            for b in range(num_blocks):
                place = _at(build, types.float32, out, out_stride, r, _I64(b * LANES))
                _store(build, build.load(sums[r][b]), place)

    return types.void(kind, rows, blocks, *(types.int64,) * 7), _without_result(emit)


@intrinsic
def size_of(_: Any, kind: Any) -> Emit:
    """size_of(kind) -> bytes of one element."""

    def emit(*_: Any) -> Any:
        return _I64(_size(kind))

    return types.int64(kind), emit


@intrinsic
def read(_: Any, kind: Any, address: Any) -> Emit:
    """read(kind, address) -> float32."""

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        return _load(build, kind, arguments[1], 1)

    return types.float32(kind, types.int64), emit


@intrinsic
def write(_: Any, kind: Any, address: Any, value: Any) -> Emit:
    """write(kind, address, value), rounded to the nearest number of `kind`, to the even one of two."""

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        value = arguments[2]
        if kind != types.float32:
            i32 = ir.IntType(32)
            bits = build.bitcast(value, i32)
            odd = build.and_(build.lshr(bits, i32(16)), i32(1))
            rounded = build.lshr(build.add(build.add(bits, i32(0x7FFF)), odd), i32(16))
            value = build.trunc(rounded, ir.IntType(16))
        _store(build, value, arguments[1])

    return types.void(kind, types.int64, types.float32), _without_result(emit)


@intrinsic
def of_bits(_: Any, bits: Any) -> Emit:
    """of_bits(int32) -> the float32 of these bits."""

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        return build.bitcast(arguments[0], _FLOAT)

    return types.float32(types.int32), emit


@intrinsic
def int64_of_bits(_: Any, value: Any) -> Emit:
    """int64_of_bits(float64) -> the int64 of its bits."""

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        return build.bitcast(arguments[0], _I64)

    return types.int64(types.float64), emit


@intrinsic
def float64_of_bits(_: Any, bits: Any) -> Emit:
    """float64_of_bits(int64) -> the float64 of these bits."""

    def emit(_: Any, build: Any, __: Any, arguments: Any) -> Any:
        return build.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), emit


def _without_result(emit: Callable[..., Any]) -> Callable[..., Any]:
    def whole(context: Any, build: Any, signature: Any, arguments: Any) -> Any:
        emit(context, build, signature, arguments)
        return context.get_dummy_value()

    return whole


def _variable(build: Any, kind: Any) -> Any:
    place = cgutils.alloca_once(build, kind)
    build.store(ir.Constant(kind, [0.0] * LANES), place)
    return place


def _size(kind: Any) -> int:
    return int(kind.bitwidth) // 8


def _at(build: Any, kind: Any, base: Any, stride: Any, number: int, offset: Any) -> Any:
    """The address of element `offset` of row `number`."""
    element = build.add(build.mul(stride, _I64(number)), offset)
    return build.add(base, build.mul(element, _I64(_size(kind))))


def _load(build: Any, kind: Any, address: Any, number: int) -> Any:
    """`number` elements as float32."""

    def many(element: Any) -> Any:
        return element if number == 1 else ir.VectorType(element, number)

    if kind == types.float32:
        return build.load(build.inttoptr(address, many(_FLOAT).as_pointer()), align=4)
    if kind == types.int8:
        whole = build.load(build.inttoptr(address, many(ir.IntType(8)).as_pointer()), align=1)
        return build.sitofp(build.sext(whole, many(ir.IntType(32))), many(_FLOAT))
    half = build.load(build.inttoptr(address, many(ir.IntType(16)).as_pointer()), align=2)
    wide = many(ir.IntType(32))
    places = ir.Constant(wide, 16 if number == 1 else [16] * number)
    return build.bitcast(build.shl(build.zext(half, wide), places), many(_FLOAT))


def _store(build: Any, value: Any, address: Any) -> None:
    align = 2 if value.type == ir.IntType(16) else 4
    build.store(value, build.inttoptr(address, value.type.as_pointer()), align=align)


def _fma(build: Any, a: Any, b: Any, c: Any) -> Any:
    name = "llvm.fma.f32" if a.type == _FLOAT else f"llvm.fma.v{LANES}f32"
    function = cgutils.get_or_insert_function(build.module, ir.FunctionType(a.type, [a.type] * 3), name)
    return build.call(function, [a, b, c])


def _splat(build: Any, value: Any) -> Any:
    single = build.insert_element(ir.Constant(_LANES, ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return build.shuffle_vector(single, single, mask)


def _totals(build: Any, vectors: list[Any]) -> Any:
    """The sums of all lanes of 1, 2, 4, ... vectors, as one vector: of each the upper half onto the lower one, and so
    on. Two vectors become one with half of the lanes each, so that a sum costs no more than a few instructions."""
    num, width = 1, LANES  # parts of a vector that belong to different sums, lanes of a part
    while width > 1:
        half = width // 2
        is_pair = len(vectors) > 1
        starts = [number * width for number in range(2 * num if is_pair else num)]
        low, high = (_mask([start + by + i for start in starts for i in range(half)]) for by in (0, half))
        pairs = zip(vectors[::2], vectors[1::2], strict=True) if is_pair else [(vectors[0], vectors[0])]
        vectors = [build.fadd(build.shuffle_vector(a, b, low), build.shuffle_vector(a, b, high)) for a, b in pairs]
        num, width = len(starts), half
    return vectors[0]


def _mask(places: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
