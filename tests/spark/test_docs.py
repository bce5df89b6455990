"""The documented options are the code's."""

from __future__ import annotations

from support.spark_docs import DOCUMENT, updated


def test_the_option_tables_are_up_to_date() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert updated(text) == text
