"""One-byte mutations of valid files either parse or raise ParseError; nothing else may come out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from tagwise.data import (
    read_arff,
    read_csv,
    read_jsonl,
    read_npz,
    read_svmlight,
    read_xmc,
    write_arff,
    write_csv,
    write_jsonl,
    write_npz,
    write_svmlight,
    write_xmc,
)
from tagwise.exceptions import ParseError

MUTATIONS = 1500
# Bytes that mean something to one of the formats are more telling than random ones.
TELLING = b"0123456789 \t\r\n,:;.-+eE#%{}[]'\"\\@?nNaA_\x00\xff\xc3|"


def mutations(content: bytes, count: int, seed: int):
    random = np.random.default_rng(seed)
    for _ in range(count):
        place = int(random.integers(len(content)))
        byte = TELLING[random.integers(len(TELLING))] if random.random() < 0.7 else int(random.integers(256))
        kind = random.integers(4)
        if kind == 0:
            yield content[:place] + content[place + 1 :]
        elif kind == 1:
            yield content[:place] + bytes([byte]) + content[place:]
        elif kind == 2:
            yield content[:place] + bytes([byte]) + content[place + 1 :]
        else:
            yield content[:place]


def _check(found) -> None:
    """What did parse must be sound."""
    for matrix in (found.X, found.Y):
        if matrix is not None:
            assert isinstance(matrix, sp.csr_matrix)
            assert matrix.dtype == np.float32
            assert np.isfinite(matrix.data).all()
            matrix.check_format(full_check=True)
            assert matrix.has_canonical_format
            assert matrix.shape[0] == found.n_rows
    assert (found.Y.data == 1).all()
    for names, size in ((found.texts, found.n_rows), (found.label_names, found.Y.shape[1])):
        assert names is None or len(names) == size


NAMES = ["a b", "c'd", 'e"f', "é"]
TEXTS = ["plain", 'quo"ted, text', "two\nlines", "é"]
WRITERS = {
    "rows.txt": (write_xmc, read_xmc),
    "rows.txt.gz": (write_xmc, read_xmc),
    "rows.txt.bz2": (write_xmc, read_xmc),
    "rows.svm": (write_svmlight, read_svmlight),
    "sparse.arff": (lambda p, X, Y: write_arff(p, X, Y, label_names=NAMES), read_arff),
    "dense.arff": (lambda p, X, Y: write_arff(p, X, Y, label_names=NAMES, sparse=False), read_arff),
    "dense.arff.gz": (lambda p, X, Y: write_arff(p, X, Y, label_names=NAMES, sparse=False), read_arff),
    "rows.jsonl": (lambda p, X, Y: write_jsonl(p, TEXTS, Y, NAMES), read_jsonl),
    "rows.jsonl.bz2": (lambda p, X, Y: write_jsonl(p, TEXTS, Y, NAMES), read_jsonl),
    "rows.csv": (lambda p, X, Y: write_csv(p, TEXTS, Y, NAMES), read_csv),
    "rows.tsv": (lambda p, X, Y: write_csv(p, TEXTS, Y, NAMES), read_csv),
}


# A mutation may make a tag empty or repeat one, which is reported.
@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
@pytest.mark.parametrize("name", WRITERS)
def test_mutated_files(tmp_path, example_pair, name):
    write, read = WRITERS[name]
    path = tmp_path / name
    write(path, *example_pair)
    content = path.read_bytes()
    outcomes = {"parsed": 0, "refused": 0, "incomplete": 0}
    for number, mutated in enumerate(mutations(content, MUTATIONS, seed=0)):
        path.write_bytes(mutated)
        try:
            _check(read(path, errors="skip" if number % 3 == 0 else "strict"))
            outcomes["parsed"] += 1
        except ParseError as error:
            outcomes["refused"] += 1
            complete = error.path == str(path) and error.line >= 0 and error.column >= 0 and error.reason
            outcomes["incomplete"] += not complete
    assert outcomes["incomplete"] == 0
    assert min(outcomes["parsed"], outcomes["refused"]) > 0, outcomes


def test_mutated_npz(tmp_path, example_pair):
    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    write_npz(x, y, *example_pair)
    content = x.read_bytes()
    refused = 0
    with warnings.catch_warnings():
        # numpy warns when it takes a damaged header for one written by an old Python.
        warnings.simplefilter("ignore")
        for mutated in mutations(content, MUTATIONS, seed=1):
            x.write_bytes(mutated)
            try:
                _check(read_npz(x, y))
            except ParseError:
                refused += 1
    assert refused > MUTATIONS // 2


def test_mutated_npz_without_compression_or_checksums(tmp_path, example_pair, monkeypatch):
    # Behind a checksum most damage ends in one place; without it the damage reaches every check.
    import zipfile

    x, y = tmp_path / "X.npz", tmp_path / "Y.npz"
    X, Y = example_pair
    write_npz(x, y, X, Y)
    np.savez(x, format=b"csr", shape=X.shape, data=X.data, indices=X.indices, indptr=X.indptr)
    content = x.read_bytes()
    monkeypatch.setattr(zipfile.ZipExtFile, "_update_crc", lambda self, data: None)
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mutated in mutations(content, MUTATIONS, seed=2):
            x.write_bytes(mutated)
            try:
                _check(read_npz(x, y))
            except ParseError:
                refused += 1
    assert refused > 100


def test_mutated_mulan_xml(tmp_path, example_pair):
    path, xml = tmp_path / "rows.arff", tmp_path / "labels.xml"
    write_arff(path, *example_pair, label_names=NAMES, labels_xml=xml)
    content = xml.read_bytes()
    blamed = set()
    for mutated in mutations(content, 800, seed=3):
        xml.write_bytes(mutated)
        try:
            _check(read_arff(path, labels=xml))
        except ParseError as error:
            blamed.add(error.path)
    assert blamed == {str(path), str(xml)}
