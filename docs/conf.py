"""The documentation site: `make docs` builds it, offline, with every warning an error."""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers.special import TextLexer

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import formulas
import generated_pages

from tagwise import __version__

project = "tagwise"
author = "the tagwise authors"
project_copyright = "the tagwise authors, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["build", "examples", "**sg_execution_times.rst"]
templates_path = ["_templates"]
language = "en"
pygments_style = "friendly"

# Addresses of a server that the reader starts.
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost)(:\d+)?(/|$)"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autosummary_generate = [str(HERE / name) for name in generated_pages.api_pages()]
autosummary_ignore_module_all = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False


sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("tagwise",),
    "download_all_examples": False,
    "show_memory": False,
    "capture_repr": (),
    "remove_config_comments": True,
    # How long an example took depends on the machine, and on what else ran there: pages do not say it.
    "min_reported_time": 3600,
    "show_signature": False,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
    "copyfile_regex": "",
    "reset_modules": ("matplotlib", "gallery_style.house_style"),
    "image_scrapers": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = "tagwise"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "tagwise", "image_light": "_static/icon.svg", "image_dark": "_static/icon.svg"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "changelog": []}


def _drawn(formula, as_block):
    """MathML in which the bars of norms are as high as letters."""
    return re.sub("<mo[^>]*>‖</mo>", '<mo stretchy="false">‖</mo>', tex2mathml(formula, as_block=as_block))


def _math(self, node, tag, as_block):
    """Formulas are MathML, which every browser draws by itself: no script, no font, no network."""
    drawn = _drawn(formulas.for_mathml(node.astext()), as_block)
    self.body.append(f'<{tag} class="formula">{drawn}</{tag}>')
    raise nodes.SkipNode


OUTSIDE = re.compile(r"\]\(((?:\.\./)+)((?:benchmarks/results|reproduction)/[\w/.-]+\.md|[A-Z]+\.md)(#[\w-]+)?\)")


def _lead_to_the_site(app, docname, source):
    """Links that leave docs/ for a page of the repository lead to its page of the site."""

    def page(match):
        path = ROOT / match[2]
        found = generated_pages.COPIES.get(path.relative_to(ROOT).as_posix())
        return f"](/{found}{match[3] or ''})" if found else match[0]

    source[0] = OUTSIDE.sub(page, source[0])


# What layers of tagwise ask of each other: public to them, and no promise to programs.
INTERNAL = {
    "fit_counts",
    "from_arrays",
    "from_parts",
    "scored_rows",
    "to_arrays",
    "to_parts",
    "to_values",
    "truth_and_decisions",
    "validation_rows",
    "truth_and_ranking",
    "warn_of_lost_words",
}


def _skip_others(app, what, name, member, skip, options):
    """Methods that scikit-learn adds to every estimator are described there; internal ones are not described."""
    if name in INTERNAL:
        return True
    module = getattr(getattr(member, "fget", member), "__module__", None) or ""
    return True if module.startswith("sklearn") else None


def _page(match):
    return f":doc:`/{match[1]}`" if (HERE / f"{match[1]}.md").exists() else match[0]


def _as_meant(app, what, name, obj, options, lines):
    """Names of pages lead to them; "k. More than …" is a sentence about k, not the item k of a list."""
    lines[:] = [re.sub(r"`{0,2}docs/([\w-]+)\.md`{0,2}", _page, line) for line in lines]
    lines[:] = [re.sub(r"^(\s*)([A-Za-z])\.(?=\s|$)", r"\1\\\2.", line) for line in lines]


def setup(app):
    """Write the generated pages before Sphinx looks for pages, and draw formulas."""
    generated_pages.write(HERE)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _math(self, node, "span", False), None),
        block_renderers=(lambda self, node: _math(self, node, "div", True), None),
    )
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", _lead_to_the_site)
    app.connect("autodoc-skip-member", _skip_others)
    app.connect("autodoc-process-docstring", _as_meant, priority=400)
    return {"parallel_read_safe": True}
