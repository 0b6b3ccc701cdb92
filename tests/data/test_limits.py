"""Limits of files: small ones that expand or announce much are refused before the memory is taken.

What is counted here is memory and work, never seconds.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from systems import needs_limits

from tagwise.data import read_arff, read_csv, read_jsonl, read_npz, read_svmlight, read_vocabulary, read_xmc
from tagwise.data.columns import Dialect
from tagwise.data.streams import LARGEST_EXPANSION, LONGEST_LINE, read_name_lines
from tagwise.data.tables import read_table
from tagwise.exceptions import InvalidInputError, ParseError

ARFF = b"@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute b numeric\n"


def repeated(unit: bytes, size: int) -> bytes:
    return unit * (size // len(unit))


# Packed they have some kB. Limits that are four times as strict as the usual ones keep the test short.
SIZE = 8 * 10**6
STRICT = {"TAGWISE_LONGEST_LINE": str(LONGEST_LINE // 4)}
BOMBS = {
    "newlines.xmc.gz": b"%d 5 5\n" % SIZE + repeated(b"\n", SIZE),
    "rows.svm.gz": repeated(b"0 0:1\n", SIZE),
    "labels.svm.bz2": repeated(b"0,1,2,3,4,5,6,7,8,9\n", SIZE),
    "line.csv.bz2": b"text,tags\n" + repeated(b"a", SIZE),
    "rows.csv.gz": b"text,tags\n" + repeated(b"a,b\n", SIZE),
    "header.csv.gz": b"text,tags" + repeated(b",a", SIZE),
    "quoted.csv.gz": b'text,tags\n"' + repeated(b"a\n", SIZE),
    "line.jsonl.gz": b'{"text": "' + repeated(b"a", SIZE) + b'", "tags": []}\n',
    "objects.jsonl.gz": b'{"text": "a", "tags": [], "x": [0' + repeated(b',{"":1}', SIZE) + b"]}\n",
    "rows.jsonl.gz": repeated(b'{"text":"a","tags":["b"]}\n', SIZE),
    "line.arff.gz": ARFF + b"@data\n{" + repeated(b",", SIZE) + b"}\n",
    "rows.arff.gz": ARFF + b"@data\n" + repeated(b"0,1\n", SIZE),
    "nominal.arff.gz": ARFF + b"@attribute c {0" + repeated(b",1", SIZE) + b"}\n",
    "lines.txt.gz": repeated(b"\n", SIZE),
}

READ = """
import json, resource, sys
from pathlib import Path
from tagwise import data
from tagwise.data.columns import Dialect
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import read_table
from tagwise.exceptions import ParseError

def read(path):
    if ".xmc" in path.name:
        return data.read_xmc(path)
    if ".svm" in path.name:
        return data.read_svmlight(path)
    if ".arff" in path.name:
        return data.read_arff(path)
    if ".txt" in path.name:
        return read_name_lines(path)
    if path.suffix == ".npz":
        return data.read_npz(path, path)
    return read_table(str(path), Dialect(tag_separator=";"))
"""

MEASURE = f"""{READ}
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

small = Path(sys.argv[1])
small.write_bytes(b"0 1:1\\n")
data.read_svmlight(small)  # loads what is compiled
found = {{}}
for name in sys.argv[2:]:
    before = peak()
    try:
        read(Path(name))
        reason = "parsed"
    except ParseError as error:
        reason = error.reason
    found[Path(name).name] = [peak() - before, reason]
print(json.dumps(found))
"""


def measured(folder, files: dict[str, bytes]) -> dict[str, tuple[int, str]]:
    """Rise of the peak of a process of its own by reading each file, and the reason of the error."""
    paths = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        paths.append(str(folder / name))
    command = [sys.executable, "-c", MEASURE, str(folder / "small.svm"), *paths]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | STRICT)
    return json.loads(ended.stdout)


def packed(name: str, content: bytes) -> bytes:
    return bz2.compress(content) if name.endswith(".bz2") else gzip.compress(content, 6)


@needs_limits
def test_files_that_expand_are_refused_before_the_memory_is_taken(tmp_path):
    found = measured(tmp_path, {name: packed(name, content) for name, content in BOMBS.items()})
    for name, (growth, reason) in found.items():
        assert "expands to more than" in reason or "longer than" in reason, (name, reason)
        assert "TAGWISE_L" in reason, (name, reason)
        assert growth < 500 * 2**20 / 4, (name, growth)


def npz_of_zeros(method: int) -> bytes:
    stream = io.BytesIO()
    zeros = np.zeros(SIZE // 4, dtype=np.int8)
    members = {"format": np.array(b"coo"), "shape": np.array([1, 1]), "data": zeros, "row": zeros, "col": zeros}
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, array in members.items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    return stream.getvalue()


@needs_limits
def test_npz_that_expands_is_refused_before_the_memory_is_taken(tmp_path):
    methods = {"deflate.npz": zipfile.ZIP_DEFLATED, "bzip2.npz": zipfile.ZIP_BZIP2, "lzma.npz": zipfile.ZIP_LZMA}
    found = measured(tmp_path, {name: npz_of_zeros(method) for name, method in methods.items()})
    assert "expands to more than" in found["deflate.npz"][1]
    assert "another method" in found["bzip2.npz"][1]
    assert "another method" in found["lzma.npz"][1]
    assert max(growth for growth, _ in found.values()) < 100 * 2**20


def test_a_file_that_is_packed_very_tightly_is_read(tmp_path, monkeypatch):
    """A good file may be packed 50 to 90 times as tightly: whole runs of rows that are repeated."""
    monkeypatch.setenv("TAGWISE_LONGEST_LINE", "10000")
    random = np.random.default_rng(0)
    words = ["".join(map(chr, random.integers(97, 123, 9))) for _ in range(60)]
    texts = [" ".join(random.choice(words, 30)) for _ in range(60)]
    rows = [json.dumps({"text": texts[number % 60], "tags": words[:2], "id": number}) for number in range(20_000)]
    content = "\n".join(rows).encode() + b"\n"
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(content, 9))
    assert 50 < len(content) / path.stat().st_size < 100
    assert len(read_table(str(path), Dialect(id="id")).texts) == 20_000


def test_the_limits_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"text,tags\n" + b"some words,a\n" * 3000))
    monkeypatch.setenv("TAGWISE_LONGEST_LINE", "1000")
    monkeypatch.setenv("TAGWISE_LARGEST_EXPANSION", "10")
    with pytest.raises(ParseError, match="TAGWISE_LARGEST_EXPANSION"):
        read_csv(path)
    monkeypatch.setenv("TAGWISE_LARGEST_EXPANSION", "10000")
    assert read_csv(path).n_rows == 3000
    monkeypatch.setenv("TAGWISE_LONGEST_LINE", "12")
    with pytest.raises(ParseError, match=r"line 2: the line is longer than 12 bytes.*TAGWISE_LONGEST_LINE"):
        read_csv(path)
    for wrong in ("0", "-1", "many", "1e9", "9" * 30):
        monkeypatch.setenv("TAGWISE_LONGEST_LINE", wrong)
        with pytest.raises(InvalidInputError, match="TAGWISE_LONGEST_LINE"):
            read_csv(path)


def test_long_lines_of_plain_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGWISE_LONGEST_LINE", str(3 * 10**6))
    readers = {"a.csv": read_csv, "a.jsonl": read_jsonl, "a.arff": read_arff, "a.xmc": read_xmc, "a.svm": read_svmlight}
    for name, read in (readers | {"labels.txt": read_name_lines, "tags.tsv": read_vocabulary}).items():
        (tmp_path / name).write_bytes(b"1 5 5\n" * name.endswith("xmc") + b"0" * (4 * 10**6) + b"\n")
        with pytest.raises(ParseError, match="longer than 3,000,000 bytes"):
            read(tmp_path / name)


def test_announced_columns_cost_nothing(tmp_path):
    path = tmp_path / "a.xmc"
    path.write_bytes(b"1 2147483647 2147483647\n1 0:1\n")
    found = read_xmc(path)
    arrays = [getattr(matrix, name) for matrix in (found.X, found.Y) for name in ("data", "indices", "indptr")]
    assert found.X.shape == found.Y.shape == (1, 2**31 - 1)
    assert sum(array.nbytes for array in arrays) < 100


# ---------------------------------------------------------------------- linear in the number of entries


# Sizes at which work in proportion to the square would take hours. All files below take some seconds of CPU together,
# however busy the machine is; the process that reads them is ended after a minute of it.
MANY = 200_000
CPU_SECONDS = 60

DESCRIBE = f"""{READ}
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS + 5}))
for name in sys.argv[1:]:
    try:
        got = read(Path(name))
        found = [got.X.toarray().tolist(), got.feature_names] if ".arff" in name else [got.texts, len(got.tags[0])]
    except ParseError as error:
        found = error.reason
    print(json.dumps([Path(name).name, found]), flush=True)
"""


def large_files() -> dict[str, str]:
    """Files of one large line each, by the names that the tests below know them by."""
    keys = ", ".join(f'"k{number}": 0' for number in range(MANY))
    header = ["text", "tags", *(f"c{number}" for number in range(MANY))]
    quoted = ["text", "tags", *(f'"c{number}"' for number in range(MANY))]
    values = ",".join(f"v{number}" for number in range(MANY))
    arff = ARFF.decode()
    files = {
        "keys.jsonl": f'{{"text": "a", "tags": [], {keys}, "k{MANY - 1}": 1}}\n',
        "columns.csv": ",".join(header) + "\nwords,a" + ",x" * MANY + "\n",
        "repeated.csv": ",".join([*header, "text"]) + "\nwords,a" + ",x" * MANY + ",y\n",
        "quoted.csv": ",".join(quoted) + "\nwords,a" + ',"x"' * MANY,
        "nominal.arff": f"{arff}@attribute c {{{values}}}\n@data\n1,2,v{MANY - 1}\n",
        "twice.arff": f"{arff}@attribute c {{{values},v{MANY - 1}}}\n@data\n1,2,v0\n",
        "escapes.arff": f"{arff}@attribute '" + "\\'\\\\" * MANY + "' numeric\n@data\n1,2,3\n",
    }
    for name, tags in {"same": ["a"] * MANY, "other": [f"tag {number}" for number in range(MANY)]}.items():
        tags.append(tags[-1])
        files[f"{name}.csv"] = "text,tags\nwords," + ";".join(tags) + "\n"
        files[f"{name}.jsonl"] = json.dumps({"text": "words", "tags": tags}) + "\n"
    return files


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Content of each of the large files, or the reason of its error."""
    pytest.importorskip("resource", reason="this system has no limits of processes")
    folder, paths = tmp_path_factory.mktemp("large"), []
    for name, content in large_files().items():
        (folder / name).write_text(content)
        paths.append(str(folder / name))
    ended = subprocess.run([sys.executable, "-c", DESCRIBE, *paths], capture_output=True, text=True)
    found = dict(map(json.loads, ended.stdout.splitlines()))
    late = f"reading it, or a file before it, took more than {CPU_SECONDS} s of CPU"
    why = late if ended.returncode == -signal.SIGXCPU else ended.stderr

    def answer(name):
        assert name in found, f"{name}: {why}"
        return found[name]

    return answer


def test_time_is_linear_in_what_a_line_holds(answers):
    """Keys of an object, tags in a cell, columns, quoted fields, nominal values, escapes: squares would take hours."""
    assert f"'k{MANY - 1}' occurs twice" in answers("keys.jsonl")
    for name, count in (("same", 1), ("other", MANY)):
        assert answers(f"{name}.csv") == answers(f"{name}.jsonl") == [["words"], count]
    assert answers("columns.csv") == answers("quoted.csv") == [["words"], 1]
    assert "'text' occurs 2 times" in answers("repeated.csv")
    assert answers("nominal.arff")[0] == [[2, MANY - 1]]
    assert "listed twice" in answers("twice.arff")
    assert answers("escapes.arff")[1][1] == "'\\" * MANY


# ---------------------------------------------------------------------- faults of whole files


def test_a_folder_in_place_of_a_file(tmp_path):
    folder = tmp_path / "rows.csv"
    folder.mkdir()
    for read in (read_csv, read_jsonl, read_arff, read_xmc, read_svmlight, read_name_lines, read_vocabulary):
        with pytest.raises(InvalidInputError, match=r"rows.csv is a folder; name a file in it"):
            read(folder)
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_npz(folder, folder)
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_table(str(folder), Dialect(format="parquet"))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_damaged_compression(tmp_path, ending, pack):
    numbers = np.random.default_rng(0).integers(2**40, size=3000).tolist()
    for name, read, head, row in (
        ("a.xmc", read_xmc, b"3000 9 9\n", b"1 2:%d\n"),
        ("a.csv", read_csv, b"text,tags\n", b'"text %d",a;b\n'),
        ("a.jsonl", read_jsonl, b"", b'{"text": "text %d", "tags": []}\n'),
        ("a.arff", read_arff, ARFF + b"@data\n", b"1,%d\n"),
    ):
        plain = head + b"".join(row % number for number in numbers)
        packed = pack(plain)
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(packed)
        assert read(path).n_rows == 3000
        for content in (packed[:5], packed[: len(packed) // 2], packed[:-1], plain):
            path.write_bytes(content)
            for errors in ("strict", "skip"):
                with pytest.raises(ParseError, match="truncated or damaged") as caught:
                    read(path, errors=errors)
                assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_limits_are_those_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "data-formats.md").read_text(encoding="utf-8")
    assert f"{LONGEST_LINE // 2**20} MiB" in page
    assert f"{LARGEST_EXPANSION} times" in page
