"""The installed command, as a person runs it."""

import json
import re

from commands import run, run_process


def test_demo_shows_metrics_ten_packages_and_the_time():
    result = run("demo", "--rank", "30", "--max-iter", "3")
    assert result.returncode == 0, result.stderr
    for words in ("P: precision", "nDCG", "PSP", "predicted tags", "true tags", "in all"):
        assert words in result.stdout
    precision = re.search(r"P: precision of the first k tags\s+([\d.]+)", result.stdout)
    assert float(precision.group(1)) > 70
    assert result.stdout.count("├─") >= 9
    assert "iteration 1/3" in result.stderr


def test_demo_is_the_same_for_the_same_seed():
    first, second = (run("demo", "--rank", "20", "--max-iter", "2", "--jobs", jobs).stdout for jobs in ("1", "2"))

    def untimed(text):
        return text[: text.rindex("Features")]

    assert untimed(first) == untimed(second)


def test_demo_for_programs():
    result = run("demo", "--rank", "20", "--max-iter", "2", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["rounds"] == 2
    assert found["metrics"]["P@1"] > 0.7


def test_bad_calls_say_what_is_wrong():
    unknown = run("train-everything")
    assert unknown.returncode == 2
    assert "No such command" in unknown.stderr
    bad = run("demo", "--rank", "0")
    assert bad.returncode == 1
    assert bad.stderr.strip().endswith("tagwise: rank must be at least 1; found 0.")
    assert "Traceback" not in bad.stderr
    assert run("demo", "--rank", "many").returncode == 2


def test_version():
    import tagwise

    assert tagwise.__version__ in run_process("--version").stdout
