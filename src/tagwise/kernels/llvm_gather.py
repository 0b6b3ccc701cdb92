"""Sums of gathered rows, Σ value·row, with the running sums held in vector registers: LLVM's IR by numba's internals.

numba's own loops keep the running sums in memory: each step loads and stores them beside the row that it adds. Here the
vector instructions are spelled out (LLVM's IR, by numba's ``intrinsic``), so that a step only loads a row: half as much
traffic, and half as long for up to 128 columns. Each column is summed in the order of the entries, wherever it stands.

Rows are gathered in no order that hardware could foresee, so each step also asks for the row of a later step. What
comes later is known beyond the entries of one sum: the same entries in the next columns, then those of the next sum.
:func:`fetch` is that hint alone, for loops elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tagwise.kernels.compiled import compiled

__all__ = ["fetch", "sum_rows"]

# Bytes of a vector: what AVX2 and newer x86 hold in a register; LLVM splits it where registers are shorter.
_VECTOR_BYTES = 32
# Running sums held at once: half of AVX2's registers, so that none is ever spilled.
_VECTORS = 8
# Entries ahead whose rows are fetched into the cache.
_AHEAD = 12
_CACHE_LINE_BYTES = 64
# Hardware notices by then that lines are read one after the other.
_MOST_LINES = 16

_INT32, _INT64, _BYTE_POINTER = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def _sum_columns_in_ir(typing, indices, data, dense, entries, columns, target, shift):
    """``target[j + shift]`` = Σ ``data[p]`` · ``dense[indices[p], j]`` over begin ≤ p < end, or += if ``add``.

    ``entries`` = (begin, end, limit) and ``columns`` = (n, column, last, next_column, rewind, add). The columns j are
    n ≤ 8 vectors from ``column`` on, or that column alone if n is 0. The last vector starts at ``last``, which may be
    earlier than its place: where the columns don't fill it, it repeats some of them. ``dense`` is fetched for later
    entries: beyond ``end`` those of the columns from ``next_column`` on, ``rewind`` entries earlier; entries from
    ``limit`` on are not looked at.
    """

    def generate(context, builder, signature, arguments):
        entry_indices, entry_values, rows, sums = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 2, 5)
        )
        begin, end, limit = cgutils.unpack_tuple(builder, arguments[3])
        n_vectors, column, last, next_column, rewind, add = cgutils.unpack_tuple(builder, arguments[4])
        shift = arguments[6]
        number = context.get_data_type(signature.args[2].dtype)
        number_bytes = context.get_abi_sizeof(number)
        stride = builder.extract_value(rows.shape, 1)

        def row_of(position):
            index = builder.load(builder.gep(entry_indices.data, [position]))
            index = context.cast(builder, index, signature.args[0].dtype, types.int64)
            return builder.gep(rows.data, [builder.mul(index, stride)])

        def sum_vectors(count, lanes):
            vector = ir.VectorType(number, lanes)
            zeros, undefined = ir.Constant(vector, [0.0] * lanes), ir.Constant(vector, ir.Undefined)
            columns = [builder.add(column, ir.Constant(_INT64, i * lanes)) for i in range(count - 1)] + [last]

            def vector_at(start, offset):
                return builder.bitcast(builder.gep(start, [offset]), vector.as_pointer())

            goals = [vector_at(sums.data, builder.add(offset, shift)) for offset in columns]
            fresh = builder.block
            continued, first = builder.append_basic_block("continued"), builder.append_basic_block("first")
            loop, done = builder.append_basic_block("entry"), builder.append_basic_block("summed")
            builder.cbranch(builder.icmp_signed("!=", add, ir.Constant(_INT64, 0)), continued, first)

            builder.position_at_end(continued)
            there = [builder.load(goal, align=number_bytes) for goal in goals]
            builder.branch(first)

            builder.position_at_end(first)
            starts = [_phi(builder, vector, (zeros, fresh), (old, continued)) for old in there]
            builder.cbranch(builder.icmp_signed("<", begin, end), loop, done)

            builder.position_at_end(loop)
            position = _phi(builder, _INT64, (begin, first))
            running = [_phi(builder, vector, (start, first)) for start in starts]
            ahead = builder.add(position, ir.Constant(_INT64, _AHEAD))
            beyond = builder.icmp_signed(">=", ahead, end)
            ahead = builder.select(beyond, builder.sub(ahead, rewind), ahead)
            ahead = builder.select(builder.icmp_signed("<", ahead, limit), ahead, position)
            wanted = builder.gep(row_of(ahead), [builder.select(beyond, next_column, column)])
            _fetch_lines(builder, wanted, -(-count * lanes * number_bytes // _CACHE_LINE_BYTES))
            value = builder.load(builder.gep(entry_values.data, [position]))
            value = context.cast(builder, value, signature.args[1].dtype, signature.args[2].dtype)
            first_lane = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
            everywhere = ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes)
            values = builder.shuffle_vector(first_lane, undefined, everywhere)
            row = row_of(position)
            added = []
            for so_far, offset in zip(running, columns, strict=True):
                part = builder.load(vector_at(row, offset), align=number_bytes)
                product = builder.fmul(part, values, flags=["contract"])
                added.append(builder.fadd(product, so_far, flags=["contract"]))
                so_far.add_incoming(added[-1], loop)
            following = builder.add(position, ir.Constant(_INT64, 1))
            position.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", following, end), loop, done)

            builder.position_at_end(done)
            totals = [_phi(builder, vector, (old, first), (new, loop)) for old, new in zip(starts, added, strict=True)]
            for total, goal in zip(totals, goals, strict=True):
                builder.store(total, goal, align=number_bytes)

        finished = builder.append_basic_block("finished")
        choice = builder.switch(n_vectors, finished)
        for n in range(_VECTORS + 1):
            case = builder.append_basic_block(f"vectors_{n}")
            choice.add_case(ir.Constant(_INT64, n), case)
            builder.position_at_end(case)
            sum_vectors(max(1, n), 1 if n == 0 else _VECTOR_BYTES // number_bytes)
            builder.branch(finished)
        builder.position_at_end(finished)
        return context.get_dummy_value()

    counts = types.UniTuple(types.int64, 3), types.UniTuple(types.int64, 6)
    return types.void(indices, data, dense, *counts, target, types.int64), generate


_sum_columns: Callable[..., None] = intrinsic(_sum_columns_in_ir)


def _phi(builder, kind, *incoming):
    """The value that each of the given blocks comes with."""
    value = builder.phi(kind)
    for each, block in incoming:
        value.add_incoming(each, block)
    return value


def _fetch_lines(builder, start, n_lines):
    """Ask for the cache lines from ``start`` on, to be read soon and kept; addresses beyond an array do no harm."""
    signature = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT32, _INT32, _INT32])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), signature)
    to_read, keep, of_data = (ir.Constant(_INT32, choice) for choice in (0, 3, 1))
    start = builder.bitcast(start, _BYTE_POINTER)
    for line in range(n_lines):
        address = builder.gep(start, [ir.Constant(_INT64, line * _CACHE_LINE_BYTES)])
        builder.call(prefetch, [address, to_read, keep, of_data])


@compiled(forceinline=True)
def sum_rows(indices, data, dense, entries, columns, add, target, shift):
    """The same sums as :func:`tagwise.kernels.gather_sum.sum_rows_plain`, by vector registers."""
    begin, end, limit = entries
    first, stop = columns
    lanes = _VECTOR_BYTES // dense.itemsize
    if stop - first < lanes:
        for column in range(first, stop):
            _sum_columns(indices, data, dense, (begin, end, limit), (0, column, column, column, 0, add), target, shift)
        return
    column, rest = first, (stop - first + lanes - 1) // lanes
    while rest > 0:
        # Of nine vectors seven, then two: one alone might repeat columns of these, which would then be added twice.
        count = _VECTORS - 1 if rest == _VECTORS + 1 else min(rest, _VECTORS)
        rest -= count
        following = column + count * lanes
        if rest > 0:
            last, next_column, rewind = following - lanes, following, end - begin
        else:
            last, next_column, rewind = stop - lanes, first, 0
        vectors = (count, column, last, next_column, rewind, add)
        _sum_columns(indices, data, dense, (begin, end, limit), vectors, target, shift)
        column = following


def _fetch_line_in_ir(typing, array, position):
    """Ask for the cache line of ``array[position]``, counted as if the array were flat."""

    def generate(context, builder, signature, arguments):
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        _fetch_lines(builder, builder.gep(values.data, [arguments[1]]), 1)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


_fetch_line: Callable[..., None] = intrinsic(_fetch_line_in_ir)


@compiled()
def fetch(names, values, begin, end):
    """Ask for entries ``begin`` to ``end`` of two arrays (:data:`tagwise.kernels.gather_sum.fetch`)."""
    step = _CACHE_LINE_BYTES // values.itemsize
    for position in range(begin, min(end, begin + _MOST_LINES * step), step):
        _fetch_line(names, position)
        _fetch_line(values, position)
