"""The compiled parser against a slow, obvious twin, at every block boundary."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagwise.data import read_svmlight, read_xmc, sparse_text
from tagwise.exceptions import ParseError

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MANY = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def reference_row(line: str, d: int, L: int):
    """One line by the definition of the format: ({label}, {feature: float32}), or None if it breaks the format."""
    words = [word for word in re.split("[ \t]", line) if word]
    labels: list[int] = []
    if words and line[0] not in " \t" and not re.match("[0-9]+:", words[0]):
        label_word = words.pop(0)
        if not re.fullmatch("[0-9]+(?:,[0-9]+)*", label_word):
            return None
        labels = [int(label) for label in label_word.split(",")]
    features: dict[int, np.float32] = {}
    for word in words:
        index, colon, value = word.partition(":")
        if not re.fullmatch("[0-9]+", index) or not colon or not NUMBER.fullmatch(value) or int(index) in features:
            return None
        with np.errstate(over="ignore", under="ignore"):
            features[int(index)] = np.float32(float(value))
        if not np.isfinite(features[int(index)]) or (features[int(index)] == 0 and re.search("^[^eE]*[1-9]", value)):
            return None
    if len(set(labels)) < len(labels) or any(i >= L for i in labels) or any(i >= d for i in features):
        return None
    return set(labels), features


IDS = st.one_of(st.integers(0, 12).map(str), st.sampled_from(["-1", "007", "", "x", "1e1", "99999999999999999999"]))
VALUES = st.one_of(
    st.floats(width=32).map(lambda value: str(np.float32(value))),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,30}([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.text("0123456789.eE+-_xn ", max_size=8),
)
GOOD_VALUES = st.floats(-1e6, 1e6, width=32).map(lambda value: str(np.float32(value)))
BLANKS = st.sampled_from([" ", " ", " ", "  ", "\t"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    tame = draw(st.booleans())
    ids, values = (st.integers(0, 9).map(str), GOOD_VALUES) if tame else (IDS, VALUES)
    text = ",".join(draw(st.lists(ids, max_size=4, unique=True)))
    for index in draw(st.lists(ids, max_size=5, unique=True)):
        text += draw(BLANKS) + index + ":" + draw(values)
    return text + draw(st.sampled_from(["", "", " "]))


@MANY
@given(rows=st.lists(lines(), min_size=1, max_size=4))
def test_agrees_with_the_reference_twin(tmp_path, rows):
    path = tmp_path / "rows.txt"
    path.write_bytes(f"{len(rows)} 10 10\n".encode() + "".join(row + "\n" for row in rows).encode())
    expected = [reference_row(row, 10, 10) for row in rows]
    if None in expected:
        with pytest.raises(ParseError) as caught:
            read_xmc(path)
        assert caught.value.line == 2 + expected.index(None)
    good = [row for row in expected if row is not None]
    found = read_xmc(path, errors="skip" if None in expected else "strict")
    assert found.n_skipped == len(expected) - len(good)
    assert found.n_rows == len(good)
    for row, (labels, features) in enumerate(good):
        part = slice(found.X.indptr[row], found.X.indptr[row + 1])
        assert found.X.indices[part].tolist() == sorted(features)
        assert found.X.data[part].tobytes() == b"".join(features[i].tobytes() for i in sorted(features))
        assert found.Y.indices[found.Y.indptr[row] : found.Y.indptr[row + 1]].tolist() == sorted(labels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_exact(tmp_path, dtype):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**63, 4000, dtype=np.int64)
    doubles = bits.view(np.float64)
    infinity_bits = 0x7F800000
    singles = random.integers(0, infinity_bits, 4000, dtype=np.int32).view(np.float32).astype(np.float64)
    # Halfway between two float32 neighbours, where every rounding but the right one shows.
    ties = (singles + np.nextafter(singles.astype(np.float32), np.float32(np.inf)).astype(np.float64)) / 2
    texts = [repr(float(value)) for value in (*doubles, *singles, *ties)]
    texts += [f"{value:.{digits}e}" for value in singles[:1500] for digits in (3, 8, 12, 17, 20, 30)]
    texts += [f"{value:.25f}" for value in random.normal(size=300)] + ["0", "-0", "0.0", "000.5", "1.", ".5", "+2e+2"]
    texts += ["9007199254740993", "9007199254740992", "123456789012345678", "1234567890123456789", "1e22", "1e23"]
    with np.errstate(over="ignore", under="ignore"):
        expected = np.array([float(text) for text in texts]).astype(dtype)
    keep = [i for i, text in enumerate(texts) if np.isfinite(expected[i]) and (expected[i] or not float(text))]
    assert len(keep) > 10_000
    path = tmp_path / "rows.txt"
    path.write_text(f"{len(keep)} 1 1\n" + "".join(f" 0:{texts[i]}\n" for i in keep))
    assert read_xmc(path, dtype=dtype).X.data.tobytes() == expected[keep].tobytes()


SAMPLE = (
    b"6 9 5\r\n0,3 8:1 0:0.25\n 3:1e-30 2:7\r\n\n1:12345678901234567890 0:1\n4,2 \n1 5:0.1234567890123456789 4:-1 7:.5"
)


@pytest.mark.parametrize("block", [*range(1, 40), len(SAMPLE) - 7, 1000])
def test_every_block_boundary(tmp_path, monkeypatch, assert_same_matrix, block):
    path = tmp_path / "rows.txt"
    path.write_bytes(SAMPLE)
    whole = read_xmc(path)
    assert whole.X.toarray().tolist() == [
        [0.25, 0, 0, 0, 0, 0, 0, 0, 1],
        [0, 0, 7, float(np.float32(1e-30)), 0, 0, 0, 0, 0],
        [0] * 9,
        [1, float(np.float32(12345678901234567890)), 0, 0, 0, 0, 0, 0, 0],
        [0] * 9,
        [0, 0, 0, 0, -1, float(np.float32(0.1234567890123456789)), 0, 0.5, 0],
    ]
    assert [whole.Y[row].indices.tolist() for row in range(6)] == [[0, 3], [], [], [], [2, 4], [1]]
    monkeypatch.setattr(sparse_text, "BLOCK_BYTES", block)
    parts = read_xmc(path)
    assert_same_matrix(parts.X, whole.X)
    assert_same_matrix(parts.Y, whole.Y)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize("errors", ["strict", "skip"])
def test_faults_keep_their_place_in_small_blocks(tmp_path, monkeypatch, block, errors):
    path = tmp_path / "rows.svm"
    path.write_bytes(b"# c\n0 1:1\n0 1:1 2:x 3:1\n\n1 1:1e99\n1 2:1 2:1\n2 2:1\n")
    monkeypatch.setattr(sparse_text, "BLOCK_BYTES", block)
    if errors == "skip":
        found = read_svmlight(path, errors="skip")
        assert (found.n_skipped, found.Y.indices.tolist(), found.X.indices.tolist()) == (4, [0, 2], [1, 2])
    else:
        with pytest.raises(ParseError) as caught:
            read_svmlight(path)
        assert (caught.value.line, caught.value.column) == (3, 9)


def test_a_long_unsorted_row(tmp_path):
    random = np.random.default_rng(1)
    features, labels = random.permutation(50_000), random.permutation(20_000)
    path = tmp_path / "rows.txt"
    pairs = " ".join(f"{feature}:{feature + 1}" for feature in features)
    path.write_text(f"1 50000 20000\n{','.join(map(str, labels))} {pairs}\n")
    found = read_xmc(path)
    assert np.array_equal(found.X.toarray()[0], np.arange(1, 50_001))
    assert np.array_equal(found.Y.indices, np.arange(20_000))


def test_agrees_with_scikit_learn(tmp_path, example_pair):
    from sklearn.datasets import load_svmlight_file

    random = np.random.default_rng(2)
    rows = []
    for _ in range(200):
        labels = sorted(random.choice(30, random.integers(1, 5), replace=False).tolist())
        features = sorted(random.choice(100, random.integers(0, 20), replace=False).tolist())
        rows.append(",".join(map(str, labels)) + "".join(f" {i}:{random.normal():.6g}" for i in features))
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(rows) + "\n")
    X, Y = load_svmlight_file(str(path), n_features=100, multilabel=True, zero_based=True, dtype=np.float32)
    found = read_svmlight(path, n_features=100)
    assert (found.X != X).nnz == 0
    assert [tuple(map(int, labels)) for labels in Y] == [tuple(found.Y[row].indices.tolist()) for row in range(200)]
