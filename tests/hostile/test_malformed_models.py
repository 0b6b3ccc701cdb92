"""Model folders that are not what they say, with right digests wherever an attacker could make them so."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from systems import needs_limits, needs_pipes

from tagwise.exceptions import ModelFormatError
from tagwise.store import ModelRecord, folder, read_model, tensors, write_model
from tests.fuzz.mutation import mutate

MUTATIONS = 1000
ZEROS = "0" * 64


class Folder:
    """A small valid model folder and the means to change it as someone would who knows the format."""

    def __init__(self, path):
        self.path, self.manifest_path = path, path / "manifest.json"
        self.record = ModelRecord(
            class_name="LEML",
            parameters={"rank": 2, "weight": np.array([1.0, 2.0]), "range": [1, 2], "tol": float("inf")},
            tensors={
                "W": np.arange(6, dtype=np.float32).reshape(2, 3),
                "S": sp.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])),
                "flags": np.array([True, False]),
            },
            values={"n_iter_": 5, "objective_": [2.5, 1.25]},
            label_names=["alpha", "bétâ"],
        )
        write_model(path, self.record)

    @property
    def payload_path(self):
        (path,) = self.path.glob("*.safetensors")
        return path

    def manifest(self):
        return json.loads(self.manifest_path.read_bytes())

    def write_text(self, raw):
        """Write a manifest with any text, with the right digest if it has one at all."""
        stated = re.search(rb'"sha256": "([0-9a-f]{64})"', raw)
        if stated:
            digest = hashlib.sha256(raw.replace(stated[1], ZEROS.encode(), 1)).hexdigest()
            raw = raw.replace(stated[1], digest.encode(), 1)
        self.manifest_path.write_bytes(raw)

    def payload(self):
        raw = self.payload_path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        return json.loads(raw[8 : 8 + length]), raw[8 + length :]

    def write_payload(self, header, data, *, header_length=None):
        """Replace the file of tensors, with its new size and digest in the manifest."""
        header = header if isinstance(header, bytes) else json.dumps(header).encode()
        raw = struct.pack("<Q", len(header) if header_length is None else header_length) + header + data
        self.payload_path.write_bytes(raw)
        fields = self.manifest()
        fields["payload"] |= {"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        self.write_text(json.dumps(fields).encode())

    def is_same(self):
        """Whether what is read is the record."""
        found, given = read_model(self.path), self.record
        weight = found.parameters.get("weight")
        return (
            isinstance(weight, np.ndarray)
            and weight.tobytes() == given.parameters["weight"].tobytes()
            and repr(found.parameters) == repr(given.parameters)
            and (found.values, found.label_names) == (given.values, given.label_names)
            and set(found.tensors) == set(given.tensors)
            and all(repr(found.tensors[name]) == repr(array) for name, array in given.tensors.items())
        )

    def refused(self, words="damaged"):
        with pytest.raises(ModelFormatError, match=words) as caught:
            read_model(self.path)
        assert str(self.path) in str(caught.value)


@pytest.fixture
def model(tmp_path):
    return Folder(tmp_path / "model")


def test_the_helpers_leave_a_valid_model_valid(model):
    assert model.is_same()
    model.write_text(json.dumps(model.manifest()).encode())
    model.write_payload(*model.payload())
    assert model.is_same()


# ---------------------------------------------------------------------- the folder itself


def test_files_that_are_missing_or_of_another_kind(model, tmp_path):
    for name in ("manifest.json", model.payload_path.name):
        path, aside = model.path / name, tmp_path / "aside"
        path.rename(aside)
        model.refused(r"no manifest\.json|are missing")
        path.mkdir()
        model.refused("must be a regular file|cannot be read")
        path.rmdir()
        path.symlink_to(aside)
        model.refused("links and special files are refused")
        path.unlink()
        if hasattr(os, "mkfifo"):
            os.mkfifo(path)
            model.refused("regular file")
            path.unlink()
        aside.rename(path)
    assert model.is_same()
    shutil.rmtree(model.path)
    model.refused("does not exist")
    model.path.write_text("x")
    model.refused("path is a file")


@needs_pipes
def test_sizes_that_are_not_those_of_the_manifest(model):
    size = model.payload_path.stat().st_size
    for changed in (0, size - 1, size + 1, 2**40):
        os.truncate(model.payload_path, changed)  # a hole: the file takes no room
        model.refused("bytes instead of")
    os.truncate(model.manifest_path, 2**40)
    model.refused("1,099,511,627,776 bytes")


def test_an_unreadable_manifest(model, monkeypatch):
    def refuse_to_open(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "open", refuse_to_open)
    model.refused("cannot be read .Permission denied")


# ---------------------------------------------------------------------- the manifest


def test_manifests_that_are_no_manifests(model):
    whole = model.manifest_path.read_bytes()
    digest = model.manifest()["sha256"]
    texts = [
        *(b"", b"{", b"[]", b"null", b"{}", b'{"format": "other"}', b'{"format": ["tagwise-model"]}'),
        *(b"\xff\xfe{}", b'{"a": "\xc3\x28"}', b"{} {}", b'{"a": 1,}', b'{"a": "\x00"}'),
        *(b"[" * 200_000, b"[" * 200_000 + b"]" * 200_000, b'{"a":' * 200_000),
        b'{"a": ' + b"9" * 1_000_000 + b"}",
        whole[: len(whole) // 2],
        whole.replace(b'"rank": 2', b'"rank": 3'),  # edited by hand
        whole.replace(digest.encode(), "".join(f"\\u{ord(digit):04x}" for digit in digest).encode()),
    ]
    for text in texts:
        model.manifest_path.write_bytes(text)
        model.refused("damaged|not a model of tagwise")


def test_manifests_with_other_fields(model):
    nested = "[" * 100_000 + "]" * 100_000
    other = f"model-{'0' * 32}.safetensors"
    changes = [
        *(("format_version", version) for version in (2, 10**19, 0, False, "1", None)),
        *(("class", name) for name in (3, "", "os.system", "A" * 101, "LEML\n")),
        *(
            (name, wrong)
            for name in ("parameters", "values")
            for wrong in ([], "x", {"$array": "W"}, {"$float": "inf"})
        ),
        *(("label_names", wrong) for wrong in ("abc", ["a", 1], ["\ud800"])),
        *(("payload", wrong) for wrong in (None, "x", {})),
        *(("payload.file", path) for path in ("../x", "/etc/passwd", "manifest.json", "..", other, f"a/{other}", 7)),
        *(("payload.size", size) for size in (-1, 1.5, 2**62, None)),
        *(("payload.sha256", wrong) for wrong in (ZEROS, None)),
        *(("sha256", wrong) for wrong in ("f" * 63, None, "")),
        ("payload.extra", 0),
        ("extra", 1),
        *(("parameters.weight", {"$array": name}) for name in ("W2", 1, None, ["W"])),
        *(("parameters.tol", {"$float": text}) for text in ("1.5", ["nan"])),
        ("values.again", {"$array": "parameters.weight"}),
        ("values.text", "\udcff"),
        ("values.deep", nested),
    ]
    whole = model.manifest()
    for place, wrong in changes:
        fields = json.loads(json.dumps(whole))
        *outer, last = place.split(".")
        inside = fields
        for name in outer:
            inside = inside[name]
        inside[last] = wrong
        text = json.dumps(fields).replace(json.dumps(nested), nested)
        model.write_text(text.encode())
        model.refused("damaged|not a model|upgrade tagwise")
    for name in whole:
        model.write_text(json.dumps({key: found for key, found in whole.items() if key != name}).encode())
        model.refused("damaged|not a model")


# ---------------------------------------------------------------------- the tensors


def test_files_of_tensors_that_are_none(model):
    header, data = model.payload()
    headers = [b"", b"{", b"[]", b"null", b"\xff" * 20, b'{"a":' * 5000, b"[" * 100_000, b'{"x": {"dtype": "F32"}}']
    for wrong in headers:
        model.write_payload(wrong, data)
        model.refused()
    for length in (2**64 - 1, 2**63, 2**40, 10_000):
        model.write_payload(header, data, header_length=length)
        model.refused()
    model.write_payload(header, data + b"hidden")
    model.refused()
    fields = [
        *(("dtype", wrong) for wrong in ("F16", "BF16", "PICKLE", 7)),
        *(("shape", wrong) for wrong in ([2, 4], [2**62, 2**62], [0, 2**63], [-2, -3], "x", [1] * 70)),
        *(("data_offsets", wrong) for wrong in ([24, 0], [2**63, 2**63 + 24], [-24, 0], None, [0, 2**40])),
    ]
    for name, wrong in fields:
        model.write_payload({**header, "W": {**header["W"], name: wrong}}, data)
        model.refused()
    for part in ("data", "indices", "shape"):
        model.write_payload({("T" if name == f"S.{part}" else name): entry for name, entry in header.items()}, data)
        model.refused()
    start, end = header["flags"]["data_offsets"]
    model.write_payload(header, data[:start] + bytes([1, 2]) + data[end:])
    model.refused("bytes above 1")


def test_tensors_cut_off_while_they_are_read(model, monkeypatch):
    open_regular = tensors.open_regular

    def cut_off(path):
        stream = open_regular(path)
        os.truncate(path, 400)
        return stream

    size = model.payload_path.stat().st_size
    monkeypatch.setattr(tensors, "open_regular", cut_off)
    monkeypatch.setattr(tensors.os, "fstat", lambda descriptor: os.stat_result([0] * 6 + [size] + [0] * 3))
    model.refused()


# ---------------------------------------------------------------------- random damage


def test_damage_is_noticed(model):
    """Damage with right digests is what tests/fuzz/folders.py makes."""
    for path in (model.manifest_path, model.payload_path):
        original, refused = path.read_bytes(), 0
        for number in range(MUTATIONS):
            path.write_bytes(mutate(random.Random(number), original, original))
            try:
                assert model.is_same()
            except ModelFormatError:
                refused += 1
        assert refused > 0.95 * MUTATIONS
        path.write_bytes(original)


# ---------------------------------------------------------------------- memory

MEMORY = """
import resource, sys
from tagwise.exceptions import ModelFormatError
from tagwise.store import read_model
before = None
for path in sys.argv[1:]:
    try:
        read_model(path)
        raise AssertionError("it was read")
    except ModelFormatError:
        pass
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 16 * 1024, f"{grown} KiB"
"""


@needs_limits
def test_claimed_sizes_are_not_allocated(tmp_path):
    """Folders of a few KB that claim gigabytes: in the header, in the manifest, by a hole."""
    claims = []
    for number, shape in enumerate([[3], [2**31, 3], [2**31, 3], [0, 2**59], [2**61]]):
        claim = Folder(tmp_path / str(number))
        header, data = claim.payload()
        header["W"] |= {"shape": shape, "data_offsets": [56, 56 + 4 * 2**31 * 3]}
        claim.write_payload(header, data)
        claims.append(str(claim.path))
    huge = Folder(tmp_path / "huge")
    os.truncate(huge.manifest_path, 2**36)
    subprocess.run([sys.executable, "-c", MEMORY, *claims, str(huge.path)], check=True)


def test_reading_takes_the_files_size(tmp_path):
    """The peak while reading stays near the size of the arrays: nothing is held twice."""
    path = tmp_path / "m"
    write_model(path, ModelRecord("LEML", tensors={name: np.zeros(10**6) for name in "abcd"}))
    read_model(path)
    tracemalloc.start()
    read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * 10**6 + 2 * 10**6


def test_a_shape_of_very_many_sizes_takes_no_time_and_a_digest_that_is_no_text_is_refused(tmp_path):
    forged = Folder(tmp_path / "model")
    header, data = forged.payload()
    header["W"]["shape"] = [2] * 300_000  # whose product would take a minute
    forged.write_payload(header, data)
    with pytest.raises(ModelFormatError, match="W has the shape"):
        read_model(forged.path)
    for digest in (b'"\\ud800"', b"5"):
        forged = Folder(tmp_path / digest.hex())
        manifest = forged.manifest_path.read_bytes()
        forged.manifest_path.write_bytes(manifest.replace(f'"{forged.manifest()["sha256"]}"'.encode(), digest))
        with pytest.raises(ModelFormatError, match=r"sha256 is not a digest|not JSON"):
            read_model(forged.path)
