"""Conflicts of runs, by Dagster: the check of an asset, the job that settles them, maintenance."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dagster_zero_rename import (
    ZeroRenameResource,
    conflicts_check,
    maintenance_job,
    resolve_conflicts_job,
)
from zero_rename import Table
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.committer.format.records.run_conflict import SettledBy
from zero_rename.committer.store.requests import Put
from zero_rename.maintenance.conflicts import find_here
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import COMMITTED, TryRecord, run_uuid
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.int32())])


@dg.asset
def late() -> None:
    """An asset whose table is loaded by hand."""


#: Keeps the run that came late.
VISIBLE = {"keep": ["run 1"]}


@pytest.fixture
def table(zero: ZeroRenameResource) -> Table:
    """A day of a newer run, and of a late one that has replaced it."""
    table = zero.table("late")
    load(table, 2, 1)
    return table


def load(table: Table, *ranks: int) -> list[str]:
    """Replace the day by runs of these ranks; returns their jobs."""
    done = []
    for rank in ranks:
        given: dict[str, Any] = {"mode": "replace", "run_rank": rank}
        run = {"owner": Owner("daily", f"run {rank}", "late"), "idempotency_key": f"run {rank}"}
        with table.job(SCHEMA, partition_by=["day"], **given, **run) as job:
            job.write(pa.table({"number": [rank], "day": [1]}, SCHEMA))
        done.append(str(job.job))
    return done


def numbers(table: Table) -> list[int]:
    return table.to_arrow()["number"].to_pylist()


def checked(zero: ZeroRenameResource) -> Any:
    check = conflicts_check(late)
    result = dg.materialize(
        [late, check],
        resources={"zero_rename": zero},
        selection=dg.AssetSelection.checks(check),
        raise_on_error=False,
    )
    (found,) = result.get_asset_check_evaluations()
    return found


def run(job: dg.JobDefinition, zero: ZeroRenameResource) -> Any:
    return job.execute_in_process(resources={"zero_rename": zero}, raise_on_error=False)


def metadata_of(result: Any) -> Any:
    (made,) = [event for event in result.all_node_events if event.is_successful_output]
    return made.event_specific_data.metadata


def test_check_fails_until_the_conflict_is_settled(zero: ZeroRenameResource, table: Table) -> None:
    for _ in range(2):
        found = checked(zero)
        assert not found.passed
        assert "1 conflict is not settled" in found.description
        assert "the older came later" in found.metadata["report"].value
    table.resolve(VISIBLE, apply=True)
    assert checked(zero).passed


def test_check_and_job_fail_while_a_record_cannot_be_read(
    zero: ZeroRenameResource, table: Table
) -> None:
    table.conflicts()
    table.resolve(VISIBLE, apply=True)
    table.conflicts()
    (last,) = load(table, 3)
    table.run(Put(table.root.decision_key(last), b"{"))
    for _ in range(2):
        found = checked(zero)
        assert (found.passed, found.metadata["unresolved"].value) == (False, 0)
        assert "1 record of runs could not be read" in found.description
    assert not run(resolve_conflicts_job(policy="newest_run", apply=True), zero).success


def test_job_keeps_the_run_whose_rows_are_visible(zero: ZeroRenameResource, table: Table) -> None:
    dry = run(resolve_conflicts_job(policy=VISIBLE), zero)
    assert (dry.success, metadata_of(dry)["would_settle"].value) == (True, 1)
    assert "settled" not in metadata_of(dry)
    result = run(resolve_conflicts_job(policy=VISIBLE, apply=True), zero)
    assert (result.success, numbers(table)) == (True, [1])
    assert metadata_of(result)["settled"].value == 1
    (settled,) = table.overview().conflicts
    assert settled.settlement is not None
    assert settled.settlement.by.dag_id == "zero_rename_conflicts"


def test_job_passes_over_a_table_whose_writers_do_not_notice_each_other(
    zero: ZeroRenameResource, table: Table
) -> None:
    alone = zero.table("alone")
    with alone.job(SCHEMA, partition_by=["day"], coordination="none") as job:
        job.write(pa.table({"number": [1], "day": [1]}, SCHEMA))
    result = run(resolve_conflicts_job(policy=VISIBLE, apply=True), zero)
    assert result.success
    (settled,) = table.overview().conflicts
    assert settled.is_settled


def test_job_settles_other_tables_where_one_is_damaged(
    zero: ZeroRenameResource, table: Table
) -> None:
    damaged = zero.table("damaged")
    load(damaged, 1)
    damaged.run(Put(damaged.root.table_key, b"{"))
    tables = ["damaged", "late"]
    result = run(resolve_conflicts_job(policy=VISIBLE, tables=tables, apply=True), zero)
    assert not result.success
    (settled,) = table.overview().conflicts
    assert settled.is_settled


def test_job_fails_where_the_policy_names_none(zero: ZeroRenameResource, table: Table) -> None:
    given: dict[str, Any] = {"policy": {"prefer": ["other"]}, "tables": ["late"]}
    result = run(resolve_conflicts_job(apply=True, **given), zero)
    assert (result.success, numbers(table)) == (False, [1])


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Invalid policy 'oldest'"):
        resolve_conflicts_job(policy="oldest")
    with pytest.raises(InvalidInputError, match="Invalid policy 'oldest'"):
        maintenance_job(conflicts="oldest")


def test_maintenance_fails_or_settles_as_it_is_told(zero: ZeroRenameResource, table: Table) -> None:
    assert run(maintenance_job(apply=True, conflicts="report"), zero).success
    assert not run(maintenance_job(apply=True, conflicts="fail"), zero).success
    assert numbers(table) == [1]
    assert not run(maintenance_job(apply=True, conflicts="newest_run"), zero).success
    assert run(maintenance_job(apply=True, conflicts=VISIBLE), zero).success
    assert numbers(table) == [1]
    assert run(maintenance_job(apply=True, conflicts="fail"), zero).success


@pytest.fixture
def by_hadoop(zero: ZeroRenameResource) -> Table:
    """A day that two runs of different tasks have loaded by one of Hadoop's committers."""
    table = zero.table("late")
    for second, dag in enumerate(("hourly", "daily")):
        owner = Owner(dag, "r", "load")
        record = TryRecord(run_uuid(), f"{dag}/r", owner, "magic", "replace", ("day=1",))
        opened = table.run(ledger.open_try(table.root, record))
        report: dict[str, Any] = {"decided_at": opened.opened_at + second, "files": 1}
        report["partitions"] = [{"partition": "day=1", "files": 1, "rows": 1, "bytes": 1}]
        table.run(ledger.close_try(table.root, opened, state=COMMITTED, report=report))
    return table


def test_check_maintenance_and_job_see_what_hadoops_committers_loaded(
    zero: ZeroRenameResource, by_hadoop: Table
) -> None:
    assert "1 conflict is not settled" in checked(zero).description
    assert not run(maintenance_job(apply=True, conflicts="fail"), zero).success
    # Rows that a committer of Hadoop's has replaced are gone: the other run has to load again.
    gone = resolve_conflicts_job(policy={"prefer": ["hourly"]}, apply=True)
    assert not run(gone, zero).success
    assert run(resolve_conflicts_job(policy={"prefer": ["daily"]}, apply=True), zero).success
    assert checked(zero).passed
    assert run(maintenance_job(apply=True, conflicts="fail"), zero).success
    (found,) = find_here(by_hadoop, 3600.0, remember=False)
    (conflict,) = found.conflicts
    assert conflict.settlement is not None
    assert (conflict.is_settled, conflict.settlement.how) == (True, SettledBy.KEPT)


def test_job_and_check_serve_a_delta_table(zero: ZeroRenameResource) -> None:
    table = DeltaTable(zero.table("late").root.url)
    for rank in (2, 1):
        run_of = {"owner": Owner("daily", f"run {rank}", "late"), "idempotency_key": f"run {rank}"}
        given: dict[str, Any] = {"mode": "replace", "run_rank": rank, **run_of}
        with table.job(SCHEMA, partition_by=["day"], **given) as job:
            job.write(pa.table({"number": [rank], "day": [1]}, SCHEMA))
    assert not checked(zero).passed
    done = run(resolve_conflicts_job(policy="newest_run", apply=True), zero)
    assert (done.success, metadata_of(done)["settled"].value) == (True, 1)
    assert table.scan().to_arrow()["number"].to_pylist() == [2]
    assert checked(zero).passed
