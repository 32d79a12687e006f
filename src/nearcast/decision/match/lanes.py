"""Many lanes at once: the few operations that the matching kernels are made of, as vector instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

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
