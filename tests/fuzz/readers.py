"""Targets: every reader of data files, by the functions that the library and the command line call."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tagwise import data
from tagwise.data.columns import Dialect
from tagwise.data.datasets import read_folder
from tagwise.data.streams import read_name_lines
from tagwise.data.tables import TableReader, read_table
from tagwise.exceptions import ParseError, TagwiseWarning
from tagwise.text.names import check_vocabulary
from tagwise.validation import check_features, check_labels
from tests.fuzz.mutation import inside, inside_zip, zip_of
from tests.fuzz.targets import Target, join_files, write_files

X = sp.csr_matrix(np.array([[0.5, 0, 2], [0, -1e-7, 0], [0, 0, 0], [0, 0, 0], [3, 4, 5]], dtype=np.float32))
Y = sp.csr_matrix(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=np.float32))
LABELS = ["a b", "c'd", 'e"f', "é"]
TEXTS = ["plain", 'quo"ted, text', "two\nlines", "é 😀", "last"]
DATA_SET = (
    "X.trn.npz",
    "Y.trn.npz",
    "X.tst.npz",
    "Y.tst.npz",
    "features.txt",
    "labels.txt",
    "text.trn.jsonl.gz",
    "text.tst.jsonl.gz",
)


# ---------------------------------------------------------------------- what was read must be usable


def use(rows: data.LabelledRows) -> None:
    """What parsed is sound, and passes the checks of a fit or is refused by them."""
    for matrix in (rows.X, rows.Y):
        if matrix is not None:
            assert isinstance(matrix, sp.csr_matrix)
            assert matrix.dtype == np.float32
            assert np.isfinite(matrix.data).all()
            matrix.check_format(full_check=True)
            assert matrix.has_canonical_format
            assert matrix.shape[0] == rows.n_rows
    assert (rows.Y.data == 1).all()
    columns = 0 if rows.X is None else rows.X.shape[1]
    sizes = ((rows.texts, rows.n_rows), (rows.label_names, rows.Y.shape[1]), (rows.feature_names, columns))
    for names, size in sizes:
        assert names is None or len(names) == size
        "".join(names or ()).encode()
    if rows.X is not None:
        check_features(rows.X)
    check_labels(rows.Y)


def _reader(name: str, read: Callable[..., data.LabelledRows], **options: Any) -> Callable[[bytes, Path], None]:
    def run(content: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(content)
        errors = "skip" if zlib.crc32(content) % 3 == 0 else "strict"
        with warnings.catch_warnings():
            # An empty or repeated tag is reported.
            warnings.simplefilter("ignore", TagwiseWarning)
            try:
                use(read(path, errors=errors, **options))
            except ParseError as error:
                if error.path != str(path) or min(error.line, error.column) < 0 or not error.reason:
                    raise AssertionError(f"the error does not say where and what: {error!r}") from None
                raise

    return run


# What is stated about a table, by the variant.
_GIVEN: dict[int, dict[str, Any]] = {
    2: {"known": "known", "id": "id"},
    4: {"tags_wide": True},
    5: {"group_by": "text"},
    6: {"text": ("text", "id"), "tags": ("tags", "known"), "encoding": "cp1252"},
    7: {"header": False, "quoting": "none", "text": "1", "tags": "2"},
}


def _table(name: str) -> Callable[[bytes, Path], None]:
    """As the verbs read tables: columns and separators guessed, all rows, then one by one without tags."""

    def run(content: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(content)
        variant = zlib.crc32(content) % 8
        if variant == 3 or name.startswith("rows.txt"):
            with TableReader(str(path), Dialect(), with_tags=False, empty_texts=True) as reader:
                for row in reader:
                    row.text.encode()
            return
        table = read_table(str(path), Dialect(skip_faulty=variant in (1, 4, 5, 7), **_GIVEN.get(variant, {})))
        assert len(table.texts) == len(table.tags)
        assert table.known is None or len(table.known) == len(table.texts)
        counts = dict(table.counts)
        assert counts.pop("lines", sum(counts.values())) == sum(counts.values())
        "".join(tag for tags in table.tags for tag in tags).encode()

    return run


def _vocabulary(content: bytes, folder: Path) -> None:
    path = folder / ("tags.csv", "tags.jsonl", "tags.tsv", "tags.txt")[zlib.crc32(content) % 4]
    path.write_bytes(content)
    read = data.read_vocabulary(path)
    assert list(check_vocabulary(read)) == list(read)


def _arff_with_xml(content: bytes, folder: Path) -> None:
    write_files(content, folder, ("rows.arff", "labels.xml"))
    if (folder / "rows.arff").exists() and (folder / "labels.xml").exists():
        use(data.read_arff(folder / "rows.arff", labels=folder / "labels.xml"))


@cache
def _npz_pair() -> tuple[bytes, bytes]:
    return _saved(X), _saved(Y)


def _saved(matrix: Any) -> bytes:
    packed = io.BytesIO()
    sp.save_npz(packed, matrix)
    return packed.getvalue()


def _npz(content: bytes, folder: Path) -> None:
    features, labels = folder / "X.npz", folder / "Y.npz"
    sound = _npz_pair()
    damaged = zlib.crc32(content) % 3 == 0
    features.write_bytes(sound[0] if damaged else content)
    labels.write_bytes(content if damaged else sound[1])
    with warnings.catch_warnings():
        # numpy warns when it takes a damaged header for one that an old Python wrote.
        warnings.simplefilter("ignore")
        use(data.read_npz(features, labels))


def _names(content: bytes, folder: Path) -> None:
    path = folder / "labels.txt"
    path.write_bytes(content)
    "".join(read_name_lines(path)).encode()


def _data_set(content: bytes, folder: Path) -> None:
    write_files(content, folder, DATA_SET)
    if all((folder / name).exists() for name in DATA_SET[:4]):
        found = read_folder(folder, "fuzzed")
        for matrix in found:
            matrix.check_format(full_check=True)
        assert found.texts_train is None or len(found.texts_train) == found.X_train.shape[0]
        assert found.texts_test is None or len(found.texts_test) == found.X_test.shape[0]


# ---------------------------------------------------------------------- seeds, by the project's own writers


FOREIGN: dict[str, list[bytes]] = {
    "table-csv": [
        b'id,text,tags,known\n1,one text,"a;b",a;b;c\n2,"two\nlines",b,*\n3,three,,\n',
        b"title;keywords;id\nsome words;a, b;x\nother words;b;y\n",
        b'text,tags\none,"[""a"", ""b""]"\ntwo,[]\n',
        b"text\ttags\none\ta|b\ntwo\tc\n",
        b"id,text,red,green\n1,one,1,0\n2,two,,1\n3,three,true,false\n",
        b"text,tag\none,red\none,green\ntwo,red\ntwo,blue\n,red\n",
    ],
    "table-tsv": [
        b'text\ttags\n"one\ta\n5" two\ta;b\n',
        b'text\ttags\n"say ""hi""\tall"\ta\n"two\nlines"\tb\n',
        b"a book\t<http://a/1> <http://a/2>\nanother\t\n",
        "text\ttags\ngrün\ta\n".encode("utf-16"),
    ],
    "table-jsonl": [
        b'{"id": 1, "text": "one", "tags": ["a", "b"], "known": ["a", "b", "c"]}\n'
        b'{"id": "2", "text": "two \\u00e9", "tags": [], "known": null}\n',
        b'{"body": "one", "labels": "a;b", "other": {"deep": [1, 2.5, null, true]}}\n{"body": "two", "labels": "a"}\n',
    ],
    "xmc": [
        b"3 10 6\n1,2 3:0.5 1:2e-3\n\n5,0\t9:1e-40\n",
        b"1 2147483647 2147483647\n7 5:1\n",
    ],
    "svmlight": [
        b"# a comment\n1,2 3:0.5 1:2e-3 # more\n0 7:1\n \n3:4 9:-0.25\n",
        b"0 1:1.0000000000000000000001 2:1e-40 5:123456789012345678901234567890\r\n5,1\r\n",
    ],
    "arff": [
        b"% a comment\n@RELATION 'foreign: -C 2'\n@ATTRIBUTE l1 {0,1}\n@ATTRIBUTE l2 {0, 1}\n"
        b"@ATTRIBUTE \"q 'x'\" REAL\n@ATTRIBUTE color {red, 'dark green', blue}\n@DATA\n"
        b"1,0,2.5,red\n0,1,-1e3,'dark green'\n",
        b"@relation 'r: -C -1'\n@attribute f integer\n@attribute l {0,1}\n@data\n{0 3, 1 1}\n{}\n{1 1}\n",
    ],
    "vocabulary": [
        b"a\nb\n",
        "p1\tcard games\tcards\nlone\nz\té\r\n".encode(),
        b"<http://a/1>\tcats\t59\n",
        b"id\tname\talternatives\np1\tcar\tauto|motor car\n",
        'uri,label_en,label_fi,altLabel\n<http://a/1>,cats,kissat,"felines; é"\n'.encode(),
        b'{"id": "p1", "name": "car", "alternatives": ["auto", "motor car"]}\n{"id": 7}\n',
    ],
    "table-text": [b"one text\nanother one\n\n", b"1 2 3\n4\n"],
    "names": ["red\ngrün\n\nblue".encode(), b"one\r\ntwo\r\n"],
}
"""Files as others write them, odd and empty cells included."""


def _seeds(name: str, file: str = "", *writes: Callable[[Path], Any]) -> Callable[[], list[bytes]]:
    """Contents that each writer wrote, and foreign ones."""

    def seeds() -> list[bytes]:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for write in writes:
                write(Path(folder) / file)
                found.append((Path(folder) / file).read_bytes())
        return [*found, *FOREIGN.get(name, [])]

    return seeds


def _matrix(write: Callable[..., None], **options: Any) -> Callable[[Path], None]:
    return lambda path: write(path, X, Y, **options)


def _texts(write: Callable[..., None], **options: Any) -> Callable[[Path], None]:
    return lambda path: write(path, TEXTS, Y, LABELS, row_ids=list("abcde"), **options)


def _mulan_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        arff, xml = Path(folder) / "rows.arff", Path(folder) / "labels.xml"
        data.write_arff(arff, X, Y, label_names=LABELS, labels_xml=xml)
        return [join_files({"rows.arff": arff.read_bytes(), "labels.xml": xml.read_bytes()})]


def _npz_seeds() -> list[bytes]:
    matrices = (X, Y, X.tocsc(), X.tocoo(), Y.astype(np.int8), X.astype(np.float64))
    found = [_saved(matrix) for matrix in matrices]
    with zipfile.ZipFile(io.BytesIO(found[0])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    found += [zip_of(members, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    return found


def _data_set_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in ("trn", "tst"):
            data.write_npz(folder / f"X.{side}.npz", folder / f"Y.{side}.npz", X, Y)
            data.write_jsonl(folder / f"text.{side}.jsonl.gz", TEXTS, Y, LABELS, tags="labels")
        (folder / "features.txt").write_text("one\ntwo\nthree\n")
        (folder / "labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
        return [join_files({name: (folder / name).read_bytes() for name in DATA_SET})]


def _parquet_seeds() -> list[bytes]:
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, tags = ["one", "two é", "three", "one"], [["a", "b"], [], ["c"], ["a"]]
    day = datetime.datetime(2020, 1, 2, 3, 4, 5)
    tables = [
        pa.table({"text": texts, "tags": tags, "id": [1, 2, 3, 4]}),
        pa.table({"text": texts, "tags": ["a;b", "c", "", "d"], "when": pa.array([day] * 4, pa.timestamp("ns"))}),
        pa.table(
            {
                "text": texts,
                "tags": tags,
                "price": [decimal.Decimal("1.50")] * 4,
                "day": [day.date()] * 4,
                "nested": [{"x": [1.5, None]}] * 4,
                "raw": [b"\xff\x00"] * 4,
                "span": pa.array([1, 2, 3, None], pa.duration("ns")),
            }
        ),
    ]
    found = []
    for table in tables:
        for options in ({"compression": "none"}, {"compression": "gzip", "use_dictionary": False}):
            packed = io.BytesIO()
            pq.write_table(table, packed, **options)
            found.append(packed.getvalue())
    return found


def _packed(target: Target, ending: str) -> Target:
    """The same target behind a compression: mutated inside, or the packing itself."""
    module = {"gz": gzip, "bz2": bz2}[ending]
    pack = (
        partial(gzip.compress, mtime=0, compresslevel=1) if ending == "gz" else partial(bz2.compress, compresslevel=1)
    )
    _, name, read, options = _PLAIN[target.name]
    return Target(
        f"{target.name}.{ending}",
        seeds=lambda: [pack(seed) for seed in target.seeds()],
        run=_reader(f"{name}.{ending}", read, **options) if read is not None else _table(f"{name}.{ending}"),
        share=0.4,
        mutate=inside(module.decompress, pack),
    )


_ARFF = (
    _matrix(data.write_arff, label_names=LABELS),
    _matrix(data.write_arff, label_names=LABELS, sparse=False),
)
# Seeds, file name, reader (None: a table as the verbs read it) and its options.
_PLAIN: dict[str, tuple[Callable[[], list[bytes]], str, Callable[..., Any] | None, dict[str, Any]]] = {
    name: (_seeds(name, file, *writes), file, read, options)
    for name, file, read, options, *writes in (
        ("csv", "rows.csv", data.read_csv, {"id": "id"}, _texts(data.write_csv)),
        ("tsv", "rows.tsv", data.read_csv, {}, _texts(data.write_csv)),
        ("jsonl", "rows.jsonl", data.read_jsonl, {"id": "id"}, _texts(data.write_jsonl)),
        ("table-csv", "rows.csv", None, {}),
        ("table-tsv", "rows.tsv", None, {}),
        ("table-jsonl", "rows.jsonl", None, {}),
        ("table-text", "rows.txt", None, {}),
        ("xmc", "rows.xmc", data.read_xmc, {}, _matrix(data.write_xmc)),
        ("svmlight", "rows.svm", data.read_svmlight, {}, _matrix(data.write_svmlight)),
        ("arff", "rows.arff", data.read_arff, {}, *_ARFF),
    )
}

TARGETS = [
    Target(name, seeds, _table(file) if read is None else _reader(file, read, **options))
    for name, (seeds, file, read, options) in _PLAIN.items()
]
TARGETS += [
    _packed(target, ending)
    for target in TARGETS
    for ending in ("gz", "bz2")
    if (target.name, ending)
    in {("csv", "gz"), ("jsonl", "bz2"), ("xmc", "gz"), ("svmlight", "bz2"), ("arff", "gz"), ("table-jsonl", "gz")}
]
TARGETS += [
    Target("mulan-xml", _mulan_seeds, _arff_with_xml, share=0.5),
    Target("npz", _npz_seeds, _npz, share=0.4, mutate=inside_zip),
    Target("names", _seeds("names"), _names, share=0.3),
    Target("vocabulary", _seeds("vocabulary"), _vocabulary, share=0.3),
    Target("data-set", _data_set_seeds, _data_set, share=0.1),
]
if importlib.util.find_spec("pyarrow") is not None:
    TARGETS.append(Target("parquet", _parquet_seeds, _table("rows.parquet"), share=0.7))
