"""The checks of the built site and of the package find what they look for."""

import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "index.html").write_text('<h1 id="top">Home</h1> <a class="x" href="api/one.html#there">one</a>')
    (tmp_path / "api" / "one.html").write_text(
        '<h2 id="there"></h2> <a href="../index.html#top">back</a> <a href="#there">up</a>'
    )
    return tmp_path


def test_a_sound_site_has_no_dead_links(site):
    assert script("check_site").dead_links(site) == ([], 3, set())


def test_what_leads_nowhere_is_found(site):
    for html, fault in (
        ('<a href="gone.html">x</a>', "no gone.html"),
        ('<a href="api/one.html#gone">x</a>', "has no #gone"),
        ('<img alt="" src="gone.png">', "no gone.png"),
        ('<script defer src="https://cdn.example/x.js"></script>', "it needs a network"),
    ):
        (site / "more.html").write_text(html)
        (found,), *_ = script("check_site").dead_links(site)
        assert found.startswith("more.html")
        assert fault in found


def test_addresses_outside_and_names_without_a_page_are_told(site):
    (site / "more.html").write_text('<a href="https://example.org/a">x</a>')
    assert script("check_site").dead_links(site) == ([], 3, {"https://example.org/a"})
    assert "tagwise.LEML" in script("check_site").names_without_page(site)


def test_a_half_that_is_drawn_as_twelve_is_found(site):
    check = script("check_site")
    for attributes in ("", ' displaystyle="false" scriptlevel="0"'):
        (site / "more.html").write_text(f"<mfrac{attributes}>\n  <mn>1</mn><mn>2</mn></mfrac>")
        assert check.wrong_fractions(site) == []
        (site / "more.html").write_text(f"<mfrac{attributes}>\n  <mn>12</mn><mi>x</mi></mfrac>")
        (found,) = check.wrong_fractions(site)
        assert found.startswith("more.html draws 12")


def test_formulas_are_rewritten_for_the_converter(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from formulas import for_mathml

    for written, drawn in (
        (r"\frac12 x", r"\frac{1}{2} x"),
        (r"\tfrac12(a - b)", r"\tfrac{1}{2}(a - b)"),
        (r"\dfrac 12", r"\dfrac{1}{2}"),
        (r"\frac1n + \tfrac\lambda2", r"\frac1n + \tfrac\lambda2"),
        (r"\frac{12}{5}", r"\frac{12}{5}"),
        (r"\bigl(X^\top", r"(X^{\mathrm{T}}"),
    ):
        assert for_mathml(written) == drawn


def archives(folder, names, urls=("Documentation", "Source", "Changelog"), description=""):
    metadata = "Name: tagwise\n" + "".join(f"Project-URL: {name}, https://example.org\n" for name in urls) + "\n"
    metadata += description
    with zipfile.ZipFile(folder / "a.whl", "w") as wheel:
        wheel.writestr("tagwise-1.dist-info/METADATA", metadata)
        for name in names:
            wheel.writestr(name, "")
    there = ["README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "tests/conftest.py", "docs/conf.py"]
    with tarfile.open(folder / "a.tar.gz", "w:gz") as sdist:
        for name in [*there, *(f"src/{name}" for name in names)]:
            sdist.addfile(tarfile.TarInfo(f"tagwise-1/{name}"), io.BytesIO())
    return script("check_package").faults(folder / "a.whl", folder / "a.tar.gz")


SOUND = ["tagwise/__init__.py", "tagwise/py.typed"]


def test_what_does_not_belong_into_the_package_is_found(tmp_path):
    assert archives(tmp_path, SOUND) == []
    for names, fault in (
        (["tagwise/__init__.py"], "py.typed is missing"),
        ([*SOUND, "tests/test_x.py"], "is not part of the package"),
        ([*SOUND, "tagwise/helpers/reference_kernels.py"], "oracles"),
        ([*SOUND, "tagwise/reproduction/runner.py"], "reproduction stay out"),
        ([*SOUND, "tagwise/kernels/x.nbi"], "does not belong into a wheel"),
    ):
        assert any(fault in line for line in archives(tmp_path, names))


def test_links_that_lead_nowhere_on_an_index_are_found(tmp_path):
    sound = "[a](https://example.org/a.md), [b](#b), `[c](d.md)`\n```python\nrow[0](x)\n```\n"
    assert archives(tmp_path, SOUND, description=sound) == []
    found = archives(tmp_path, SOUND, description=sound + "[a](docs/a.md) ![p](docs/p.png)")
    assert found == [f"docs/{name} in the long description leads nowhere on an index" for name in ("a.md", "p.png")]


def test_the_readme_of_the_package_leads_to_the_repository(monkeypatch):
    # Only those who build packages have hatchling.
    stub = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", stub)
    absolute = script("long_description").absolute
    text = "[`a`](docs/a.md#x) ![p](docs/p.png) [s](https://example.org) [h](#h)"
    assert absolute(text, "https://host/us") == (
        "[`a`](https://host/us/blob/main/docs/a.md#x) ![p](https://host/us/raw/main/docs/p.png) "
        "[s](https://example.org) [h](#h)"
    )
    found = absolute((ROOT / "README.md").read_text(encoding="utf-8"), "https://host/us")
    check = script("check_package")
    assert not check.RELATIVE.findall(check._without_code(found))
