"""The documented settings, attributes and checks are the code's."""

from __future__ import annotations

from support.s3a_docs import DOCUMENT, updated
from zero_rename.s3a.checks.run import CHECKS
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings


def test_the_tables_are_up_to_date() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert updated(text) == text


def test_nothing_is_left_out() -> None:
    text = DOCUMENT.read_text("utf-8")
    for check in CHECKS:
        assert f"**`{check.id}`**" in text
    for committer in Committer:
        for key in S3ASettings(committer).spark_conf():
            assert f"`{key}`" in text
