"""The documented settings and checks are the code's."""

from __future__ import annotations

import re

from docs.extensions.tables import GUIDES, S3A, SERVICES, updated
from zero_rename.s3a.checks import CHECKS
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings


def test_the_tables_are_up_to_date() -> None:
    for page in (S3A, SERVICES, *GUIDES):
        assert updated(page) == page.read_text("utf-8")


def test_nothing_is_left_out() -> None:
    text = S3A.read_text("utf-8")
    documented = re.findall(r"\*\*`([a-z0-9.-]+)`\*\* \((\w+);", text)
    assert documented == [(check.id, check.severity) for check in CHECKS]
    for committer in Committer:
        for key in S3ASettings(committer).spark_conf():
            assert f"`{key}`" in text
