"""Nothing in the library needs what only POSIX has: it fits, saves, loads and serves where these names are missing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tagwise.exceptions import ModelFormatError
from tagwise.store import atomic
from tagwise.store.tensors import open_regular

WITHOUT = """\
import builtins, os, sys
import numba, numpy, scipy.sparse, sklearn.linear_model, joblib, asyncio, subprocess, tempfile, multiprocessing

POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "posix"}
original = builtins.__import__


def without(name, globals=None, locals=None, fromlist=(), level=0):
    if name in POSIX and (globals or {}).get("__name__", "").startswith("tagwise"):
        raise ImportError(f"No module named {name!r}")
    return original(name, globals, locals, fromlist, level)


builtins.__import__ = without
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "register_at_fork", "getuid", "geteuid", "mkfifo",
             "sched_getaffinity", "fchmod", "getloadavg", "sysconf", "statvfs", "killpg", "getpgid", "setsid", "pread"):
    if hasattr(os, name):
        delattr(os, name)

from tagwise import Cascade, LEML, Tagger, load
from tagwise.data import load_dataset
from tagwise.data.feedback import FeedbackFile, feedback_line, read_feedback
from tagwise.store.atomic import HAS_LOCKS

assert not HAS_LOCKS
data = load_dataset("debtags-sample")
rows = slice(0, 200)
model = LEML(rank=4).fit(data.X_train[rows], data.Y_train[rows])
model.save("model")
model.save("model")
assert (load("model").predict_topk(data.X_test, k=3)[0] == model.predict_topk(data.X_test, k=3)[0]).all()
tags = [[data.label_names[label] for label in row.indices] for row in data.Y_train[rows]]
Tagger(LEML(rank=4)).fit(data.texts_train[rows], tags).save("tagger")
FeedbackFile("feedback.jsonl").append([feedback_line({"text": "a", "accepted": ["x"], "rejected": []})])
assert read_feedback("feedback.jsonl").counts()["accepted"] == 1
import tagwise.cli.main, tagwise.serving
from tagwise.cli.main import run
run(["predict", "tagger", "a web server"])
"""


def test_the_library_works_without_names_of_posix(tmp_path):
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT],
        cwd=tmp_path,
        env={**os.environ, "TAGWISE_DATA": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "tagger" / "manifest.json").exists()


def test_a_name_that_is_being_read_is_taken_a_little_later(tmp_path, monkeypatch):
    """Windows refuses to replace a file that somebody has open."""
    target = tmp_path / "manifest.json"
    target.write_bytes(b"old")
    replace, free = os.replace, threading.Event()

    def busy(source, name):
        if not free.is_set():
            raise PermissionError(13, "in use")
        replace(source, name)

    monkeypatch.setattr(atomic, "_PAUSES", (0.01,) * 200)
    monkeypatch.setattr(atomic, "os", _Windows(os, busy))
    threading.Timer(0.1, free.set).start()
    atomic.atomic_write(target, lambda stream: stream.write(b"new"))
    assert target.read_bytes() == b"new"


def test_links_are_refused_where_the_system_cannot_refuse_to_follow_them(tmp_path, monkeypatch):
    (tmp_path / "there").write_bytes(b"x")
    try:
        (tmp_path / "link").symlink_to(tmp_path / "there")
    except OSError:
        pytest.skip("links cannot be made here")
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    with pytest.raises(ModelFormatError, match="links and special files are refused"):
        open_regular(Path(tmp_path / "link"))
    open_regular(tmp_path / "there").close()


class _Windows:
    """The module os with another name of the system and another replace."""

    def __init__(self, module, replace):
        self._module, self.name, self.replace = module, "nt", replace

    def __getattr__(self, name):
        return getattr(self._module, name)
