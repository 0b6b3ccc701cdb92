"""Imports that are put off: nothing is loaded until it is used, and then all is as it would have been."""

import os
import subprocess
import sys
from pathlib import Path


def printed(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


START = "import sys; from tagwise.cli.quick_start import put_off; put_off('scipy.stats'); "
LOADED = "print('scipy.stats._stats_py' in sys.modules)"


def test_an_import_loads_nothing_and_a_use_all():
    assert printed(START + "import scipy.stats, sklearn.base; " + LOADED) == "False"
    assert printed(START + "import scipy.stats; print(scipy.stats.rankdata([3, 1, 2]).tolist()); ") == "[3.0, 1.0, 2.0]"
    assert printed(START + "from scipy.stats import rankdata; " + LOADED) == "True"
    submodule = "import scipy.stats.distributions as d; print(d.norm is scipy.stats.norm)"
    assert printed(START + "import scipy; " + submodule) == "True"


def test_what_is_loaded_stays_and_what_is_not_there_is_no_matter():
    assert printed("import scipy.stats as s; " + START + "print(sys.modules['scipy.stats'] is s)") == "True"
    assert printed("from tagwise.cli.quick_start import put_off; put_off('scipy.nonsense'); print('fine')") == "fine"


def test_a_chain_of_packages_is_put_off_and_loaded_whole():
    start = "import sys; from tagwise.cli.quick_start import put_off; "
    chain = "[put_off(name) for name in ('email', 'email.mime', 'email.mime.text')]; import email.mime.text as t; "
    assert printed(start + chain + "print('email.message' in sys.modules)") == "False"
    assert printed(start + chain + "print(t.MIMEText('hello').get_payload())") == "hello"
    assert printed(start + chain + "import email.message as m; print(m.Message.__module__)") == "email.message"


def test_garbage_is_collected_again_once_the_start_is_over():
    code = "import gc; from tagwise.cli.quick_start import quick_start, settle; quick_start(); print(gc.isenabled()); "
    assert printed(code + "settle(); print(gc.isenabled())").split() == ["False", "True"]


def test_a_quick_end_loses_no_output_and_only_follows_a_quick_start():
    code = (
        "import atexit; atexit.register(print, 'taken apart'); from tagwise.cli.quick_start import *; print('said'); "
    )
    assert printed(code + "quick_end()").split("\n") == ["said", "taken apart"]
    assert printed(code + "quick_start(); quick_end()") == "said"


def small_tagger(folder):
    from tagwise import Tagger

    texts, tags = ["a cat and a dog", "red wine", "a dog", "white wine"] * 3, [["pets"], ["drinks"]] * 6
    Tagger("binary-relevance").fit(texts, tags).save(folder)


def test_the_first_compilation_is_said_once_and_a_second_run_is_silent(tmp_path):
    small_tagger(tmp_path / "m")
    command = [str(Path(sys.executable).with_name("tagwise")), "predict", str(tmp_path / "m"), "my dog"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment) for _ in range(2)
    )
    assert first.returncode == second.returncode == 0
    assert first.stderr.count("Compiling for this machine") == 1
    assert second.stderr == ""
    assert first.stdout == second.stdout


def test_predict_answers_without_scipy_stats(tmp_path):
    small_tagger(tmp_path / "m")
    code = f"import sys; from tagwise.cli.main import main; main(['predict', {str(tmp_path / 'm')!r}, 'my dog']); "
    assert printed(code + LOADED).splitlines()[-1] == "False"
