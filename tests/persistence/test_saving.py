"""Where a model may be saved, and what is left when saving fails or is raced."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.persistence import ModelRecord, atomic, folder, read_model, write_model

LARGE = 2000  # rows of W: enough bytes that one save needs several writes


def snapshot(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_saving_over_a_model_leaves_only_the_new_one(tmp_path, make_record, identical):
    for seed in range(3):
        write_model(tmp_path / "m", make_record(seed))
        assert identical(make_record(seed), read_model(tmp_path / "m"))
        assert len(os.listdir(tmp_path / "m")) == 2


def test_parents_are_made(tmp_path, make_record, identical):
    write_model(tmp_path / "a" / "b" / "m", make_record())
    assert identical(make_record(), read_model(str(tmp_path / "a" / "b" / "m")))


def test_an_empty_folder_and_a_linked_folder_are_used(tmp_path, make_record, identical):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write_model(tmp_path / "link", make_record())
    assert identical(make_record(), read_model(tmp_path / "empty"))
    assert identical(make_record(), read_model(tmp_path / "link"))


def test_a_file_is_refused(tmp_path, make_record):
    (tmp_path / "m").write_text("mine")
    with pytest.raises(InvalidInputError, match="is a file"):
        write_model(tmp_path / "m", make_record())
    assert (tmp_path / "m").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", b"mine", "'notes.txt'"),
        ("manifest.json", b'{"name": "a web page"}', "not a manifest of a tagwise model"),
        ("manifest.json", b"", "not a manifest of a tagwise model"),
        ("tensors-1.safetensors", b"", "'tensors-1.safetensors'"),
        (".other.0123456789abcdef.tmp", b"", "other"),
    ],
)
def test_a_folder_with_other_things_is_refused_untouched(tmp_path, make_record, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=words):
        write_model(tmp_path, make_record())
    assert snapshot(tmp_path) == {name: content}


def test_a_manifest_that_is_a_link_is_refused_untouched(tmp_path, make_record):
    write_model(tmp_path / "a", make_record())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").symlink_to(tmp_path / "a" / "manifest.json")
    with pytest.raises(InvalidInputError, match="not a manifest of a tagwise model"):
        write_model(tmp_path / "b", make_record(1))
    assert os.listdir(tmp_path / "b") == ["manifest.json"]


def test_overwrite_false_keeps_a_model_and_makes_a_new_one(tmp_path, make_record, identical):
    write_model(tmp_path / "m", make_record(0), overwrite=False)
    before = snapshot(tmp_path / "m")
    with pytest.raises(InvalidInputError, match="overwrite is False"):
        write_model(tmp_path / "m", make_record(1), overwrite=False)
    assert snapshot(tmp_path / "m") == before


def test_a_destination_is_refused_beforehand_where_saving_would_refuse_it(tmp_path, make_record):
    write_model(tmp_path / "m", make_record())
    folder.check_destination(tmp_path / "m")
    folder.check_destination(tmp_path / "new" / "m")
    with pytest.raises(InvalidInputError, match="overwrite is False"):
        folder.check_destination(tmp_path / "m", overwrite=False)
    with pytest.raises(InvalidInputError, match="is a file; choose another path"):
        folder.check_destination(tmp_path / "m" / "manifest.json")
    with pytest.raises(InvalidInputError, match=r"cannot be made, since .* is a file"):
        folder.check_destination(tmp_path / "m" / "manifest.json" / "m")


def test_files_that_a_user_put_beside_a_model_stay(tmp_path, make_record):
    write_model(tmp_path / "m", make_record(0))
    (tmp_path / "m" / "README.txt").write_text("about this model")
    write_model(tmp_path / "m", make_record(1))
    assert (tmp_path / "m" / "README.txt").read_text() == "about this model"
    assert len(os.listdir(tmp_path / "m")) == 3


def test_a_damaged_model_of_ours_can_be_saved_over(tmp_path, make_record, identical):
    write_model(tmp_path / "m", make_record(0))
    manifest = tmp_path / "m" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:300])
    write_model(tmp_path / "m", make_record(1))
    assert identical(make_record(1), read_model(tmp_path / "m"))
    assert len(os.listdir(tmp_path / "m")) == 2


def test_leftovers_of_a_crashed_first_save_are_no_obstacle(tmp_path, make_record, identical):
    (tmp_path / f"tensors-{'0' * 32}.safetensors").write_bytes(b"half")
    (tmp_path / ".manifest.json.0123456789abcdef.tmp").write_bytes(b"{")
    (tmp_path / f".tensors-{'1' * 32}.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
    with pytest.raises(ModelFormatError, match=r"no manifest\.json"):
        read_model(tmp_path)
    folder.check_destination(tmp_path, overwrite=False)
    write_model(tmp_path, make_record(), overwrite=False)
    assert identical(make_record(), read_model(tmp_path))
    assert len(os.listdir(tmp_path)) == 2


class Faults:
    """Makes one call, or all calls from one on, of those that saving makes to the system fail."""

    def __init__(self, monkeypatch, fail_at=None, forever=False):
        self.calls = 0
        self.fail_at = fail_at
        self.forever = forever
        for name in ("fsync", "replace", "unlink", "open", "mkdir", "listdir", "lstat"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        faults = self

        class Raw(io.FileIO):
            def write(self, data):
                # Half of the bytes get through first, as on a disk that fills up.
                half = memoryview(data)[: max(1, len(data) // 2)]
                faults.tick()
                return super().write(half)

        def opened(path, mode):
            self.tick()
            return io.BufferedWriter(Raw(path, mode.replace("b", ""))) if "x" in mode else open(path, mode)

        monkeypatch.setattr(atomic, "open", opened, raising=False)
        monkeypatch.setattr(folder, "open", opened, raising=False)

    def wrap(self, function):
        def wrapped(*args, **kwargs):
            self.tick()
            return function(*args, **kwargs)

        return wrapped

    def tick(self):
        self.calls += 1
        if self.fail_at is not None and (self.calls == self.fail_at or (self.forever and self.calls > self.fail_at)):
            raise OSError(errno.ENOSPC, "No space left on device")


def count_calls(path, record):
    with pytest.MonkeyPatch.context() as monkeypatch:
        faults = Faults(monkeypatch)
        write_model(path, record)
    return faults.calls


def save_with_fault(path, record, fail_at, forever):
    with pytest.MonkeyPatch.context() as monkeypatch:
        Faults(monkeypatch, fail_at, forever)
        try:
            write_model(path, record)
        except OSError as error:
            return error
    return None


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_at_any_call_leaves_the_old_or_the_new_model(tmp_path, make_record, identical, forever, existing):
    old, new, other = make_record(0, LARGE), make_record(1, LARGE), make_record(2)
    if existing:
        write_model(tmp_path / "count" / "m", old)
    calls = count_calls(tmp_path / "count" / "m", new)
    assert calls >= 20
    failures = news = 0
    for fail_at in range(1, calls + 1):
        path = tmp_path / f"{fail_at}" / "m"
        if existing:
            write_model(path, old)
        error = save_with_fault(path, new, fail_at, forever)
        if error is not None:
            failures += 1
            assert error.errno == errno.ENOSPC
            assert "No space left" in str(error)
            assert str(path) in str(error)
        try:
            loaded = read_model(path)
        except ModelFormatError:
            assert not existing
        else:
            news += identical(new, loaded)
            assert identical(new, loaded) or (existing and identical(old, loaded))
            if not forever:
                assert not [name for name in os.listdir(path) if name.endswith(".tmp")]
        write_model(path, other)
        assert identical(other, read_model(path))
        assert len(os.listdir(path)) == 2
    assert failures > calls // 2
    assert 0 < news < calls


def test_a_failed_first_save_leaves_no_folder(tmp_path, make_record, monkeypatch):
    monkeypatch.setattr(os, "replace", Faults.wrap(_AlwaysFull(), os.replace))
    with pytest.raises(OSError, match="No space left"):
        write_model(tmp_path / "a" / "m", make_record())
    assert not os.listdir(tmp_path)


class _AlwaysFull:
    def tick(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_cannot_be_made(tmp_path, make_record, monkeypatch):
    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        write_model(tmp_path / "m", make_record())
    assert caught.value.errno == errno.EROFS
    assert caught.value.filename == str(tmp_path / "m")


def test_a_folder_inside_a_file(tmp_path, make_record):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="could not be saved"):
        write_model(tmp_path / "file" / "m", make_record())
    assert (tmp_path / "file").read_text() == "mine"


def test_an_interrupted_save_cleans_up(tmp_path, make_record, identical, monkeypatch):
    write_model(tmp_path / "m", make_record(0))
    before = snapshot(tmp_path / "m")

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_model(tmp_path / "m", make_record(1))
    assert snapshot(tmp_path / "m") == before


def test_a_real_limit_of_the_system(tmp_path, make_record, identical):
    """The kernel itself refuses to let the file grow: EFBIG, met in the middle of the tensors."""
    write_model(tmp_path / "m", make_record(0))
    code = """
import errno, resource, sys
import numpy as np
from tagwise.persistence import ModelRecord, write_model
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_model(sys.argv[1], ModelRecord("LEML", tensors={"W": np.zeros(100_000)}))
except OSError as error:
    assert error.errno == errno.EFBIG, error
    assert sys.argv[1] in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)
    assert identical(make_record(0), read_model(tmp_path / "m"))
    assert len(os.listdir(tmp_path / "m")) == 2


def test_a_reader_that_loses_the_race_reads_the_new_model(tmp_path, make_record, identical, monkeypatch):
    write_model(tmp_path / "m", make_record(0))
    read_payload = folder.read_payload
    races = iter([1, 2])

    def save_first(*args, **options):
        for seed in races:
            write_model(tmp_path / "m", make_record(seed))
            break
        return read_payload(*args, **options)

    monkeypatch.setattr(folder, "read_payload", save_first)
    assert identical(make_record(2), read_model(tmp_path / "m"))


def test_readers_beside_a_writer_see_whole_models(tmp_path, make_record, identical):
    records = [make_record(0, LARGE), make_record(1, LARGE)]
    write_model(tmp_path / "m", records[0])
    done = threading.Event()

    def save():
        for number in range(100):
            write_model(tmp_path / "m", records[number % 2])
        done.set()

    writer = threading.Thread(target=save)
    writer.start()
    reads = 0
    while not done.is_set():
        loaded = read_model(tmp_path / "m")
        assert any(identical(record, loaded) for record in records)
        reads += 1
    writer.join()
    assert reads > 10


def test_concurrent_writers_wait_for_each_other(tmp_path, make_record, identical):
    records = [make_record(seed, LARGE) for seed in range(4)]
    errors = []

    def save(record):
        try:
            for _ in range(10):
                write_model(tmp_path / "m", record)
        except Exception as error:
            errors.append(error)

    write_model(tmp_path / "m", records[0])
    writers = [threading.Thread(target=save, args=(record,)) for record in records]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not errors
    assert any(identical(record, read_model(tmp_path / "m")) for record in records)
    assert len(os.listdir(tmp_path / "m")) == 2


def test_saving_shares_tensors_between_models_that_differ_elsewhere(tmp_path):
    """The new model's file has the old one's name: it must survive both the switch and a failed save."""
    tensors = {"W": np.arange(5.0)}
    write_model(tmp_path / "m", ModelRecord("LEML", {"reg": 1.0}, tensors))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "replace", Faults.wrap(_AlwaysFull(), os.replace))
        with pytest.raises(OSError, match="No space"):
            write_model(tmp_path / "m", ModelRecord("LEML", {"reg": 2.0}, tensors))
    assert read_model(tmp_path / "m").parameters == {"reg": 1.0}
    write_model(tmp_path / "m", ModelRecord("LEML", {"reg": 2.0}, tensors))
    assert read_model(tmp_path / "m").parameters == {"reg": 2.0}
