"""Writers killed with SIGKILL: the short form. ``make torture`` is the long one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from torture.harness import Summary, Torture
from torture.phases import Phase
from torture.proxy import Proxy
from torture.servers import Store

SEED = 7
ALL = tuple(Phase)[1:]


def torture(store: Store, proxy: Proxy, bucket: str, aims: tuple[Phase, ...]) -> Torture:
    return Torture(store, proxy, bucket, SEED, print, aims=aims)


def assert_good(summary: Summary, kills: int) -> None:
    assert summary.good, str(summary)
    assert summary.kills.total() == kills


def test_plain_jobs(atomic_store: Store) -> None:
    """Conformance: no row of a committed job is lost or doubled, none of another is visible,
    and recovery by another process leaves nothing behind."""
    bucket = f"kills-{uuid.uuid4().hex}"
    atomic_store.client().create_bucket(Bucket=bucket)
    with Proxy(atomic_store.endpoint, latency=0.01) as proxy:
        summary = torture(atomic_store, proxy, bucket, ALL).run(len(ALL), spark=lambda _: False)
    assert_good(summary, len(ALL))
    assert {fate for _, fate in summary.fates} >= {"committed", "aborted"}


@pytest.mark.spark
@pytest.mark.slow
def test_a_spark_driver(store: Store, proxy: Proxy, s3_bucket: Any) -> None:
    """The same with the process group of a Spark driver, JVM and workers included, while its tasks
    write. From the decision on a driver is as a plain job."""
    summary = torture(store, proxy, s3_bucket.name, (Phase.WRITING,)).run(1, spark=lambda _: True)
    assert_good(summary, 1)
    assert [fate for _, fate in summary.fates] == ["aborted"]
