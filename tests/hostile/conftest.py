"""Helpers to make valid model folders and to break them while keeping their digests right."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.persistence import ModelRecord, write_model

ZEROS = "0" * 64


class BrokenModel:
    """A small valid model folder and the means to change it as someone would who knows the format."""

    def __init__(self, path):
        self.path = path
        self.manifest_path = path / "manifest.json"
        write_model(path, self.record())

    @staticmethod
    def record():
        return ModelRecord(
            class_name="LEML",
            parameters={"rank": 2, "weight": np.array([1.0, 2.0]), "range": (1, 2), "tol": float("inf")},
            tensors={
                "W": np.arange(6, dtype=np.float32).reshape(2, 3),
                "S": sp.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])),
                "flags": np.array([True, False]),
            },
            values={"n_iter_": 5, "objective_": [2.5, 1.25]},
            label_names=["alpha", "bétâ"],
        )

    @property
    def payload_path(self):
        (path,) = self.path.glob("*.safetensors")
        return path

    def manifest(self):
        return json.loads(self.manifest_path.read_bytes())

    def write_text(self, text):
        """Write a manifest with any text, with the right digest if it has one at all."""
        raw = text.encode() if isinstance(text, str) else text
        old = json.loads(self.manifest_path.read_bytes())["manifest_sha256"].encode()
        if old in raw:
            zeroed = raw.replace(old, ZEROS.encode(), 1)
            raw = raw.replace(old, hashlib.sha256(zeroed).hexdigest().encode(), 1)
        self.manifest_path.write_bytes(raw)

    def write_manifest(self, fields):
        self.write_text(json.dumps(fields))

    def replace_text(self, old, new):
        text = self.manifest_path.read_text(encoding="utf-8")
        assert old in text
        self.write_text(text.replace(old, new, 1))

    def write_payload(self, header, data, *, header_length=None):
        """Replace the safetensors file, and say its new size in the manifest."""
        header = header if isinstance(header, bytes) else json.dumps(header).encode()
        length = len(header) if header_length is None else header_length
        raw = struct.pack("<Q", length) + header + data
        self.payload_path.write_bytes(raw)
        fields = self.manifest()
        fields["payload"]["size"] = len(raw)
        self.write_manifest(fields)

    def payload(self):
        raw = self.payload_path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        return json.loads(raw[8 : 8 + length]), raw[8 + length :]

    def set_array(self, name, values):
        """Put other values of the same size into a stored array, with the right digest."""
        header, data = self.payload()
        start, end = header[name]["data_offsets"]
        content = np.asarray(values).tobytes()
        assert len(content) == end - start
        self.write_payload(header, data[:start] + content + data[end:])
        fields = self.manifest()
        table, key, *part = name.split("/")
        entry = fields[table][int(key) if table == "arrays" else key]
        digest = hashlib.sha256(content).hexdigest()
        if part:
            entry["sha256"][part[0]] = digest
        else:
            entry["sha256"] = digest
        self.write_manifest(fields)


@pytest.fixture
def model(tmp_path):
    return BrokenModel(tmp_path / "model")


@pytest.fixture(scope="session")
def same_record():
    """Whether two small records are the same; NaN-free, so plain comparison will do."""

    def tensors_equal(a, b):
        if sp.issparse(a):
            return a.shape == b.shape and all(
                tensors_equal(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr")
            )
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    def check(a, b):
        first, second = dict(a.parameters), dict(b.parameters)
        return (
            a.class_name == b.class_name
            and tensors_equal(first.pop("weight"), second.pop("weight"))
            and repr(first) == repr(second)
            and repr(a.values) == repr(b.values)
            and a.label_names == b.label_names
            and list(a.tensors) == list(b.tensors)
            and all(tensors_equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
        )

    return check
