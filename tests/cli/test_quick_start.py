"""Imports that are put off: nothing is loaded until it is used, and then all is as it would have been."""

import subprocess
import sys


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


def test_predict_answers_without_scipy_stats(tmp_path):
    from tagwise import Tagger

    texts, tags = ["a cat and a dog", "red wine", "a dog", "white wine"] * 3, [["pets"], ["drinks"]] * 6
    Tagger("binary-relevance").fit(texts, tags).save(tmp_path / "m")
    code = f"import sys; from tagwise.cli.main import main; main(['predict', {str(tmp_path / 'm')!r}, 'my dog']); "
    assert printed(code + LOADED).splitlines()[-1] == "False"
