"""Delta on Spark as it is, which commits on S3 without a condition, beside this package.

Of ``make delta-spark``. A server before the store lets a job of this package commit in the moment
before an entry of Spark's reaches the store.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from conftest import Behind, Bucket

from support.delta_values import days
from support.engine_process import EngineError, EngineProcess
from support.faulty_server import Received, Reply, s3_error
from zero_rename.committer.upkeep.verify import FindingKind
from zero_rename.tables import DeltaTable, RepairOutcome

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.environ.get("DELTA_SPARK"), reason="of make delta-spark"),
]
_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")


def write(url: str, delay: int) -> None:
    with DeltaTable(url).job(days(("1", delay)).schema) as job:
        job.write(days(("1", delay)))


def delays(url: str) -> list[int]:
    return sorted(DeltaTable(url).scan().to_arrow()["delay"].to_pylist())


def is_unconditional_entry(got: Received) -> bool:
    """Tell whether a request is a PUT of an entry that would write over another's."""
    entry = _ENTRY.search(urlsplit(got.path).path)
    return got.method == "PUT" and entry is not None and "if-none-match" not in got.headers


@pytest.fixture
def url(s3_bucket: Bucket) -> str:
    url = f"s3://{s3_bucket.name}/flights"
    write(url, 5)
    return url


@pytest.fixture
def append(
    url: str, s3_bucket: Bucket, behind: Behind, delta_spark: EngineProcess
) -> Callable[[Callable[[], Reply | None]], None]:
    """Lets Spark append a row; something happens before its entry reaches the store, or is
    answered in the store's place."""

    def append(happens: Callable[[], Reply | None]) -> None:
        waiting = [happens]

        def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
            if waiting and is_unconditional_entry(got):
                instead = waiting.pop()()
                if instead is not None:
                    return instead
            return pass_on()

        endpoint = behind(answer).endpoint
        name = f"fs.s3a.bucket.{s3_bucket.name}.endpoint"
        delta_spark.ask(do="setting", name=name, value=endpoint)
        delta_spark.ask(
            do="write",
            folder=url.replace("s3:", "s3a:"),
            rows=[["1", 7]],
            columns="day string, delay bigint",
            mode="append",
            options={},
        )
        assert not waiting, "Spark has written its entry with a condition"

    return append


def test_an_entry_that_spark_writes_over_is_told_and_committed_again_by_repair(
    url: str, append: Callable[[Callable[[], Reply | None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    append(lambda: write(url, 6))
    assert delays(url) == [5, 7]  # Spark was told that all is well, and so was the job before.
    [found] = DeltaTable(url).verify()
    assert found.kind is FindingKind.DAMAGED
    assert "version 1 is not the entry that was committed" in found.detail
    assert "entry written over" in {it.what for it in DeltaTable(url).doctor()}
    with caplog.at_level(logging.WARNING):
        write(url, 8)
    assert "the entries of versions 1 of its log are not those" in caplog.text
    assert delays(url) == [5, 7, 8]
    (repaired,) = DeltaTable(url).repair(apply=True)
    assert (repaired.version, repaired.outcome) == (1, RepairOutcome.COMMITTED)
    assert "Spark" in repaired.by
    assert delays(url) == [5, 6, 7, 8]
    assert DeltaTable(url).verify() == []


def test_a_store_that_refuses_entries_without_a_condition_stops_spark_alone(
    url: str, append: Callable[[Callable[[], Reply | None]], None]
) -> None:
    with pytest.raises(EngineError, match="AccessDenied"):
        append(lambda: s3_error(403, "AccessDenied"))
    write(url, 8)
    assert delays(url) == [5, 8]
    assert DeltaTable(url).verify() == []


def test_spark_reads_and_deletes_from_files_in_a_data_root(
    s3_bucket: Bucket, delta_spark: EngineProcess
) -> None:
    url = f"s3://{s3_bucket.name}/fast"
    table = DeltaTable(url)
    root = f"s3://{s3_bucket.name}/scratch"
    with table.job(days(("1", 5)).schema, partition_by=["day"], data_root=root) as job:
        job.write(days(("1", 5), ("1", 6), ("2", 7)))
    place = f"delta.`s3a://{s3_bucket.name}/fast`"
    read = f"select delay from {place} order by delay"
    assert delta_spark.ask(do="sql", statement=read) == [["5"], ["6"], ["7"]]
    delta_spark.ask(do="sql", statement=f"delete from {place} where delay = 6")
    assert delays(url) == [5, 7]
    table.checkpoint(apply=True)
    assert table.not_durable() == []
    assert delta_spark.ask(do="sql", statement=read) == [["5"], ["7"]]
    assert table.verify() == []
