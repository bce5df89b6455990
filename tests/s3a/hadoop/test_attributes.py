"""Table V: the paper's answers for S3A, this project's for its own committer."""

from __future__ import annotations

from pathlib import Path

from zero_rename.s3a.checks.check import ALL
from zero_rename.s3a.hadoop.attributes import ATTRIBUTES, NAMES, TITLES

# The paper's column, in its order.
S3A = (True, False, True, True, False, False, True, False, True)
NATIVE = (True, True, True, True, False, False, True, True, True)


def test_answers_of_the_paper() -> None:
    assert tuple(ATTRIBUTES) == ALL
    for name in ("magic", "directory", "partitioned"):
        assert tuple(ATTRIBUTES[name].rows().values()) == S3A, name
    assert tuple(ATTRIBUTES["zero_rename"].rows().values()) == NATIVE


def test_nine_rows_with_the_papers_words() -> None:
    assert len(NAMES) == 9
    assert tuple(TITLES) == NAMES
    for attributes in ATTRIBUTES.values():
        assert set(attributes.notes) <= set(NAMES)
        assert attributes.source


def test_the_protocol_text_says_the_same_of_the_native_committer() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text("utf-8")
    for title in ("speculative tasks", "recoverable job", "atomic task commit"):
        assert title in text.lower()
