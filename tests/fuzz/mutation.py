"""Mutations of valid inputs, from a seeded generator: the same ones in every run."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from random import Random

# Bytes that mean something to one of the formats are more telling than random ones.
_TELLING = b"0123456789 \t\r\n,:;.-+eE#%{}[]()'\"\\/@?<>=&nNaA_|\x00\xff\xc3\x80"
_NUMBER = re.compile(rb"[+-]?[0-9]+(?:\.[0-9]+)?")
_HOSTILE_NUMBERS = (
    b"0 -0 -1 1 2 127 128 255 256 65535 65536 2147483646 2147483647 2147483648 4294967296 9223372036854775807 "
    b"9223372036854775808 -9223372036854775809 1000000000000 999999999999999999999999 1e308 1e309 -1e309 1e-46 1e-320 "
    b"1e99999999 0.1 3.4028236e38 3.4028235e38 nan inf -inf 0x10 1_000 +1 00 1e5 ."
).split()
_ODD_TEXTS = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (
        "\ufeff",
        "\u202e",
        "\u2028",
        "\x85",
        "\x00",
        "\x1b[2J",
        "\ud800",
        "\udfff",
        "\U0001f600",
        "e\u0301",
        "\u0130",
        "\ufffe",
        "\U0010ffff",
        "٣",
        "\u00a0",
        "\\ud800",
        "\\u0000",
    )
) + (b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe9", b"\xff\xfe")
_LENGTHS = (1, 1, 2, 4, 16, 64, 300)


def mutate(random: Random, content: bytes, other: bytes) -> bytes:
    """One to five changes of ``content``, some of which take parts of ``other``."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        content = random.choice(_CHANGES)(random, content, other)
    return content


def inside(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes]) -> Callable[..., bytes]:
    """Mutations of what is packed, packed again; one in four damages the packing instead."""

    def mutate_inside(random: Random, content: bytes, other: bytes) -> bytes:
        if random.random() < 0.25:
            return mutate(random, content, other)
        return pack(mutate(random, unpack(content), unpack(other)))

    return mutate_inside


def inside_zip(random: Random, content: bytes, other: bytes) -> bytes:
    """Mutations of one member of a zip archive, whose checksums fit again; one in four damages the archive instead."""
    if random.random() < 0.25:
        return mutate(random, content, other)
    members, others = _members(content), _members(other)
    changed = random.choice(sorted(members))
    members[changed] = mutate(random, members[changed], others.get(changed, members[changed]))
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return zip_of(members, random.choice(methods))


def _members(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of these members."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in members.items():
            # A fixed date: the same input in every run.
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return packed.getvalue()


# ---------------------------------------------------------------------- single changes


def _place(random: Random, content: bytes) -> int:
    return random.randrange(len(content) + 1)


def _byte(random: Random) -> bytes:
    return bytes([random.choice(_TELLING) if random.random() < 0.7 else random.randrange(256)])


def _flip(random: Random, content: bytes, other: bytes) -> bytes:
    if not content:
        return content
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def _replace(random: Random, content: bytes, other: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + _byte(random) + content[at + 1 :]


def _insert(random: Random, content: bytes, other: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + _byte(random) + content[at:]


def _delete(random: Random, content: bytes, other: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + content[at + random.choice(_LENGTHS) :]


def _truncate(random: Random, content: bytes, other: bytes) -> bytes:
    return content[: _place(random, content)]


def _duplicate(random: Random, content: bytes, other: bytes) -> bytes:
    start, at = _place(random, content), _place(random, content)
    piece = content[start : start + random.choice(_LENGTHS)] * random.choice((1, 1, 2, 50))
    return content[:at] + piece + content[at:]


def _duplicate_line(random: Random, content: bytes, other: bytes) -> bytes:
    lines = content.split(b"\n")
    line, at = random.choice(lines), random.randrange(len(lines) + 1)
    return b"\n".join(lines[:at] + [line] * random.choice((1, 1, 2, 100)) + lines[at:])


def _delete_line(random: Random, content: bytes, other: bytes) -> bytes:
    lines = content.split(b"\n")
    del lines[random.randrange(len(lines))]
    return b"\n".join(lines)


def _splice(random: Random, content: bytes, other: bytes) -> bytes:
    return content[: _place(random, content)] + other[_place(random, other) :]


def _number(random: Random, content: bytes, other: bytes) -> bytes:
    found = list(_NUMBER.finditer(content))
    if not found:
        return _replace(random, content, other)
    number = random.choice(found)
    return content[: number.start()] + random.choice(_HOSTILE_NUMBERS) + content[number.end() :]


def _binary_number(random: Random, content: bytes, other: bytes) -> bytes:
    at, width = _place(random, content), random.choice((2, 4, 8))
    value = random.choice((0, 1, -1, 2**7, 2**15, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63))
    number = (value % (1 << 8 * width)).to_bytes(width, "little")
    return content[:at] + number + content[at + width :]


def _odd_text(random: Random, content: bytes, other: bytes) -> bytes:
    at = _place(random, content)
    return content[:at] + random.choice(_ODD_TEXTS) + content[at:]


_CHANGES = (
    _flip,
    _replace,
    _replace,
    _insert,
    _insert,
    _delete,
    _truncate,
    _duplicate,
    _duplicate_line,
    _delete_line,
    _splice,
    _number,
    _number,
    _binary_number,
    _odd_text,
)
