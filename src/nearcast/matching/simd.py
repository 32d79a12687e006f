"""Vector instructions: the operations on many lanes that kernels are made of, and writing pairs from a mask.

Of a batch that matches much, writing is half the time. Bit by bit a pair takes seven cycles, of which two are for the
one jump of a mask that no processor foresees: its end. Where there are registers of 512 bits that bytes can be
compressed in, a mask of up to sixteen bits takes two stores and no jump.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from nearcast.runtime.jit_cache import inlined

PADDING = 64
"""Lanes are read by sixty-four, so a column has this many behind its last."""


def inserted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose instructions are written here; what it is called with is not what it is written with."""
    return intrinsic(function)


@inserted
def within64(typing: Any, array: Any, index: Any, low: Any, span: Any) -> Any:
    """Bit i: whether `array[index + i] - low`, taken without sign, is less than `span`, for i = 0 … 63."""
    code = array.dtype
    signature = types.uint64(array, types.int64, code, code)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """One load, one subtraction and one comparison of sixty-four codes."""
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        lanes = ir.VectorType(ir.IntType(code.bitwidth), 64)
        away = builder.sub(loaded(builder, data, arguments[1], lanes), everywhere(builder, arguments[2], lanes))
        return builder.bitcast(
            builder.icmp_unsigned("<", away, everywhere(builder, arguments[3], lanes)), ir.IntType(64)
        )

    return signature, generate


@inserted
def same16(typing: Any, array: Any, index: Any, code: Any) -> Any:
    """Bit i: whether `array[index + i]` is the code, for i = 0 … 15."""
    signature = types.uint64(array, types.int64, array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """One load and one comparison of sixteen codes: with 16 bits each they fill one register."""
        width = signature.args[2].bitwidth
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        lanes = ir.VectorType(ir.IntType(width), 16)
        here = loaded(builder, data, arguments[1], lanes)
        found = builder.icmp_unsigned("==", here, everywhere(builder, arguments[2], lanes))
        return builder.zext(builder.bitcast(found, ir.IntType(16)), ir.IntType(64))

    return signature, generate


def loaded(builder: Any, data: Any, index: Any, lanes: Any) -> Any:
    """A vector of an array's elements from an index on."""
    vector = builder.load(builder.bitcast(builder.gep(data, [index]), lanes.as_pointer()))
    vector.align = lanes.element.width // 8
    return vector


def everywhere(builder: Any, value: Any, lanes: Any) -> Any:
    """A vector with one value in all its lanes."""
    undefined = ir.Constant(lanes, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), [0] * lanes.count)
    return builder.shuffle_vector(first, undefined, order)


@inserted
def lowest(typing: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set in a mask; 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Counts trailing zeros."""
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@inserted
def count(typing: Any, mask: Any) -> Any:
    """How many bits of a mask are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Counts ones."""
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


_config: Any = numba.config

BESIDE = 64
"""How many pairs may be written behind the last that counts."""

NEEDED = ("avx512f", "avx512bw", "avx512vbmi2")
"""What the processor must have; named in Numba's settings it may be another than this machine's."""


def _has_wide_registers() -> bool:
    if _config.CPU_NAME or _config.CPU_FEATURES:
        return False
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(name, False) for name in NEEDED)


WIDE_REGISTERS = _has_wide_registers()

_BIT, _BYTE, _WORD, _DOUBLE = (ir.IntType(bits) for bits in (1, 8, 16, 32))

REGISTER = ir.VectorType(_WORD, 32)
"""What a register holds of words."""


@inlined
def emit(mask: Any, order: Any, lane: int, first: int, name: int, pairs: Any, at: int) -> int:
    """Writes the pairs of the lanes in a mask, which are `first + order[lane …]`; returns where pairs end."""
    if WIDE_REGISTERS:
        return emit64(mask, order, lane, first, name, pairs.lanes, pairs.names, at)
    return emit_singly(mask, order, lane, first, name, pairs, at)


@inlined
def emit_singly(mask: Any, order: Any, lane: int, first: int, name: int, pairs: Any, at: int) -> int:
    """As `emit`, on any processor."""
    # Numba takes a signed index for one that may count from the end, and looks each time.
    place, here, left = np.uint64(at), np.uint64(lane), mask
    # Four a step, though fewer be left: what is written behind the last does not count, and a jump that is not foreseen
    # takes longer.
    while left != 0:
        for step in range(np.uint64(4)):
            pairs.lanes[place + step] = first + order[here + np.uint64(lowest(left))]
            pairs.names[place + step] = name
            left &= left - np.uint64(1)
        place += np.uint64(4)
    return at + count(mask)


@inserted
def emit64(
    typing: Any, mask: Any, order: Any, lane: Any, first: Any, name: Any, lanes: Any, names: Any, at: Any
) -> Any:
    """As `emit`, sixteen pairs a step."""
    signature = types.int64(types.uint64, order, types.int64, types.int64, types.int32, lanes, names, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """The numbers of the set bits side by side, by these the lanes, and as many stores as there are sixteens."""
        mask, _, lane, first, name, _, _, at = arguments
        order, lanes, names = (
            context.make_array(signature.args[which])(context, builder, arguments[which]).data for which in (1, 5, 6)
        )
        count = builder.ctpop(mask)
        bits = _compressed(builder, mask)
        both = [loaded(builder, order, place, REGISTER) for place in halves(builder, lane)]
        shift = everywhere(builder, builder.trunc(first, _DOUBLE), ir.VectorType(_DOUBLE, 16))
        same = everywhere(builder, name, ir.VectorType(_DOUBLE, 16))

        def sixteen(found: Any, half: int, skip: int) -> None:
            wide = builder.add(builder.zext(_part(builder, found, 16 * half, 16), shift.type), shift)
            place = builder.add(at, ir.Constant(at.type, skip))
            _stored(builder, wide, lanes, place)
            _stored(builder, same, names, place)

        found = chosen(builder, both, _bytes(builder, bits, 0))
        sixteen(found, 0, 0)
        with builder.if_then(builder.icmp_unsigned(">", count, ir.Constant(count.type, 16))):
            sixteen(found, 1, 16)
            with builder.if_then(builder.icmp_unsigned(">", count, ir.Constant(count.type, 32))):
                rest = chosen(builder, both, _bytes(builder, bits, 32))
                sixteen(rest, 0, 32)
                sixteen(rest, 1, 48)
        return builder.add(at, count)

    return signature, generate


def halves(builder: Any, index: Any) -> Any:
    """Where sixty-four words, of which two registers are filled, are read from."""
    return (builder.add(index, ir.Constant(index.type, half)) for half in (0, 32))


def _compressed(builder: Any, mask: Any) -> Any:
    """The numbers of a mask's set bits as bytes, ascending from the first."""
    numbers, flags = ir.VectorType(_BYTE, 64), ir.VectorType(_BIT, 64)
    compress = _declared(builder, "llvm.x86.avx512.mask.compress.v64i8", numbers, [numbers, numbers, flags])
    nothing = ir.Constant(numbers, [0] * 64)
    return builder.call(compress, [ir.Constant(numbers, list(range(64))), nothing, builder.bitcast(mask, flags)])


def chosen(builder: Any, both: Any, numbers: Any) -> Any:
    """The words of two vectors of thirty-two that the last six bits of thirty-two words number."""
    permute = _declared(builder, "llvm.x86.avx512.vpermi2var.hi.512", REGISTER, [REGISTER, REGISTER, REGISTER])
    return builder.call(permute, [both[0], numbers, both[1]])


def _declared(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    """An instruction of the processor by the name that the compiler has for it."""
    return builder.module.declare_intrinsic(name, (), ir.FunctionType(result, arguments))


def _bytes(builder: Any, vector: Any, first: int) -> Any:
    """Thirty-two bytes of a vector as words."""
    return builder.zext(_part(builder, vector, first, 32), REGISTER)


def _part(builder: Any, vector: Any, first: int, size: int) -> Any:
    """So many elements of a vector."""
    which = ir.Constant(ir.VectorType(_DOUBLE, size), list(range(first, first + size)))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), which)


def _stored(builder: Any, vector: Any, data: Any, index: Any) -> None:
    """Stores a vector of doubles in an array."""
    builder.store(vector, builder.bitcast(builder.gep(data, [index]), vector.type.as_pointer()), align=4)
