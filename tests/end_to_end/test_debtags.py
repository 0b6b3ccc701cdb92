"""The command's purpose: texts of Debian packages to their tags, with default settings."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMAND, ok


@pytest.fixture(scope="module")
def model(data_folder, tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("debtags") / "m", data_folder / "debtags" / "text.trn.jsonl.gz"
    result = ok("train", rows, "--text", "text", "--tags", "labels", "--out", folder)
    assert "iteration 1/" in result.stderr
    assert "Model: " in result.stdout
    return folder


def test_defaults_rank_the_first_tag_right_in_86_of_100_packages(data_folder, model):
    found = json.loads(ok("evaluate", model, data_folder / "debtags" / "text.tst.jsonl.gz", "--json").stdout)
    assert found["rows"] == 6060
    assert found["metrics"]["P@1"] >= 0.86
    assert "use::editing" in ok("predict", model, "a text editor for the terminal with syntax highlighting").stdout


def resident_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hundred_thousand_lines_take_constant_memory(model, data_folder, tmp_path):
    with gzip.open(data_folder / "debtags" / "text.tst.jsonl.gz", "rt", encoding="utf-8") as stream:
        texts = [json.loads(line)["text"].replace("\n", " ")[:400] for line in stream]
    path = tmp_path / "lines.txt"
    path.write_text("".join(texts[place % len(texts)] + "\n" for place in range(100_000)), encoding="utf-8")
    memory = {}
    with subprocess.Popen([*COMMAND, "predict", str(model), str(path)], stdout=subprocess.PIPE, text=True) as process:
        for number, _ in enumerate(process.stdout, start=1):
            if number in (10_000, 99_000):
                memory[number] = resident_bytes(process)
        assert process.wait(timeout=600) == 0
    assert number == 100_000
    assert memory[99_000] - memory[10_000] < 50e6
