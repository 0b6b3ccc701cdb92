"""Sums of gathered rows, Σ value·row, with the running sums held in vector registers.

numba's own loops keep the running sums in memory: each step loads and stores them beside the row that it adds. Here the
vector instructions are spelled out (LLVM's IR, by numba's ``intrinsic``), so that a step only loads a row: half as much
traffic, and half as long for up to 128 columns. Each column is summed in the order of the entries, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tagwise.compiled import compiled

__all__ = ["sum_rows"]

# Bytes of a vector: what AVX2 and newer x86 hold in a register; LLVM splits it where registers are shorter.
_VECTOR_BYTES = 32
# Running sums held at once: half of AVX2's registers, so that none is ever spilled.
_VECTORS = 8
# Entries ahead whose rows are fetched into the cache: rows are gathered in no order that hardware could foresee.
_AHEAD = 8

_INT32, _INT64, _BYTE_POINTER = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()


def _summing(n_vectors: int, *, scalar: bool = False) -> Callable[..., None]:
    """An intrinsic that sums ``n_vectors`` vectors of columns, or of single columns if ``scalar``."""

    @intrinsic
    def sum_columns(typing_context, indices, data, dense, begin, end, column, last, target, target_shift):
        """``target[j + target_shift]`` = Σ ``data[p]`` · ``dense[indices[p], j]`` over begin ≤ p < end.

        The columns j are ``n_vectors`` vectors from ``column`` on; the last of them starts at ``last``, which may be
        earlier than its turn: where the columns don't fill it, it repeats some of them.
        """

        def generate(context, builder, signature, arguments):
            places = [context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 2, 7)]
            entry_indices, entry_values, rows, sums = places
            begin, end, column, last = arguments[3:7]
            target_shift = arguments[8]
            number = context.get_data_type(signature.args[2].dtype)
            number_bytes = context.get_abi_sizeof(number)
            lanes = 1 if scalar else _VECTOR_BYTES // number_bytes
            vector = ir.VectorType(number, lanes)
            zeros, undefined = ir.Constant(vector, [0.0] * lanes), ir.Constant(vector, ir.Undefined)
            stride = builder.extract_value(rows.shape, 1)
            columns = [builder.add(column, ir.Constant(_INT64, turn * lanes)) for turn in range(n_vectors)]
            columns[-1] = last

            def row_of(position):
                index = builder.load(builder.gep(entry_indices.data, [position]))
                index = context.cast(builder, index, signature.args[0].dtype, types.int64)
                return builder.gep(rows.data, [builder.mul(index, stride)])

            def vector_at(start, shift):
                return builder.bitcast(builder.gep(start, [shift]), vector.as_pointer())

            before = builder.block
            loop, done = builder.append_basic_block("entry"), builder.append_basic_block("summed")
            builder.cbranch(builder.icmp_signed("<", begin, end), loop, done)

            builder.position_at_end(loop)
            position = builder.phi(_INT64)
            running = [builder.phi(vector) for _ in columns]
            last_entry = builder.sub(end, ir.Constant(_INT64, 1))
            ahead = builder.add(position, ir.Constant(_INT64, _AHEAD))
            ahead = builder.select(builder.icmp_signed("<", ahead, last_entry), ahead, last_entry)
            _fetch(builder, row_of(ahead), columns[:: max(1, 64 // _VECTOR_BYTES)])
            value = builder.load(builder.gep(entry_values.data, [position]))
            value = context.cast(builder, value, signature.args[1].dtype, signature.args[2].dtype)
            first_lane = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
            everywhere = ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes)
            values = builder.shuffle_vector(first_lane, undefined, everywhere)
            row = row_of(position)
            added = []
            for so_far, shift in zip(running, columns, strict=True):
                part = builder.load(vector_at(row, shift), align=number_bytes)
                product = builder.fmul(part, values, flags=["contract"])
                added.append(builder.fadd(product, so_far, flags=["contract"]))
            following = builder.add(position, ir.Constant(_INT64, 1))
            builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
            position.add_incoming(begin, before)
            position.add_incoming(following, loop)
            for so_far, new in zip(running, added, strict=True):
                so_far.add_incoming(zeros, before)
                so_far.add_incoming(new, loop)

            builder.position_at_end(done)
            totals = [builder.phi(vector) for _ in columns]
            for total, new in zip(totals, added, strict=True):
                total.add_incoming(zeros, before)
                total.add_incoming(new, loop)
            for total, shift in zip(totals, columns, strict=True):
                builder.store(total, vector_at(sums.data, builder.add(shift, target_shift)), align=number_bytes)
            return context.get_dummy_value()

        arrays = (indices, data, dense)
        whole = (types.int64,) * 4
        return types.void(*arrays, *whole, target, types.int64), generate

    return sum_columns


def _fetch(builder, row, columns):
    """Ask for the cache lines of ``row`` at ``columns``, to be read soon and kept."""
    signature = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT32, _INT32, _INT32])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", (_BYTE_POINTER,), signature)
    to_read, keep, of_data = (ir.Constant(_INT32, choice) for choice in (0, 3, 1))
    for column in columns:
        place = builder.bitcast(builder.gep(row, [column]), _BYTE_POINTER)
        builder.call(prefetch, [place, to_read, keep, of_data])


_sum_1, _sum_2, _sum_3, _sum_4 = (_summing(n) for n in (1, 2, 3, 4))
_sum_5, _sum_6, _sum_7, _sum_8 = (_summing(n) for n in (5, 6, 7, 8))
_sum_one_column = _summing(1, scalar=True)


@compiled()
def sum_rows(indices, data, dense, begin, end, first, width, target, target_shift):
    """``target[j + target_shift]`` = Σ ``data[p]``·``dense[indices[p], j]`` for first ≤ j < first + width.

    begin ≤ p < end; ``dense`` (rows×columns) and ``target`` (a row) are C-ordered and of one type. Terms are added in
    the order of p in that type, so that a column's sum has the same bits wherever it stands.
    """
    lanes = _VECTOR_BYTES // dense.itemsize
    stop = first + width
    if width < lanes:
        for column in range(first, stop):
            _sum_one_column(indices, data, dense, begin, end, column, column, target, target_shift)
        return
    last = stop - lanes
    column = first
    while column + _VECTORS * lanes <= stop:
        ahead = column + (_VECTORS - 1) * lanes
        _sum_8(indices, data, dense, begin, end, column, ahead, target, target_shift)
        column += _VECTORS * lanes
    rest = (stop - column + lanes - 1) // lanes
    if rest == 8:
        _sum_8(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 7:
        _sum_7(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 6:
        _sum_6(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 5:
        _sum_5(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 4:
        _sum_4(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 3:
        _sum_3(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 2:
        _sum_2(indices, data, dense, begin, end, column, last, target, target_shift)
    elif rest == 1:
        _sum_1(indices, data, dense, begin, end, column, last, target, target_shift)
