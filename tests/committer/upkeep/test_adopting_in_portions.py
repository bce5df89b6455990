"""An adoption of more partitions than one job takes, of which one portion fails at first."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from zero_rename import Table
from zero_rename.committer import AdoptAction, SnapshotGoneError
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep import adopt

pytestmark = [pytest.mark.memory_s3]


def test_partitions_adopted_before_another_portion_failed_are_reported_as_adopted(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"s3://{s3_bucket.name}/flights")
    body = BytesIO()
    pq.write_table(pa.table({"delay": [1]}), body)
    for day in (1, 2):
        table.run(Put(f"flights/day={day}/theirs.parquet", body.getvalue()))
    taken: list[Sequence[str]] = []
    take = adopt._take

    def fails_once(context: Any, spec: Any, partitions: Sequence[str]) -> Any:
        taken.append(partitions)
        if len(taken) == 2:
            raise SnapshotGoneError("A file is gone.")
        return (yield from take(context, spec, partitions))

    monkeypatch.setattr(adopt, "_AT_ONCE", 1)
    monkeypatch.setattr(adopt, "_take", fails_once)
    report = table.adopt(apply=True)
    assert taken == [["day=1"], ["day=2"], ["day=2"]]
    assert [it.action for it in report.entries] == [AdoptAction.ADOPTED] * 2
