"""Commits of this package beside those of delta-rs, at once, on a store on which writers may race.

``make delta-spark`` and ``make proof PARTS=engines`` have a thousand each; ``make test`` a few.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from torture.servers import Store

from support.delta_values import days
from support.engine_process import EngineProcess
from support.lake_readers import lake_readers
from zero_rename.tables import DeltaTable

COMMITS = 1000 if os.environ.get("DELTA_SPARK") else 12
OURS = 2


@pytest.fixture
def delta_rs() -> Iterator[EngineProcess]:
    with lake_readers() as process:
        yield process


def _commit(url: str, store: Store, writer: int) -> list[tuple[str, int]]:
    """Append a row at a time; every tenth commit replaces the writer's own partition instead.

    :return: the rows that are to be there.
    """
    table, appended, replaced = DeltaTable(url, store.client()), [], ("", -1)
    for number in range(writer, COMMITS, OURS):
        replaces = number % 10 < OURS
        row = (f"of {writer}" if replaces else "ours", number)
        mode = "overwrite" if replaces else "append"
        with table.job(mode=mode, idempotency_key=f"{writer} {number}") as job:
            job.write(days(row))
        assert job.committed is not None
        if replaces:
            replaced = row
        else:
            appended.append(row)
    return [*appended, replaced]


def test_commits_beside_delta_rs_are_neither_lost_nor_doubled(
    atomic_store: Store, delta_rs: EngineProcess
) -> None:
    bucket = f"beside-{uuid.uuid4().hex}"
    atomic_store.client().create_bucket(Bucket=bucket)
    url = f"s3://{bucket}/flights"
    table = DeltaTable(url, atomic_store.client())
    with table.job(days(("ours", -1)).schema, partition_by=["day"]) as job:
        job.write(days(("first", -1)))
    options = {**atomic_store.environment(), "AWS_ALLOW_HTTP": "true"}
    with ThreadPoolExecutor(OURS + 1) as pool:
        theirs = pool.submit(
            delta_rs.ask, do="appends", folder=url, numbers=list(range(COMMITS)), options=options
        )
        ours = [pool.submit(_commit, url, atomic_store, writer) for writer in range(OURS)]
        expected = [("first", -1), *(row for it in ours for row in it.result())]
        told = theirs.result()
    expected += [("delta-rs", number) for number in told]
    found = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(found) == sorted(expected)
    seen = delta_rs.ask(
        do="read", engine="delta-rs", folder=url, columns=["day", "delay"], where=None,
        options=options,
    )  # fmt: skip
    assert sorted(seen) == sorted([repr(day), repr(delay)] for day, delay in expected)
    history = table.history()
    assert [it.version for it in history] == list(range(len(history) - 1, -1, -1))
    assert len(history) == 1 + COMMITS + len(told)
    assert len({it.job for it in history if it.job}) == 1 + COMMITS
    assert len(told) >= COMMITS // 2
