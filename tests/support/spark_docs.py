"""``docs/spark.md``: its option tables are those of the code.

Run ``python tests/support/spark_docs.py`` after changing an option.
"""

from __future__ import annotations

from pathlib import Path

from zero_rename.spark.option_table import markdown
from zero_rename.spark.options import ReaderOptions, WriterOptions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
_WRITING, _READING = "## Options for writing\n", "## Options for reading\n"
_AFTER = "## What Spark does not let"


def updated(text: str) -> str:
    """The document with the tables that the code has now."""
    head = text[: text.index(_WRITING)]
    tail = text[text.index(_AFTER) :]
    tables = f"{_WRITING}{markdown(WriterOptions)}\n\n{_READING}{markdown(ReaderOptions)}\n\n"
    return head + tables + tail


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text("utf-8")), "utf-8")
