"""Code blocks and commands of the documentation that tests run.

A block of Python may be marked by a comment of its own line before it, which readers do not see::

    <!-- example: load -->
    ```python
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_EXAMPLE = re.compile(r"<!-- example: ([\w-]+) -->\n```python\n(.*?)^```$", re.S | re.M)


def examples(document: Path) -> dict[str, str]:
    """The marked blocks of a document by their names."""
    text = document.read_text("utf-8")
    found = dict(_EXAMPLE.findall(text))
    assert len(found) == text.count("<!-- example: "), f"{document.name}: a mark without a block"
    return found


def blocks(text: str, language: str = "python") -> list[str]:
    """All blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str) -> list[list[str]]:
    """The words of each command ``zero-rename`` that a page shows."""
    shown = re.findall(r"^\$ zero-rename (.*)$", text, re.M)
    return [shlex.split(line, comments=True) for line in shown]
