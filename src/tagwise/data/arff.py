"""Mulan's and MEKA's ARFF files, sparse and dense, and the XML file that lists Mulan's labels.

``scipy.io.arff`` takes sparse rows for faults and makes a record of all columns of dense ones, and no dependency reads
sparse rows. They are parsed in Python here, 1 to 2 million entries per second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tagwise.data.labelled_rows import GrowingRows, LabelledRows, checked_pair, checked_strings, shortest_texts
from tagwise.data.streams import ByteSource, UnskippableError, atomic_writer, is_compressed
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.validation import check_choice, check_integer

__all__ = ["labels_beside", "read_arff", "write_arff"]

_NAMESPACE = "http://mulan.sourceforge.net/labels"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MEKA_LABELS = re.compile(r"(?:^|[\s:])-C\s+(-?[0-9]{1,9})(?=\s|$)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_QUOTING = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_WORD = re.compile(rf"{_QUOTED}|[^\s,]+|,")
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)(?:\s*{{(.*)}}|\s+([a-z]+))\s*(?:%.*)?", re.IGNORECASE)
_NUMERIC_TYPES = ("numeric", "real", "integer")
# Python's float would also take 1_000, nan, and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Numbers from the one on, and up to the other one, are infinity and 0 as float32.
_INFINITE, _ZERO = 2.0**128 - 2.0**103, 2.0**-150


def read_arff(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | int | Sequence[str] | None = None,
    errors: str = "strict",
) -> LabelledRows:
    """Read a multi-label ARFF file, sparse (``{i v, i v}``) or dense, plain, ``.gz`` or ``.bz2``.

    Numeric attributes keep their value. A nominal attribute whose values are all numbers, such as ``{0,1}``,
    stands for these numbers; any other becomes the position of the value in its declaration, from 0. A left-out
    entry of a sparse row is 0, and zeros are not stored. String, date and relational attributes, missing
    values (``?``) and instance weights are faults. ``%`` starts a comment line, keywords are
    case-insensitive, and names and values may be quoted with backslash escapes.

    Parameters
    ----------
    path : str or path
        The file.
    labels : path of a Mulan XML file, int, list of str, or None
        Label attributes. An int n means the first n attributes, a negative one the last ``|n|``. None takes
        MEKA's ``-C n`` option in the ``@relation``, which has the same signs. A list (not a single string, which is a
        path) gives names. Columns of ``Y`` follow the order of the attributes, or of the list if there is one.
    errors : {"strict", "skip"}
        Treatment of a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``. A fault in the header is always an error.

    Returns
    -------
    LabelledRows
        ``X`` n×d float32 and ``Y`` n×L with ``feature_names`` and ``label_names``.

    Notes
    -----
    About 1-2 million entries per second (dense files count every entry); memory is that of the matrices, one row and
    the header. Lines and expansions are limited (see docs/data-formats.md).
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    wanted = _wanted_labels(labels)
    with ByteSource(path) as source:
        attributes, meka_labels = _read_header(source)
        label_places = _label_places(source.path, attributes, meka_labels if wanted is None else wanted)
        feature_places = sorted(set(range(len(attributes))).difference(label_places))
        is_label = set(label_places)
        starts_with_zeros = not any(next(iter(values.values()), 0) for _, values in attributes if values is not None)
        rows, n_skipped = GrowingRows(), 0
        for raw in source.lines():
            try:
                line = source.decoded(raw).strip()
                if not line or line.startswith("%"):
                    continue
                if line.startswith("{") and not starts_with_zeros:
                    reason = "in a sparse row a left-out entry means the first value of its attribute, which must be 0"
                    raise UnskippableError(source.path, source.line, 0, reason)
                entries = _entries(line, attributes)
                if any(value != 1 for place, value in entries if place in is_label):
                    raise ValueError("a label must be 0 or 1")
            except UnskippableError:
                raise
            except (ParseError, ValueError) as error:
                if not skip:
                    raise error if isinstance(error, ParseError) else source.fault(str(error)) from None
                n_skipped += 1
                continue
            rows.append([place for place, _ in entries], [value for _, value in entries])
        if len(rows.ends) == 1 and not n_skipped:
            raise source.fault("the file holds no rows after @data")
    matrix = rows.matrix(len(attributes))
    return LabelledRows(
        X=matrix[:, feature_places].sorted_indices(),
        Y=matrix[:, label_places].sorted_indices(),
        feature_names=[attributes[place].name for place in feature_places],
        label_names=[attributes[place].name for place in label_places],
        n_skipped=n_skipped,
    )


def labels_beside(path: str) -> str | None:
    """Mulan's XML file of the same name, where there is one."""
    stem = Path(path).with_suffix("") if is_compressed(path) else Path(path)
    beside = stem.with_suffix(".xml")
    return str(beside) if beside.is_file() else None


def _wanted_labels(labels: Any) -> int | list[str] | tuple[str, ...] | None:
    """The argument, with a path replaced by the tuple of names in it; a list stays a list, in its order."""
    if isinstance(labels, str) and re.fullmatch("-?[0-9]{1,9}", labels):  # as a command line has it
        labels = int(labels)
    if isinstance(labels, (str, os.PathLike)):
        return tuple(_read_mulan_xml(labels))
    if isinstance(labels, Sequence):
        for name in labels:
            if not isinstance(name, str):
                raise InvalidTypeError(f"labels must list attribute names; found {name!r}.")
        if not labels or len(set(labels)) < len(labels):
            found = "lists a name twice" if labels else "is an empty list"
            raise InvalidInputError(f"labels {found}; name each label attribute once.")
        return list(labels)
    if labels is not None and check_integer(labels, "labels") == 0:
        raise InvalidInputError("labels is 0; pass how many of the first (positive) or last (negative) attributes.")
    return None if labels is None else int(labels)


def _label_places(
    path: str, attributes: list[_Attribute], wanted: int | list[str] | tuple[str, ...] | None
) -> list[int]:
    """Places of the label attributes, in the order of the columns of Y."""
    fault = partial(ParseError, path, 0, 0)
    total = len(attributes)
    if wanted is None:
        raise fault(
            "the @relation has no option -C that says which attributes are labels; pass labels= (an XML file, a "
            "number, or names)"
        )
    if isinstance(wanted, int):
        if not 0 < abs(wanted) <= total:
            raise fault(f"labels= or the option -C asks for {wanted} labels, but the file has {total} attributes")
        places = list(range(wanted)) if wanted > 0 else list(range(total + wanted, total))
    else:
        place_of = {attribute.name: place for place, attribute in enumerate(attributes)}
        for name in wanted:
            if name not in place_of:
                raise fault(f"no attribute has the name of the label {name!r}")
        places = [place_of[name] for name in wanted]
        if isinstance(wanted, tuple):
            places.sort()
    for place in places:
        name, values = attributes[place]
        if values is not None and not set(values) <= {"0", "1"}:
            raise fault(f"the label {name!r} must have the values {{0,1}}; found {list(values)!s:.60}")
    return places


# ---------------------------------------------------------------------- header and rows


class _Attribute(NamedTuple):
    """A column; ``values`` maps each nominal value to its number and is None for a numeric column."""

    name: str
    values: dict[str, float] | None


def _read_header(source: ByteSource) -> tuple[list[_Attribute], int | None]:
    """The attributes up to ``@data``, and the number of MEKA's option -C."""
    attributes: dict[str, _Attribute] = {}
    meka_labels, named = None, False
    for raw in source.lines():
        line = source.decoded(raw).strip()
        keyword, *rest = line.lower().split(maxsplit=1) or ["%"]
        if keyword.startswith("%"):
            continue
        if keyword == "@data" and named and attributes and (not rest or rest[0].startswith("%")):
            return list(attributes.values()), meka_labels
        try:
            if keyword == "@relation" and not named:
                option = _MEKA_LABELS.search(_unquoted(line[len(keyword) :].strip()))
                named, meka_labels = True, int(option[1]) if option else None
                continue
            attribute = _attribute(line)
        except ValueError as error:
            raise source.fault(f"expected @relation, @attribute and @data in the header; found {error}") from None
        if attribute.name in attributes:
            raise source.fault(f"the attribute {attribute.name!r} is declared twice")
        attributes[attribute.name] = attribute
    raise source.fault("the file ends before @data (is it truncated?)")


def _attribute(line: str) -> _Attribute:
    found = _ATTRIBUTE.fullmatch(line)
    if found is None:
        raise ValueError(f"{line[:60]!r}")
    name, values, kind = found.groups()
    if values is None:
        if kind.lower() not in _NUMERIC_TYPES:
            raise ValueError(f"the type {kind[:40]!r}, which is neither numeric nor {{value, value}}")
        return _Attribute(_unquoted(name), None)
    words = [_unquoted(word) for word in _only_words(values)]
    if len(set(words)) < len(words):
        raise ValueError(f"a value that is listed twice in {line[:60]!r}")
    try:
        return _Attribute(_unquoted(name), {word: _number(word) for word in words})
    except ValueError:
        return _Attribute(_unquoted(name), {word: float(place) for place, word in enumerate(words)})


def _unquoted(word: str) -> str:
    if word[:1] not in ("'", '"'):
        return word
    if len(word) < 2 or word[-1] != word[0]:
        raise ValueError(f"a quote that is not closed in {word[:40]!r}")
    return _ESCAPED.sub(lambda letter: _ESCAPES.get(letter[1], letter[1]), word[1:-1])


def _fields(text: str) -> list[list[str]]:
    """The words of each field between commas, still in their quotes."""
    if "'" not in text and '"' not in text:
        return [field.split() for field in text.split(",")]
    fields: list[list[str]] = [[]]
    for word in _WORD.findall(text):
        if word == ",":
            fields.append([])
        else:
            fields[-1].append(word)
    return fields


def _only_words(text: str) -> list[str]:
    """The fields between commas, which are one word each."""
    fields = _fields(text)
    words = [word for words in fields for word in words]
    if len(words) != len(fields) or not all(fields):
        raise ValueError("a field between two commas that is not one value; put blanks in quotes")
    return words


def _entries(line: str, attributes: list[_Attribute]) -> list[tuple[int, float]]:
    """Place and value of what is not 0 in a row; a ValueError says what is wrong."""
    total = len(attributes)
    if not line.startswith("{"):
        numbered = list(enumerate(_only_words(line)))
        if len(numbered) != total:
            raise ValueError(f"the row has {len(numbered)} values for {total} attributes (is the line truncated?)")
    else:
        if not line.endswith("}"):
            raise ValueError("the sparse row does not end with } (is the line truncated?)")
        pairs = _fields(line[1:-1]) if line[1:-1].strip() else []
        if not all(len(pair) == 2 and pair[0].isdecimal() and len(pair[0]) < 10 for pair in pairs):
            raise ValueError("a sparse row must be {index value, index value}")
        numbered = [(int(place), word) for place, word in pairs]
        places = {place for place, _ in numbered}
        if len(places) < len(pairs) or max(places, default=0) >= total:
            raise ValueError(f"the indices of a sparse row must all differ and be less than {total}")
    entries = [(place, _value(word, attributes[place])) for place, word in numbered]
    return [entry for entry in entries if entry[1]]


def _value(word: str, attribute: _Attribute) -> float:
    try:
        return _number(word) if attribute.values is None else attribute.values[word]
    except (ValueError, KeyError):
        pass
    if word[:1] in ("'", '"'):
        return _value(_unquoted(word), attribute)
    needed = "a finite number of 32 bits" if attribute.values is None else f"one of {list(attribute.values)!s:.60}"
    raise ValueError(f"{word[:40]!r} is not a value of the attribute {attribute.name!r}, which must be {needed}")


@lru_cache(maxsize=1 << 16)
def _number(word: str) -> float:
    value = float(word) if _NUMBER.fullmatch(word) else float("nan")
    if not (value == 0 or _ZERO < abs(value) < _INFINITE):
        raise ValueError(f"{word[:40]!r} is not a finite number of 32 bits")
    return value


# ---------------------------------------------------------------------- writing


def write_arff(
    path: str | os.PathLike[str],
    X: Any,
    Y: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    relation: str = "tagwise",
    sparse: bool = True,
    labels_xml: str | os.PathLike[str] | None = None,
) -> None:
    """Write features and labels as an ARFF file, atomically: numeric features, then ``{0,1}`` labels.

    The ``@relation`` carries MEKA's ``-C -L``, so that :func:`read_arff` and MEKA find the labels;
    ``labels_xml`` writes the list that Mulan needs as well. Explicit zeros are not written.

    Parameters
    ----------
    path : str or path
        The file; compressed if it ends in ``.gz`` or ``.bz2``.
    X, Y : sparse matrices or arrays of shapes (n, d) and (n, L)
        Finite features, written as the shortest text that reads back as the same float; 0/1 labels.
    feature_names, label_names : list of str or None
        All different from each other; None makes ``feature_0 …`` and ``label_0 …``.
    relation : str
        The name of the relation.
    sparse : bool
        Whether to write sparse rows or dense ones.
    labels_xml : str, path or None
        Path of Mulan's XML file; None writes none.
    """
    features, labels = checked_pair(X, Y)
    d, L = features.shape[1], labels.shape[1]
    names = []
    for given, size, word in ((feature_names, d, "feature"), (label_names, L, "label")):
        own = [f"{word}_{place}" for place in range(size)] if given is None else checked_strings(given, f"{word}_names")
        if len(own) != size:
            raise InvalidInputError(f"{word}_names has {len(own)} names for {size} columns.")
        names += own
    if len(set(names)) < d + L:
        raise InvalidInputError("feature_names and label_names must all differ; a name occurs twice.")
    checked_strings([relation], "relation")
    lines = [f"@relation {_quoted(f'{relation}: -C {-L}')}\n"]
    lines += [f"@attribute {_quoted(name)} {'numeric' if place < d else '{0,1}'}" for place, name in enumerate(names)]
    for name in names[d:] if labels_xml is not None else ():
        if _NOT_XML.search(name):
            raise InvalidInputError(f"the label name {name!r} holds a character that XML cannot hold; rename it.")
    with atomic_writer(path) as stream:
        stream.write(("\n".join(lines) + "\n\n@data\n").encode())
        for row in range(features.shape[0]):
            x, y = (slice(*matrix.indptr[row : row + 2]) for matrix in (features, labels))
            texts = dict(zip(features.indices[x].tolist(), shortest_texts(features.data[x])))
            texts |= dict.fromkeys((labels.indices[y] + d).tolist(), "1")
            if sparse:
                pairs = (f"{place} {text}" for place, text in texts.items() if text not in ("0", "-0"))
                stream.write(f"{{{','.join(pairs)}}}\n".encode())
            else:
                stream.write((",".join(texts.get(place, "0") for place in range(d + L)) + "\n").encode())
    if labels_xml is not None:
        # Line breaks are written as references, because a parser turns them into spaces inside an attribute.
        listed = "".join(f"<label name={quoteattr(name)}></label>\n" for name in names[d:])
        head = f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n'
        with atomic_writer(labels_xml) as stream:
            stream.write(f"{head}{listed}</labels>\n".encode())


def _quoted(name: str) -> str:
    return "'" + name.translate(_QUOTING) + "'"


# ---------------------------------------------------------------------- Mulan's XML file of label names


class _NoDocumentType(ElementTree.TreeBuilder):
    """Elements of a document without a type declaration: with one come entities, which can grow without bound."""

    def doctype(self, *declared: object) -> None:
        raise ValueError("a document type declaration is not allowed")


def _read_mulan_xml(path: str | os.PathLike[str]) -> list[str]:
    """The names of ``<labels><label name="…"/></labels>``, in the order of the file; nested labels count too."""
    with ByteSource(path) as source:
        content = source.content()
    try:
        root = ElementTree.fromstring(content, ElementTree.XMLParser(target=_NoDocumentType()))
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        line, column = getattr(error, "position", (0, -1))
        raise ParseError(path, line, column + 1, f"not readable as XML: {error}") from None
    names = [name for element in root.iter() if element is not root and (name := element.get("name")) is not None]
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    if tags != ["labels"] + ["label"] * len(names) or not names:
        raise ParseError(path, 0, 0, "the XML file must hold <labels> with <label name=…> elements and nothing else")
    if len(set(names)) < len(names):
        raise ParseError(path, 0, 0, "the XML file lists a label twice")
    return names
