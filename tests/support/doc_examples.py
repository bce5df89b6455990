"""Python blocks of the documentation that tests run.

A block is marked by a comment of its own line before it, which readers do not see::

    <!-- example: load -->
    ```python
"""

from __future__ import annotations

import re
from pathlib import Path

_EXAMPLE = re.compile(r"<!-- example: ([\w-]+) -->\n```python\n(.*?)^```$", re.S | re.M)


def examples(document: Path) -> dict[str, str]:
    """The marked blocks of a document by their names."""
    text = document.read_text("utf-8")
    found = dict(_EXAMPLE.findall(text))
    assert len(found) == text.count("<!-- example: "), f"{document.name}: a mark without a block"
    return found
