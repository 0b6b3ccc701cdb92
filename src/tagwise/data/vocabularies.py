"""Files of tags and what they are called."""

from __future__ import annotations

import os

from tagwise.data.streams import ByteSource

__all__ = ["read_vocabulary"]


def read_vocabulary(path: str | os.PathLike[str]) -> dict[str, str]:
    """Tags and their names: one tag per line, or a tag, a tab and its name.

    Parameters
    ----------
    path : path
        A text file in UTF-8; also ``.gz`` and ``.bz2``.

    Returns
    -------
    dict from str to str
        Tag → name, in the order of the file, for ``Tagger(vocabulary=…)``. A tag without a name is called as it is.
        Spaces around tags and names are left out.

    Raises
    ------
    ParseError
        A line has no tag, an empty name or a second tab, or a tag is there twice; or there is no tag at all.
    """
    vocabulary: dict[str, str] = {}
    with ByteSource(path) as source:
        for raw in source.lines():
            tag, *names = (field.strip() for field in source.decoded(raw).split("\t"))
            if not tag or names == [""]:
                what = "name" if tag else "tag"
                raise source.fault(f"the {what} is empty; every line must hold a tag, or a tag, a tab and its name")
            if len(names) > 1:
                raise source.fault(f"the line has {len(names)} tabs; at most one may stand between a tag and its name")
            if tag in vocabulary:
                raise source.fault(f"the tag {tag[:60]!r} was there before; leave one of its lines out")
            vocabulary[tag] = names[0] if names else tag
        if not vocabulary:
            raise source.fault("the file is empty; write one tag per line, or a tag, a tab and its name")
    return vocabulary
