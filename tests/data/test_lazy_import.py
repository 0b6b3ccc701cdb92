import subprocess
import sys

import pytest

import tagwise.data

HEAVY = ("numba", "sklearn", "scipy", "numpy")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import tagwise.data") == set()


@pytest.mark.parametrize(
    "statement",
    [
        "from tagwise.data import load_dataset; load_dataset('debtags-sample')",
        "from tagwise.data import hide_labels, split_rows, make_power_law, make_low_rank_plus_sparse",
    ],
)
def test_data_sets_need_no_compiler(statement):
    assert "numba" not in loaded_after(statement)


def test_every_public_name_is_there():
    for name in tagwise.data.__all__:
        assert getattr(tagwise.data, name) is not None
    assert set(dir(tagwise.data)) == set(tagwise.data.__all__)
    assert set(tagwise.data._HOME_OF) == set(tagwise.data.__all__)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'load_everything'"):
        _ = tagwise.data.load_everything
