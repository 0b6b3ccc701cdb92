"""Sums of gathered rows, Σ value·row, with the running sums held in vector registers: LLVM's IR by numba's internals.

numba's own loops keep the running sums in memory: each step loads and stores them beside the row that it adds. Here the
vector instructions are spelled out (LLVM's IR, by numba's ``intrinsic``), so that a step only loads a row: half as much
traffic, and half as long for up to 128 columns. Each column is summed in the order of the entries, wherever it stands.

Rows are gathered in no order that hardware could foresee, so each step also asks for the row of a later step. What
comes later is known beyond the entries of one sum: the same entries in the next columns, then those of the next sum.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tagwise.kernels.compiled import compiled

__all__ = ["sum_rows"]

# Bytes of a vector: what AVX2 and newer x86 hold in a register; LLVM splits it where registers are shorter.
_VECTOR_BYTES = 32
# Running sums held at once: half of AVX2's registers, so that none is ever spilled.
_VECTORS = 8
# Entries ahead whose rows are fetched into the cache.
_AHEAD = 12
_CACHE_LINE_BYTES = 64

_INT32, _INT64, _BYTE_POINTER = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def _summing(n_vectors: int, *, scalar: bool = False) -> Callable[..., None]:
    """An intrinsic that sums ``n_vectors`` vectors of columns, or of single columns if ``scalar``."""

    @intrinsic
    def sum_columns(
        typing, indices, data, dense, begin, end, column, last, rewind, next_column, limit, add, target, shift
    ):
        """``target[j + shift]`` = Σ ``data[p]`` · ``dense[indices[p], j]`` over begin ≤ p < end, or += if ``add``.

        The columns j are ``n_vectors`` vectors from ``column`` on; the last of them starts at ``last``, which may be
        earlier than its place: where the columns don't fill it, it repeats some of them. ``dense`` is fetched for
        later entries: beyond ``end`` those of the columns from ``next_column`` on, ``rewind`` entries earlier; entries
        from ``limit`` on are not looked at.
        """

        def generate(context, builder, signature, arguments):
            places = [context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 2, 11)]
            entry_indices, entry_values, rows, sums = places
            begin, end, column, last, rewind, next_column, limit, add = arguments[3:11]
            shift = arguments[12]
            number = context.get_data_type(signature.args[2].dtype)
            number_bytes = context.get_abi_sizeof(number)
            lanes = 1 if scalar else _VECTOR_BYTES // number_bytes
            vector = ir.VectorType(number, lanes)
            zeros, undefined = ir.Constant(vector, [0.0] * lanes), ir.Constant(vector, ir.Undefined)
            stride = builder.extract_value(rows.shape, 1)
            columns = [builder.add(column, ir.Constant(_INT64, i * lanes)) for i in range(n_vectors)]
            columns[-1] = last

            def row_of(position):
                index = builder.load(builder.gep(entry_indices.data, [position]))
                index = context.cast(builder, index, signature.args[0].dtype, types.int64)
                return builder.gep(rows.data, [builder.mul(index, stride)])

            def vector_at(start, place):
                return builder.bitcast(builder.gep(start, [place]), vector.as_pointer())

            goals = [vector_at(sums.data, builder.add(place, shift)) for place in columns]
            fresh = builder.block
            continued, first = builder.append_basic_block("continued"), builder.append_basic_block("first")
            loop, done = builder.append_basic_block("entry"), builder.append_basic_block("summed")
            builder.cbranch(builder.icmp_signed("!=", add, ir.Constant(_INT64, 0)), continued, first)

            builder.position_at_end(continued)
            there = [builder.load(goal, align=number_bytes) for goal in goals]
            builder.branch(first)

            builder.position_at_end(first)
            starts = [builder.phi(vector) for _ in columns]
            for start, old in zip(starts, there, strict=True):
                start.add_incoming(zeros, fresh)
                start.add_incoming(old, continued)
            builder.cbranch(builder.icmp_signed("<", begin, end), loop, done)

            builder.position_at_end(loop)
            position = builder.phi(_INT64)
            running = [builder.phi(vector) for _ in columns]
            ahead = builder.add(position, ir.Constant(_INT64, _AHEAD))
            beyond = builder.icmp_signed(">=", ahead, end)
            ahead = builder.select(beyond, builder.sub(ahead, rewind), ahead)
            ahead = builder.select(builder.icmp_signed("<", ahead, limit), ahead, position)
            wanted = builder.gep(row_of(ahead), [builder.select(beyond, next_column, column)])
            _fetch(builder, wanted, -(-n_vectors * lanes * number_bytes // _CACHE_LINE_BYTES))
            value = builder.load(builder.gep(entry_values.data, [position]))
            value = context.cast(builder, value, signature.args[1].dtype, signature.args[2].dtype)
            first_lane = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
            everywhere = ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes)
            values = builder.shuffle_vector(first_lane, undefined, everywhere)
            row = row_of(position)
            added = []
            for so_far, place in zip(running, columns, strict=True):
                part = builder.load(vector_at(row, place), align=number_bytes)
                product = builder.fmul(part, values, flags=["contract"])
                added.append(builder.fadd(product, so_far, flags=["contract"]))
            following = builder.add(position, ir.Constant(_INT64, 1))
            builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
            position.add_incoming(begin, first)
            position.add_incoming(following, loop)
            for so_far, start, new in zip(running, starts, added, strict=True):
                so_far.add_incoming(start, first)
                so_far.add_incoming(new, loop)

            builder.position_at_end(done)
            totals = [builder.phi(vector) for _ in columns]
            for total, start, new in zip(totals, starts, added, strict=True):
                total.add_incoming(start, first)
                total.add_incoming(new, loop)
            for total, goal in zip(totals, goals, strict=True):
                builder.store(total, goal, align=number_bytes)
            return context.get_dummy_value()

        whole = (types.int64,) * 8
        return types.void(indices, data, dense, *whole, target, types.int64), generate

    return sum_columns


def _fetch(builder, start, n_lines):
    """Ask for the cache lines from ``start`` on, to be read soon and kept; addresses beyond an array do no harm."""
    signature = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT32, _INT32, _INT32])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), signature)
    to_read, keep, of_data = (ir.Constant(_INT32, choice) for choice in (0, 3, 1))
    start = builder.bitcast(start, _BYTE_POINTER)
    for line in range(n_lines):
        place = builder.gep(start, [ir.Constant(_INT64, line * _CACHE_LINE_BYTES)])
        builder.call(prefetch, [place, to_read, keep, of_data])


_sum_1, _sum_2, _sum_3, _sum_4 = (_summing(n) for n in (1, 2, 3, 4))
_sum_5, _sum_6, _sum_7, _sum_8 = (_summing(n) for n in (5, 6, 7, 8))
_sum_one_column = _summing(1, scalar=True)


@compiled(forceinline=True)
def sum_rows(indices, data, dense, begin, end, limit, first, stop, add, target, shift):
    """See :func:`tagwise.kernels.gather_sum.sum_rows_plain`."""
    lanes = _VECTOR_BYTES // dense.itemsize
    if stop - first < lanes:
        for column in range(first, stop):
            _sum_one_column(indices, data, dense, begin, end, column, column, 0, column, limit, add, target, shift)
        return
    last, entries = stop - lanes, end - begin
    column = first
    rest = (stop - first + lanes - 1) // lanes
    while rest > _VECTORS:
        if rest > _VECTORS + 1:
            following = column + _VECTORS * lanes
            final = following - lanes
            _sum_8(indices, data, dense, begin, end, column, final, entries, following, limit, add, target, shift)
            rest -= _VECTORS
        else:  # leave two vectors: one alone might repeat columns of these, which would then be added twice
            following = column + (_VECTORS - 1) * lanes
            final = following - lanes
            _sum_7(indices, data, dense, begin, end, column, final, entries, following, limit, add, target, shift)
            rest -= _VECTORS - 1
        column = following
    if rest == 8:
        _sum_8(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 7:
        _sum_7(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 6:
        _sum_6(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 5:
        _sum_5(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 4:
        _sum_4(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 3:
        _sum_3(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 2:
        _sum_2(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
    elif rest == 1:
        _sum_1(indices, data, dense, begin, end, column, last, 0, first, limit, add, target, shift)
