"""The tutorials: their code runs as it stands, and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.doc_examples import examples
from zero_rename import JobSpec, Table

PAGES = Path(__file__).resolve().parents[2] / "docs"
ROWS = pa.table({"day": ["1"]})
PYTHON = PAGES / "tutorials" / "python.md"


def test_plain_python(s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.split(r"^```python\n", PYTHON.read_text("utf-8"), flags=re.M)[1:]
    for block in blocks:
        code, _, prose = block.partition("\n```\n")
        exec(code.replace("s3://bucket/", f"s3://{s3_bucket.name}/"), names)
        printed = capsys.readouterr().out.splitlines()
        assert printed
        assert [line for line in printed if f"`{line}`" not in prose] == []


def test_recovery_by_hand(s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"s3://{s3_bucket.name}/flights"
    table = Table(url)
    with table.job(ROWS.schema) as job:
        job.write(ROWS)
    dead = table.open_job(JobSpec(ROWS.schema))
    [code] = examples(PAGES / "guides" / "recover.md").values()
    exec(code.replace("s3://bucket/flights", url), {})
    assert dead.job in capsys.readouterr().out
