"""The guide to Delta tables: its example runs as it stands."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Bucket

from support.doc_examples import DOCS, blocks

pytestmark = [pytest.mark.memory_s3]


def test_the_example_prints_what_was_committed(
    s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    code, publishing = blocks((DOCS / "guides" / "delta.md").read_text("utf-8"))
    names: dict[str, Any] = {}
    exec(code.replace("s3://bucket/", f"s3://{s3_bucket.name}/"), names)
    version, rows, history, past = capsys.readouterr().out.splitlines()
    assert version == "0 2"
    assert rows == "[{'day': '2013-01-02', 'delay': 8}]"
    assert "(1, 'WRITE', 'zr1-" in history
    assert past == str([{"day": "2013-01-01", "delay": 5}, {"day": "2013-01-02", "delay": 7}])
    exec(publishing, names)
    assert names["audited"].num_rows == 1
    assert names["table"].scan(partitions=["day=2013-01-03"]).count() == 1
