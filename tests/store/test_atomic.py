"""The writing of one file in one step."""

from __future__ import annotations

import errno
import os

import pytest

from tagwise.store import atomic, atomic_write


def test_makes_and_replaces_a_file_and_a_link_but_never_follows_one(tmp_path):
    (tmp_path / "other").write_bytes(b"untouched")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    previous = os.umask(0o027)
    try:
        for content in (b"old", b"", b"new" * 100_000):
            atomic_write(tmp_path / "file", lambda stream, content=content: stream.write(content))
            assert (tmp_path / "file").read_bytes() == content
            assert sorted(os.listdir(tmp_path)) == ["file", "other"]
    finally:
        os.umask(previous)
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "other").read_bytes() == b"untouched"


def test_a_failing_writer_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    for error in (ValueError("no"), KeyboardInterrupt()):

        def write(stream, error=error):
            stream.write(b"half")
            raise error

        with pytest.raises(type(error)):
            atomic_write(tmp_path / "file", write)
        assert (tmp_path / "file").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted(descriptor):
        calls.append("folder" if os.path.isdir(f"/dev/fd/{descriptor}") else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    atomic_write(tmp_path / "file", lambda stream: stream.write(b"x"))
    assert calls == ["file", "rename", "folder"]


def test_only_a_folder_that_cannot_be_flushed_at_all_is_let_go(tmp_path, monkeypatch):
    code = [errno.EINVAL]

    def fail(descriptor):
        raise OSError(code[0], "injected")

    monkeypatch.setattr(os, "fsync", fail)
    atomic.flush_folder(tmp_path)
    code[0] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        atomic.flush_folder(tmp_path)
