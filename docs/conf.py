"""The site's settings for Sphinx: ``make docs`` builds it from these pages into ``build/site``."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

# Of millions of nodes that live to the end: a sixth of the build's time.
gc.set_threshold(200_000, 50, 100)
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Airflow writes its configuration wherever it is imported, and that is nobody's here.
os.environ.setdefault("AIRFLOW_HOME", str(HERE.parent / "build" / "airflow"))

from sphinx.ext.autodoc.mock import mock  # noqa: E402

import zero_rename.operators.spark_submit  # noqa: E402
from zero_rename import __version__  # noqa: E402

# Their providers are not in the environment of the checkout (tools/environments.py).
_LACKING = ("kubernetes", "kubernetes_asyncio")
with mock(["airflow.providers.cncf", "airflow.providers.databricks", *_LACKING]):
    import zero_rename.operators.databricks
    import zero_rename.operators.spark_kubernetes  # noqa: F401

project = "zero_rename"
author = "the authors of zero_rename"
project_copyright = "the authors of zero_rename; Apache-2.0"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "extensions"]
exclude_patterns = ["extensions"]
language = "en"
nitpicky = True
# What others document: no inventory of theirs is fetched, so that the build needs no network.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!\.|(dagster_)?zero_rename\b).*"),
    # Types of members that only the package itself uses.
    (r"py:class", r"zero_rename\.committer\.(store|format\.parquet\.file_writer)\..*"),
    (r"py:class", r"zero_rename\.committer\.format\.records\.(marks|head)\..*"),
    (r"py:class", r"dagster_zero_rename\.registration\.Registration"),
    (
        r"py:class",
        r"zero_rename\..*\.(Beats|Decided|Destination|JobLiveness|JobOutcome|Kind|NeededBy|ReadableTable|T|TableAccess|Touch|Whose)",
    ),
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = {"mermaid"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"zero_rename {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = False
