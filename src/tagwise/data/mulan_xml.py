"""Mulan's XML file, which lists the label attributes of an ARFF file."""

from __future__ import annotations

import os
import re
from xml.parsers import expat

from tagwise.data.streams import ByteSource, atomic_writer
from tagwise.exceptions import InvalidInputError, ParseError

__all__ = ["check_writable", "read_label_names", "write_label_names"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BLOCK_BYTES = 1 << 16
_NAMESPACE = "http://mulan.sourceforge.net/labels"


def read_label_names(path: str | os.PathLike[str]) -> list[str]:
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


def check_writable(names: list[str]) -> None:
    """Refuse names with characters that XML cannot hold."""
    for name in names:
        if _NOT_XML.search(name):
            raise InvalidInputError(f"the label name {name!r} holds a character that XML cannot hold; rename it.")


def write_label_names(path: str | os.PathLike[str], names: list[str]) -> None:
    """Write Mulan's XML file for label names, atomically."""
    # Control characters as references, because a parser turns them into spaces inside an attribute.
    escapes = {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
    table = str.maketrans(escapes)
    lines = [
        f'<labels xmlns="{_NAMESPACE}">',
        *(f'<label name="{name.translate(table)}"></label>' for name in names),
    ]
    with atomic_writer(path) as stream:
        stream.write(('<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(lines) + "\n</labels>\n").encode())
