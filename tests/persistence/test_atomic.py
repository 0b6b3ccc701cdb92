"""The writing of one file in one step."""

from __future__ import annotations

import errno
import os

import pytest

from tagwise.persistence import atomic, atomic_write


def test_makes_and_replaces_a_file(tmp_path):
    for content in (b"old", b"", b"new" * 100_000):
        atomic_write(tmp_path / "file", lambda stream, content=content: stream.write(content))
        assert (tmp_path / "file").read_bytes() == content
        assert os.listdir(tmp_path) == ["file"]


def test_respects_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        atomic_write(str(tmp_path / "file"), lambda stream: stream.write(b"x"))
    finally:
        os.umask(previous)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failing_writer_leaves_the_old_file(tmp_path, error):
    (tmp_path / "file").write_bytes(b"old")

    def write(stream):
        stream.write(b"half")
        raise error

    with pytest.raises(type(error)):
        atomic_write(tmp_path / "file", write)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("folder" if _is_folder(fd) else "file"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    atomic_write(tmp_path / "file", lambda stream: stream.write(b"x"))
    assert calls == ["file", "rename", "folder"]


def _is_folder(descriptor):
    return os.path.isdir(f"/dev/fd/{descriptor}")


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"untouched")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    atomic_write(tmp_path / "file", lambda stream: stream.write(b"x"))
    assert (tmp_path / "other").read_bytes() == b"untouched"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize(("code", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_a_folder_that_cannot_be_flushed_at_all_is_let_go(tmp_path, monkeypatch, code, raised):
    def fail(descriptor):
        raise OSError(code, "injected")

    monkeypatch.setattr(os, "fsync", fail)
    if raised:
        with pytest.raises(OSError, match="injected"):
            atomic.flush_folder(tmp_path)
    else:
        atomic.flush_folder(tmp_path)


def test_temporaries_are_recognised():
    assert atomic.final_name(".a.json.0123456789abcdef.tmp") == "a.json"
    assert atomic.final_name("a.json") is None
    assert atomic.final_name(".a.json.0123456789abcdeg.tmp") is None
    assert atomic.final_name("..0123456789abcdef.tmp") is None
