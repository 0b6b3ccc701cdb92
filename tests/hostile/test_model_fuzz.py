"""Thousands of damaged model folders: each loads the identical record or raises ModelFormatError."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from systems import needs_limits

from tagwise.exceptions import ModelFormatError
from tagwise.persistence import ModelRecord, read_model, write_model

MUTATIONS = 1500


def mutate(rng: random.Random, raw: bytes) -> bytes:
    content = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        position = rng.randrange(len(content) + 1)
        kind = rng.randrange(6)
        if kind == 0 and position < len(content):
            content[position] ^= 1 << rng.randrange(8)
        elif kind == 1 and position < len(content):
            content[position] = rng.choice(b'0123456789{}[]",:-.eE\\ \n\x00\xff$')
        elif kind == 2:
            content[position:position] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 2, 8])))
        elif kind == 3:
            del content[position : position + rng.choice([1, 2, 16])]
        elif kind == 4:
            del content[position:]
        else:
            start = rng.randrange(len(content) + 1)
            piece = content[start : start + rng.choice([1, 4, 40])]
            content[position:position] = piece
    return bytes(content)


@pytest.mark.parametrize("target", ["manifest", "payload"])
def test_any_damage_is_noticed_or_harmless(model, same_record, target):
    rng = random.Random(f"damage {target}")
    path = model.manifest_path if target == "manifest" else model.payload_path
    original, record = path.read_bytes(), model.record()
    refused = 0
    for _ in range(MUTATIONS):
        path.write_bytes(mutate(rng, original))
        try:
            assert same_record(record, read_model(model.path))
        except ModelFormatError:
            refused += 1
    assert refused > 0.95 * MUTATIONS


def test_damage_with_right_digests_is_refused_or_read(model):
    """With digests made right again, what lies behind them is reached: only ModelFormatError may come."""
    rng = random.Random("resealed manifest")
    original = model.manifest_path.read_bytes()
    read = 0
    for _ in range(MUTATIONS):
        model.write_text(mutate(rng, original))
        try:
            read_model(model.path)
            read += 1
        except ModelFormatError:
            pass
        model.manifest_path.write_bytes(original)
    assert 0 < read < MUTATIONS


def test_damaged_header_of_the_right_size(model, same_record):
    """The size in the manifest follows the damage, so that the safetensors header itself is reached."""
    rng = random.Random("resealed payload")
    _, data = model.payload()
    raw_header = model.payload_path.read_bytes()[8 : -len(data)]
    record, refused = model.record(), 0
    for _ in range(MUTATIONS):
        model.write_payload(mutate(rng, raw_header), data)
        try:
            assert same_record(record, read_model(model.path))
        except ModelFormatError:
            refused += 1
    assert refused > 0.5 * MUTATIONS


MEMORY = """
import resource, sys
from tagwise.exceptions import ModelFormatError
from tagwise.persistence import read_model
try:
    read_model(sys.argv[1])
except ModelFormatError:
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    try:
        read_model(path)
        raise AssertionError("it was read")
    except ModelFormatError:
        pass
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 16 * 1024, f"{grown} KiB"
"""


@needs_limits
def test_claimed_sizes_are_not_allocated(tmp_path, model):
    """Folders of a few KB that claim gigabytes: in the manifest, in the safetensors header, in both."""
    claims = []
    for number, (shape, in_header) in enumerate([([2**31, 3], 0), ([2**31, 3], 1), ([0, 2**59], 0), ([2**61], 0)]):
        claim = type(model)(tmp_path / f"claim{number}")
        if in_header:
            header, data = claim.payload()
            header["tensors/W"] |= {"shape": shape, "data_offsets": [56, 56 + 4 * 2**31 * 3]}
            claim.write_payload(header, data)
        fields = claim.manifest()
        fields["tensors"]["W"]["shape"] = shape
        claim.write_manifest(fields)
        claims.append(str(claim.path))
    sparse = type(model)(tmp_path / "sparse")
    fields = sparse.manifest()
    fields["tensors"]["S"] |= {"shape": [2**32, 2**40], "nnz": 2**33}
    sparse.write_manifest(fields)
    huge = type(model)(tmp_path / "huge")
    with huge.manifest_path.open("r+b") as stream:
        stream.truncate(2**36)
    command = [sys.executable, "-c", MEMORY, str(model.path), *claims, str(sparse.path), str(huge.path)]
    subprocess.run(command, check=True)


def test_reading_takes_the_files_size(tmp_path):
    """The peak while reading stays near the size of the arrays: nothing is held twice."""
    path = tmp_path / "m"
    write_model(path, ModelRecord("LEML", tensors={name: np.zeros(10**6) for name in "abcd"}))
    tracemalloc.start()
    read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * 10**6 + 2 * 10**6
