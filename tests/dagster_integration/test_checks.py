"""Checks of what was materialised, by what the table has on record."""

import datetime as dt
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dagster_zero_rename.watch.freshness as freshness
from dagster_zero_rename import ZeroRenameResource, freshness_check, manifest_check
from support.dagster_loads import SCHEMA, Load, days, flights
from zero_rename import Table
from zero_rename.committer.commit import commit
from zero_rename.committer.commit.state.decide import decide

pytestmark = pytest.mark.memory_s3

# The package has a function of this name.
manifest = import_module("dagster_zero_rename.watch.manifest_check")
RUN = days("2013-01-01", "2013-01-02")
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def loaded(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> dg.DagsterInstance:
    """Two days of flights, materialised."""
    load.numbers = {"2013-01-01": [1, 2], "2013-01-02": [3]}
    dg.materialize([flights], resources={"zero": zero}, instance=instance, tags=RUN)
    return instance


def checked(
    check: dg.AssetChecksDefinition, zero: ZeroRenameResource, *assets: Any, **given: Any
) -> list[Any]:
    """The evaluations of a check, of its own run or that of the asset."""
    resources = {"zero_rename": zero, "zero": zero}
    given.setdefault("selection", dg.AssetSelection.checks(check))
    given |= {"resources": resources, "raise_on_error": False}
    result = dg.materialize([flights, check, *assets], **given)
    return [
        event.event_specific_data
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ]


def report(evaluation: Any) -> list[dict[str, Any]]:
    return [record.data for record in evaluation.metadata["report"].records]


def test_what_was_materialised_is_there(
    loaded: dg.DagsterInstance, zero: ZeroRenameResource
) -> None:
    [found] = checked(manifest_check(flights), zero, instance=loaded, tags=RUN)
    assert found.passed
    assert [(it["partition"], it["rows"], it["version"]) for it in report(found)] == [
        ("day=2013-01-01", 2, 1),
        ("day=2013-01-02", 1, 1),
    ]
    assert {it["job"] for it in report(found)} == {
        zero.table("flights").partition_job("day=2013-01-01")
    }


def test_partition_with_too_few_files_fails(
    loaded: dg.DagsterInstance, zero: ZeroRenameResource
) -> None:
    [found] = checked(manifest_check(flights, min_files=2), zero, instance=loaded, tags=RUN)
    assert not found.passed
    assert found.description.startswith("day=2013-01-01: 1 file, at least 2 are wanted")


def test_rows_that_nobody_counted_are_named(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, s3_bucket: Any
) -> None:
    """As files of another program, which were there before the table."""
    load.mode, load.numbers = "append", {"2013-01-01": [1]}
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"number": [7, 8]}), body)
    key = f"{zero.table('flights').root.prefix}/day=2013-01-01/before.parquet"
    s3_bucket.client.put_object(Bucket=s3_bucket.name, Key=key, Body=body.getvalue().to_pybytes())
    run = days("2013-01-01")
    dg.materialize([flights], resources={"zero": zero}, instance=instance, tags=run)
    [enough] = checked(manifest_check(flights, min_rows=1), zero, instance=instance, tags=run)
    assert (enough.passed, [it["rows"] for it in report(enough)]) == (True, [None])
    [few] = checked(manifest_check(flights, min_rows=2), zero, instance=instance, tags=run)
    assert few.description == (
        "day=2013-01-01: 1 row besides those of files that nobody counted, at least 2 are wanted."
    )


def test_a_run_of_one_partition_is_that_partitions_result(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    load.numbers = {"2013-01-01": [1, 2], "2013-01-02": [3]}
    check = manifest_check(flights, min_rows=2)
    both: dict[str, Any] = {"selection": None, "instance": instance}
    [first] = checked(check, zero, partition_key="2013-01-01", **both)
    [second] = checked(check, zero, partition_key="2013-01-02", **both)
    assert (first.passed, first.partition) == (True, "2013-01-01")
    assert (second.passed, second.partition) == (False, "2013-01-02")
    assert second.description == "day=2013-01-02: 1 row, at least 2 are wanted."


def test_a_lost_file_is_named(
    loaded: dg.DagsterInstance, zero: ZeroRenameResource, s3_bucket: Any
) -> None:
    [file] = zero.table("flights").files("day=2013-01-02")
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=file.key)
    [found] = checked(manifest_check(flights), zero, instance=loaded, tags=RUN)
    assert not found.passed
    assert found.description == f"day=2013-01-02: 1 file missing or changed: {file.key}."
    assert [it["wrong"] != "" for it in report(found)] == [True, False]


def test_what_a_replace_removes_meanwhile_is_not_lost(
    loaded: dg.DagsterInstance, zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = manifest.stored_sizes

    def replaced_before(table: Table, partitions: Sequence[str]) -> dict[str, int]:
        with zero.table("flights").job(mode="overwrite") as job:
            job.write(pa.table({"day": [dt.date(2013, 1, 2)], "number": [9]}, SCHEMA))
        return sizes(table, partitions)

    monkeypatch.setattr(manifest, "stored_sizes", replaced_before)
    [found] = checked(manifest_check(flights), zero, instance=loaded, tags=RUN)
    assert (found.passed, found.description) == (True, None)


def test_a_partition_that_dagster_has_no_commit_of(
    loaded: dg.DagsterInstance, zero: ZeroRenameResource
) -> None:
    [found] = checked(manifest_check(flights), zero, instance=loaded, tags=days("2013-01-03"))
    assert (found.passed, found.description) == (
        False,
        "day=2013-01-03: no materialisation names its job.",
    )


def test_what_depends_on_the_asset_waits_for_a_blocking_check(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    ran = []

    @dg.asset(deps=[flights], partitions_def=flights.partitions_def)
    def after() -> None:
        ran.append(True)

    check = manifest_check(flights, min_rows=1, blocking=True)
    load.numbers = {"2013-01-02": [1]}
    for day, passes in (("2013-01-01", False), ("2013-01-02", True)):
        ran.clear()
        result = dg.materialize(
            [flights, check, after],
            resources={"zero_rename": zero, "zero": zero},
            instance=instance,
            partition_key=day,
            raise_on_error=False,
        )
        assert (result.success, bool(ran)) == (passes, passes)


def test_a_commit_by_anybody_makes_a_table_fresh(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = freshness_check(flights, within=dt.timedelta(hours=2))
    table = zero.table("flights")
    with table.job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"day": [dt.date(2013, 1, 1)], "number": [1]}, SCHEMA))
    [found] = checked(check, zero, instance=instance)
    assert found.passed
    last, _ = freshness.last_commit(table)
    assert last is not None
    assert last.decided_at is not None
    assert job.committed is not None
    assert last.job == job.committed.job
    # The store dates what it answers, and what it keeps, by whole seconds.
    assert abs(last.decided_at - job.committed.decided_at) <= 1
    later = last.decided_at + 7201
    monkeypatch.setattr(freshness, "last_commit", lambda table: (last, later))
    [stale] = checked(check, zero, instance=instance)
    assert (stale.passed, stale.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert stale.description == "The last commit is 2:00:01 old."


def test_blocking_freshness_check_that_fails_keeps_what_depends_on_its_asset_from_running(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    load.numbers, ran = {"2013-01-01": [1]}, []

    @dg.asset(deps=[flights])
    def carriers() -> None:
        ran.append(1)

    for severity, runs in ((None, 0), (dg.AssetCheckSeverity.WARN, 1)):
        check = freshness_check(
            flights, within=HOUR, blocking=True, severity=severity, table="empty"
        )
        both: dict[str, Any] = {"selection": None, "instance": instance}
        [found] = checked(check, zero, carriers, partition_key="2013-01-01", **both)
        assert (found.passed, len(ran)) == (False, runs)


def test_compaction_makes_no_table_fresh(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "_NEWEST", 2)
    table, jobs = zero.table("flights"), []
    for day in (1, 2, 3, 4, 4, 3, 2):
        with table.job(SCHEMA, partition_by=["day"]) as job:
            job.write(pa.table({"day": [dt.date(2013, 1, day)], "number": [1]}, SCHEMA))
        assert job.committed is not None
        jobs.append(job.committed.job)
    done = table.compact(apply=True)
    assert [str(it.action) for it in done] == ["compacted"] * 3
    last, _ = freshness.last_commit(table)
    assert last is not None
    assert last.job in jobs


def test_table_whose_first_job_claims_its_heads_is_not_fresh_yet(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, found = freshness_check(flights, within=dt.timedelta(hours=2)), []

    def looked_at_before(*given: Any) -> Any:
        found.append(checked(check, zero, instance=instance))
        return (yield from decide(*given))

    monkeypatch.setattr(commit, "decide", looked_at_before)
    with zero.table("flights").job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"day": [dt.date(2013, 1, 1)], "number": [1]}, SCHEMA))
    [[during]], [after] = found, checked(check, zero, instance=instance)
    assert (during.passed, after.passed) == (False, True)
    assert during.description.startswith("Nothing has been committed to s3://")


def test_an_empty_place_is_not_fresh(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    check = freshness_check(flights, within=dt.timedelta(days=999))
    [found] = checked(check, zero, instance=instance)
    assert not found.passed
