"""Diagrams: a fence ``mermaid``, as GitHub draws it, becomes an SVG file when the site is built.

Mermaid itself draws it, in an embedded engine: no browser, no network, no script in the page, and
a diagram with a mistake fails the build. Drawn ones are kept in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from html import escape
from importlib.metadata import version
from pathlib import Path

import mermaidx
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from zero_rename.spark.startup.launch import cache_dir

_THEME = "neutral"
_FOLDER = "_static/diagrams"


class MermaidDiagram(SphinxDirective):
    """The directive ``mermaid``."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        source = "\n".join(self.content)
        try:
            picture = drawn(source)
        except RuntimeError as error:
            raise self.error(f"A diagram that Mermaid cannot draw: {error}") from error
        target = Path(self.env.app.outdir, _FOLDER, picture.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.read_bytes())
        up = "../" * self.env.docname.count("/")
        image = f'<img src="{up}{_FOLDER}/{picture.name}" alt="{escape(source)}">'
        return [nodes.raw("", f'<p class="diagram">{image}</p>', format="html")]


def drawn(source: str) -> Path:
    """The SVG file of a diagram, in the user's cache folder.

    :raises RuntimeError: Mermaid does not understand it.
    """
    told = "\n".join((version("mermaidx"), _THEME, source))
    path = cache_dir() / "diagrams" / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.svg"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = mermaidx.render(source, theme=_THEME).svg()
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as made:
            made.write(picture)
        os.replace(made.name, path)
    return path
