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

from tagwise.data import read_arff, read_csv, read_jsonl, read_npz, read_svmlight, read_table, read_vocabulary, read_xmc
from tagwise.data.streams import LARGEST_EXPANSION, LONGEST_LINE, read_name_lines
from tagwise.exceptions import InvalidInputError, ParseError

ARFF = b"@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute b numeric\n"
LINE_READERS = {
    "rows.csv": read_csv,
    "rows.jsonl": read_jsonl,
    "rows.arff": read_arff,
    "rows.xmc": read_xmc,
    "rows.svm": read_svmlight,
    "labels.txt": read_name_lines,
    "tags.tsv": read_vocabulary,
}

# Packed, the files have some kB. Limits that are four times as strict as the usual ones keep the test short.
SIZE = 8 * 10**6
STRICT = {"TAGWISE_LONGEST_LINE": str(LONGEST_LINE // 4)}
# Beginning, what is repeated, and end.
BOMBS = {
    "newlines.xmc.gz": (b"%d 5 5\n" % SIZE, b"\n", b""),
    "rows.svm.gz": (b"", b"0 0:1\n", b""),
    "labels.svm.bz2": (b"", b"0,1,2,3,4,5,6,7,8,9\n", b""),
    "line.csv.bz2": (b"text,tags\n", b"a", b""),
    "rows.csv.gz": (b"text,tags\n", b"a,b\n", b""),
    "header.csv.gz": (b"text,tags", b",a", b""),
    "quoted.csv.gz": (b'text,tags\n"', b"a\n", b""),
    "line.jsonl.gz": (b'{"text": "', b"a", b'", "tags": []}\n'),
    "objects.jsonl.gz": (b'{"text": "a", "tags": [], "x": [0', b',{"":1}', b"]}\n"),
    "rows.jsonl.gz": (b"", b'{"text":"a","tags":["b"]}\n', b""),
    "line.arff.gz": (ARFF + b"@data\n{", b",", b"}\n"),
    "rows.arff.gz": (ARFF + b"@data\n", b"0,1\n", b""),
    "nominal.arff.gz": (ARFF + b"@attribute c {0", b",1", b"}\n"),
    "lines.txt.gz": (b"", b"\n", b""),
}
NPZ_METHODS = {"deflate.npz": zipfile.ZIP_DEFLATED, "bzip2.npz": zipfile.ZIP_BZIP2, "lzma.npz": zipfile.ZIP_LZMA}

# A program that reads files, each with one line of JSON on it: its name, the rise of the peak of memory, and what was
# found or the reason of the error. Its first argument is the limit of CPU seconds.
READ = """
import json, resource, sys
from pathlib import Path
from tagwise.data.formats import file_format
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import read_table
from tagwise.exceptions import ParseError

def read(path):
    entry = file_format(str(path))
    if entry.name == "text":
        return read_name_lines(path)
    return entry.read(path) if entry.holds == "matrix" else read_table(path, tag_separator=";")

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

limit, small, *names = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
Path(small).write_bytes(b"0 1:1\\n")
read(Path(small))  # loads what reads
for name in names:
    before = peak()
    try:
        got = read(Path(name))
        found = [got.X.toarray().tolist(), got.feature_names] if ".arff" in name else [got.texts, len(got.tags[0])]
    except ParseError as error:
        found = error.reason
    print(json.dumps([Path(name).name, peak() - before, found]), flush=True)
"""


def read_apart(folder: Path, files: dict[str, bytes], seconds: int) -> tuple[dict[str, tuple[int, object]], str]:
    """By name, the rise of the peak of a process of its own and what it found; and why some may be missing."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    command = [
        sys.executable,
        "-c",
        READ,
        str(seconds),
        str(folder / "small.svm"),
        *(str(folder / name) for name in files),
    ]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | STRICT)
    found = {name: (growth, result) for name, growth, result in map(json.loads, ended.stdout.splitlines())}
    late = f"a file took more than {seconds} s of CPU"
    return found, late if ended.returncode == -signal.SIGXCPU else ended.stderr


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
def test_files_that_expand_are_refused_before_the_memory_is_taken(tmp_path):
    pack = {".gz": lambda content: gzip.compress(content, 6), ".bz2": bz2.compress}
    files = {
        name: pack[Path(name).suffix](start + unit * (SIZE // len(unit)) + end)
        for name, (start, unit, end) in BOMBS.items()
    }
    files |= {name: npz_of_zeros(method) for name, method in NPZ_METHODS.items()}
    found, why = read_apart(tmp_path, files, 600)
    assert found.keys() == files.keys(), why
    for name, (growth, reason) in found.items():
        if name in ("bzip2.npz", "lzma.npz"):
            assert "another method" in reason
        else:
            assert "expands to more than" in reason or "longer than" in reason, (name, reason)
            assert "TAGWISE_L" in reason, (name, reason)
        assert growth < (100 if name in NPZ_METHODS else 125) * 2**20, (name, growth)


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
    assert len(read_table(path, id="id").texts) == 20_000


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
    page = (Path(__file__).parents[2] / "docs" / "data-formats.md").read_text(encoding="utf-8")
    assert f"{LONGEST_LINE // 2**20} MiB" in page
    assert f"{LARGEST_EXPANSION} times" in page


def test_long_lines_of_plain_files_and_folders_in_their_place(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGWISE_LONGEST_LINE", "3000")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    for name, read in LINE_READERS.items():
        (tmp_path / name).write_bytes(b"1 5 5\n" * name.endswith("xmc") + b"0" * 4000 + b"\n")
        with pytest.raises(ParseError, match="longer than 3,000 bytes"):
            read(tmp_path / name)
        with pytest.raises(InvalidInputError, match="is a folder; name a file in it"):
            read(folder)
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_npz(folder)
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_table(folder, format="parquet")


def test_announced_columns_cost_nothing(tmp_path):
    path = tmp_path / "a.xmc"
    path.write_bytes(b"1 2147483647 2147483647\n1 0:1\n")
    found = read_xmc(path)
    arrays = [getattr(matrix, name) for matrix in (found.X, found.Y) for name in ("data", "indices", "indptr")]
    assert found.X.shape == found.Y.shape == (1, 2**31 - 1)
    assert sum(array.nbytes for array in arrays) < 100


# Size at which work in proportion to the square would take hours. The files take some seconds of CPU together, however
# busy the machine is.
MANY = 200_000


def test_time_is_linear_in_what_a_line_holds(tmp_path):
    """Keys of an object, tags in a cell, columns, quoted fields, nominal values, escapes: one large line each."""
    pytest.importorskip("resource", reason="this system has no limits of processes")
    keys = ", ".join(f'"k{number}": 0' for number in range(MANY))
    columns = "".join(f",c{number}" for number in range(MANY))
    quoted = "".join(f',"c{number}"' for number in range(MANY))
    values = ",".join(f"v{number}" for number in range(MANY))
    arff, end = ARFF.decode(), "' numeric\n@data\n1,2,3\n"
    files = {
        "keys.jsonl": f'{{"text": "a", "tags": [], {keys}, "k{MANY - 1}": 1}}\n',
        "columns.csv": f"text,tags{columns}\nwords,a" + ",x" * MANY + "\n",
        "repeated.csv": f"text,tags{columns},text\nwords,a" + ",x" * MANY + ",y\n",
        "quoted.csv": f"text,tags{quoted}\nwords,a" + ',"x"' * MANY,
        "nominal.arff": f"{arff}@attribute c {{{values}}}\n@data\n1,2,v{MANY - 1}\n",
        "twice.arff": f"{arff}@attribute c {{{values},v{MANY - 1}}}\n@data\n1,2,v0\n",
        "escapes.arff": f"{arff}@attribute '" + "\\'\\\\" * MANY + end,
    }
    for name, tags in {"same": ["a"] * MANY, "other": [f"tag {number}" for number in range(MANY)]}.items():
        tags.append(tags[-1])
        files[f"{name}.csv"] = "text,tags\nwords," + ";".join(tags) + "\n"
        files[f"{name}.jsonl"] = json.dumps({"text": "words", "tags": tags}) + "\n"
    found, why = read_apart(tmp_path, {name: content.encode() for name, content in files.items()}, 60)
    assert found.keys() == files.keys(), why
    answers = {name: answer for name, (_, answer) in found.items()}
    assert f"'k{MANY - 1}' occurs twice" in answers["keys.jsonl"]
    for name, count in (("same", 1), ("other", MANY)):
        assert answers[f"{name}.csv"] == answers[f"{name}.jsonl"] == [["words"], count]
    assert answers["columns.csv"] == answers["quoted.csv"] == [["words"], 1]
    assert "'text' occurs 2 times" in answers["repeated.csv"]
    assert answers["nominal.arff"][0] == [[2, MANY - 1]]
    assert "listed twice" in answers["twice.arff"]
    assert answers["escapes.arff"][1][1] == "'\\" * MANY


def test_damaged_compression(tmp_path):
    numbers = np.random.default_rng(0).integers(2**40, size=3000).tolist()
    heads = {"rows.xmc": b"3000 9 9\n", "rows.csv": b"text,tags\n", "rows.jsonl": b"", "rows.arff": ARFF + b"@data\n"}
    rows = (b"1 2:%d\n", b'"text %d",a;b\n', b'{"text": "text %d", "tags": []}\n', b"1,%d\n")
    for (name, head), row in zip(heads.items(), rows):
        plain = head + b"".join(row % number for number in numbers)
        for ending, pack in ((".gz", gzip.compress), (".bz2", bz2.compress)):
            packed = pack(plain)
            path, read = tmp_path / f"{name}{ending}", LINE_READERS[name]
            path.write_bytes(packed)
            assert read(path).n_rows == 3000
            for content in (packed[:5], packed[: len(packed) // 2], packed[:-1], plain):
                path.write_bytes(content)
                for errors in ("strict", "skip"):
                    with pytest.raises(ParseError, match="truncated or damaged") as caught:
                        read(path, errors=errors)
                    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
