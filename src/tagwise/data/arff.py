"""Mulan's and MEKA's ARFF files, sparse and dense, and the XML file that lists Mulan's labels."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from xml.parsers import expat

import scipy.sparse as sp

from tagwise.data.arff_parser import ArffHeader, ArffRowReader, quoted, read_header
from tagwise.data.labelled_rows import LabelledRows, checked_pair
from tagwise.data.number_text import shortest_texts
from tagwise.data.streams import ByteSource, atomic_writer
from tagwise.exceptions import InvalidInputError, InvalidTypeError, ParseError
from tagwise.validation import check_choice, check_integer

__all__ = ["read_arff", "write_arff"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BLOCK_BYTES = 1 << 16
_NAMESPACE = "http://mulan.sourceforge.net/labels"


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
        Which attributes are labels. An int n means the first n attributes, a negative one the last ``|n|``. None takes
        MEKA's ``-C n`` option in the ``@relation``, which has the same signs. A list (not a single string, which is a
        path) gives names. Columns of ``Y`` follow the order of the attributes, or of the list if there is one.
    errors : {"strict", "skip"}
        What to do with a faulty row: raise :class:`ParseError`, or leave it out and count it in
        ``n_skipped``. A fault in the header is always an error.

    Returns
    -------
    LabelledRows
        ``X`` n×d float32 and ``Y`` n×L with ``feature_names`` and ``label_names``.

    Notes
    -----
    Rows are parsed in Python, about 1-2 million entries a second (dense files count every entry); memory is
    that of the matrices plus the header.
    """
    skip = check_choice(errors, "errors", ("strict", "skip")) == "skip"
    wanted = _check_labels_argument(labels)
    with ByteSource(path) as source:
        header = read_header(source)
        label_places = _find_labels(source.path, header, wanted)
        return ArffRowReader(source, header, label_places).read(skip)


def _check_labels_argument(labels: Any) -> int | list[str] | tuple[str, ...] | None:
    """The argument, with a path replaced by the tuple of names in it; a list stays a list, in its order."""
    if labels is None:
        return None
    if isinstance(labels, (str, os.PathLike)):
        return tuple(_read_mulan_xml(labels))
    if isinstance(labels, Sequence):
        names = list(labels)
        for name in names:
            if not isinstance(name, str):
                raise InvalidTypeError(f"labels must list attribute names; found {name!r}.")
        if not names:
            raise InvalidInputError("labels is an empty list; name at least one label attribute.")
        if len(set(names)) < len(names):
            raise InvalidInputError("labels lists a name twice; name each label attribute once.")
        return names
    count = check_integer(labels, "labels")
    if count == 0:
        raise InvalidInputError("labels is 0; pass how many of the first (positive) or last (negative) attributes.")
    return count


def _find_labels(path: str, header: ArffHeader, wanted: int | list[str] | tuple[str, ...] | None) -> list[int]:
    """Places of the label attributes, in the order of the columns of Y."""
    total = len(header.attributes)
    if wanted is None:
        if header.meka_labels is None:
            raise ParseError(
                path,
                header.relation_line,
                0,
                "the @relation has no option -C that says which attributes are labels; pass labels= (an XML "
                "file, a number, or names)",
            )
        wanted = header.meka_labels
    if isinstance(wanted, int):
        if not 0 < abs(wanted) <= total:
            raise ParseError(
                path,
                header.relation_line,
                0,
                f"labels= or the option -C asks for {wanted} labels, but the file has {total} attributes",
            )
        places = list(range(wanted)) if wanted > 0 else list(range(total + wanted, total))
    else:
        place_of = {attribute.name: place for place, attribute in enumerate(header.attributes)}
        for name in wanted:
            if name not in place_of:
                raise ParseError(path, header.relation_line, 0, f"no attribute has the name of the label {name!r}")
        places = [place_of[name] for name in wanted]
        if isinstance(wanted, tuple):
            places.sort()
    for place in places:
        attribute = header.attributes[place]
        if attribute.values is not None and not set(attribute.values) <= {"0", "1"}:
            raise ParseError(
                path,
                attribute.line,
                0,
                f"the label {attribute.name!r} must have the values {{0,1}}; found {', '.join(attribute.values)[:60]}",
            )
    return places


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
    X : sparse matrix or array of shape (n, d)
        Finite features, written as the shortest text that reads back as the same float.
    Y : sparse matrix or array of shape (n, L)
        0/1 labels.
    feature_names, label_names : list of str or None
        All different from each other; None makes ``feature_0 …`` and ``label_0 …``.
    relation : str
        The name of the relation.
    sparse : bool
        Whether to write sparse rows or dense ones.
    labels_xml : str, path or None
        Where to write Mulan's XML file; None writes none.
    """
    features, labels = checked_pair(X, Y)
    d, L = features.shape[1], labels.shape[1]
    x_names = _check_names(feature_names, "feature_names", d, "feature")
    y_names = _check_names(label_names, "label_names", L, "label")
    if len(set(x_names) | set(y_names)) < d + L:
        raise InvalidInputError("feature_names and label_names must all differ; a name occurs twice.")
    try:
        header = f"@relation {quoted(f'{relation}: -C {-L}')}\n\n"
        header += "".join(f"@attribute {quoted(name)} numeric\n" for name in x_names)
        header += "".join(f"@attribute {quoted(name)} {{0,1}}\n" for name in y_names)
        encoded = (header + "\n@data\n").encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"a name cannot be written as UTF-8: {error}.") from None
    if labels_xml is not None:
        _check_xml_names(y_names)
    with atomic_writer(path) as stream:
        stream.write(encoded)
        for row in range(features.shape[0]):
            stream.write(_row_text(features, labels, row, sparse).encode())
    if labels_xml is not None:
        _write_mulan_xml(labels_xml, y_names)


def _row_text(X: sp.csr_matrix, Y: sp.csr_matrix, row: int, sparse: bool) -> str:
    d = X.shape[1]
    low, high = X.indptr[row], X.indptr[row + 1]
    texts = shortest_texts(X.data[low:high])
    places = X.indices[low:high].tolist()
    label_places = [d + label for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()]
    if sparse:
        entries = [f"{place} {text}" for place, text in zip(places, texts) if text not in ("0", "-0")]
        return "{" + ",".join(entries + [f"{place} 1" for place in label_places]) + "}\n"
    dense = ["0"] * (d + Y.shape[1])
    for place, text in zip(places, texts):
        dense[place] = text
    for place in label_places:
        dense[place] = "1"
    return ",".join(dense) + "\n"


def _check_names(names: Sequence[str] | None, argument: str, size: int, word: str) -> list[str]:
    if names is None:
        return [f"{word}_{place}" for place in range(size)]
    if isinstance(names, str):
        raise InvalidTypeError(f"{argument} must be a list of names; found one string.")
    listed = list(names)
    if len(listed) != size:
        raise InvalidInputError(f"{argument} has {len(listed)} names for {size} columns.")
    for name in listed:
        if not isinstance(name, str):
            raise InvalidTypeError(f"{argument} must hold strings; found {name!r}.")
    return listed


# ---------------------------------------------------------------------- Mulan's XML file of label names


def _read_mulan_xml(path: str | os.PathLike[str]) -> list[str]:
    """The names of ``<labels><label name="…"/></labels>``, in the order of the file; nested labels count too.

    A document type declaration is refused, since with it come entities that can grow without bound.
    """
    names: dict[str, None] = {}
    depth = 0
    parser = expat.ParserCreate()

    def fault(reason: str) -> ParseError:
        return ParseError(path, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1, reason)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        local = tag.rpartition(":")[2]
        if depth == 1 and local != "labels":
            raise fault(f"the outer element must be <labels>; found <{tag}>")
        if depth == 1:
            return
        if local != "label":
            raise fault(f"only <label> elements may stand inside <labels>; found <{tag}>")
        if "name" not in attributes:
            raise fault("a <label> has no name attribute")
        if attributes["name"] in names:
            raise fault(f"label {attributes['name']!r} is listed twice")
        names[attributes["name"]] = None

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    def doctype(*arguments: object) -> None:
        raise fault("a document type declaration is not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    with ByteSource(path) as source:
        try:
            while block := source.read(_BLOCK_BYTES):
                parser.Parse(block, False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ParseError(path, error.lineno, error.offset + 1, f"not well-formed XML: {error}") from None
        except ParseError:
            raise
        except (LookupError, ValueError) as error:
            raise ParseError(path, 1, 0, f"the XML file's encoding cannot be read: {error}") from None
    if not names:
        raise ParseError(path, 0, 0, "the XML file lists no labels")
    return list(names)


def _check_xml_names(names: list[str]) -> None:
    """Refuse names with characters that XML cannot hold."""
    for name in names:
        if _NOT_XML.search(name):
            raise InvalidInputError(f"the label name {name!r} holds a character that XML cannot hold; rename it.")


def _write_mulan_xml(path: str | os.PathLike[str], names: list[str]) -> None:
    """Write Mulan's XML file for label names, atomically."""
    # Control characters as references, because a parser turns them into spaces inside an attribute.
    escapes = {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
    table = str.maketrans(escapes)
    lines = [f'<labels xmlns="{_NAMESPACE}">', *(f'<label name="{name.translate(table)}"></label>' for name in names)]
    with atomic_writer(path) as stream:
        stream.write(('<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(lines) + "\n</labels>\n").encode())
