"""The pages of the commands say what ``--help`` says."""

import importlib.util
from pathlib import Path

import click
import pytest

from tagwise.cli.main import VERBS

SCRIPT = Path(__file__).parents[2] / "scripts" / "command_pages.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("command_pages", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(script):
    assert script.differing() == [], "run scripts/command_pages.py"


def test_a_changed_missing_or_left_over_page_is_found(script, tmp_path):
    for name, content in script.pages().items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert script.differing(tmp_path) == []
    (tmp_path / "train.md").write_text("old")
    (tmp_path / "predict.md").unlink()
    (tmp_path / "gone.md").write_text("a verb that is no more")
    assert script.differing(tmp_path) == ["gone.md", "predict.md", "train.md"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_and_every_option_a_help(script, verb):
    assert f"tagwise {verb}" in script.help_of(verb).split("Example")[1]
    for parameter in script.command_of(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
