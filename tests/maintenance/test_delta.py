"""Maintenance of Delta tables that are found below a root beside tables of directories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from support.s3a_jobs import a_try
from zero_rename import Table
from zero_rename.cli import catalog
from zero_rename.cli.output import Exit
from zero_rename.committer import InvalidInputError
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import CreateUpload, Delete, Found, Get, Put
from zero_rename.committer.upkeep.purging.purge import PurgeAction
from zero_rename.maintenance.conflicts import ConflictOrder, find_here
from zero_rename.maintenance.destinations import destination_at, destinations_in
from zero_rename.maintenance.purging import PurgeOrder, purge_destination
from zero_rename.maintenance.upkeep import Upkeep, as_markdown, look_after
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.run_conflicts import S3A
from zero_rename.s3a.runs.try_record import COMMITTED, run_uuid
from zero_rename.tables import DeltaTable, after_commit, delta_entry, new_table

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"day": ["1", "2"], "delay": [5, 6]})
ACT = PurgeOrder(apply=True)


def write(table: DeltaTable, **options: Any) -> str:
    with table.job(ROWS.schema, **options) as job:
        job.write(ROWS)
    assert job.job is not None
    return job.job


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    """A Delta table with a commit."""
    found = DeltaTable(f"s3://{s3_bucket.name}/lake/flights")
    write(found, partition_by=["day"])
    return found


@pytest.fixture
def foreign(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
    """A Delta table without what the jobs of this package say of one that they make."""
    found = DeltaTable(f"s3://{s3_bucket.name}/lake/of_others")
    monkeypatch.setattr(delta_entry, "ATOMIC", "another.property")
    write(found, partition_by=["day"])
    return found


def dead_job(table: DeltaTable, with_upload: bool = True) -> str:
    """A job whose process ended with a file written and an upload begun."""
    job = table.job(ROWS.schema, partition_by=["day"])
    job.__enter__()
    key = f"{table.root.prefix}/data/{job.job}/part-0.parquet"
    table.driver.perform(Put(key, b"rows"))
    if with_upload:
        table.driver.perform(CreateUpload(f"{table.root.prefix}/data/{job.job}/part-1.parquet"))
    assert job.job is not None
    return job.job


def below(table: DeltaTable) -> dict[str, Upkeep]:
    """Look after all below the folder of a table."""
    return {it.table: it for it in looked_after(table, replace(ACT, patience=0.0))}


def looked_after(table: DeltaTable, order: PurgeOrder, **options: Any) -> list[Upkeep]:
    root = Table(f"s3://{table.root.bucket}/lake")
    places = root.run(destinations_in(root.root))
    done = [look_after(Table(it.root.url), it, order, **options) for it in places]
    return [it for it in done if not it.is_empty_rest]


def keys(table: DeltaTable, folder: str = "") -> list[str]:
    return list(table.run(list_objects(f"{table.root.prefix}/{folder}")).keys)


def test_a_delta_table_is_found_beside_tables_of_directories(
    table: DeltaTable, s3_bucket: Bucket
) -> None:
    directories = Table(f"s3://{s3_bucket.name}/lake/weather")
    with directories.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    done = looked_after(table, ACT)
    assert [(it.table, it.kind) for it in done] == [
        (table.root.url, "delta"),
        (directories.root.url, "table"),
    ]
    assert not any(it.person or it.again for it in done)
    page = as_markdown(done, applied=True)
    assert f"| `{table.root.url}` | delta | none | none | none | none |" in page


def test_a_dead_job_is_fenced_and_its_files_and_uploads_go(table: DeltaTable) -> None:
    job = dead_job(table)
    done = below(table)[table.root.url]
    assert done.jobs == {"aborted": 1}
    assert done.uploads == {"aborted": 1, "removed": 1}
    assert not [key for key in keys(table) if job in key and "/_delta_log/" not in key]
    assert table.scan().count() == 2
    assert (done.person, done.again, done.findings) == ([], [], {})


def test_a_report_names_what_would_be_done_and_changes_nothing(table: DeltaTable) -> None:
    job = dead_job(table)
    before = keys(table)
    (done,) = looked_after(table, PurgeOrder(patience=0.0))
    assert done.jobs == {"would-abort": 1}
    assert [it.job for it in done.settled] == [job]
    assert keys(table) == before


def test_a_short_patience_fences_no_living_job(table: DeltaTable) -> None:
    with table.job(ROWS.schema) as job:
        job.write(ROWS)
        (done,) = looked_after(table, replace(ACT, patience=1e-9, foreign_age=0.0))
        assert done.jobs == {"left": 1}
        assert f"{job.job}: undecided" in done.notes[0]
    assert table.scan().count() == 4


def test_a_replaced_file_stays_for_the_retention_and_goes_after_it(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, mode="overwrite")
    assert below(table)[table.root.url].uploads == {}
    layout = type(table._layout)
    monkeypatch.setattr(layout, "retention", lambda self, state: -60.0)
    assert below(table)[table.root.url].uploads == {"removed": 2}
    assert table.scan().count() == 2


def test_files_of_other_tables_below_the_data_folder_stay(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table that is made there while the one above it is, which is not seen."""
    other = DeltaTable(f"{table.root.url}/data/other")
    with monkeypatch.context() as unseen:
        unseen.setattr(new_table, "refuse_below_swept", lambda _: iter(()))
        write(other, partition_by=["day"])
    table.driver.perform(Put(f"{table.root.prefix}/data/rows.parquet", b"rows"))
    assert below(table)[table.root.url].uploads == {}
    assert other.scan().count() == 2
    assert f"{table.root.prefix}/data/rows.parquet" in keys(table)


def test_a_missed_checkpoint_is_written(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_commit, "CHECKPOINT_INTERVAL", 10_000)
    write(table)
    write(table)
    monkeypatch.setattr(after_commit, "CHECKPOINT_INTERVAL", 2)
    (planned,) = looked_after(table, PurgeOrder())
    assert planned.records == {"would-be-checkpointed": 1}
    (done,) = looked_after(table, ACT)
    assert done.records == {"checkpointed": 1}
    assert any(key.endswith(".checkpoint.parquet") for key in keys(table, "_delta_log/"))
    (again,) = looked_after(table, ACT)
    assert again.records == {}


def test_a_lost_file_and_a_cut_one_need_a_person(table: DeltaTable) -> None:
    first, second = keys(table, "data/")
    table.driver.perform(Delete(first))
    table.driver.perform(Put(second, b"cut"))
    (done,) = looked_after(table, ACT)
    assert done.findings == {"missing": 1, "wrong size": 1}
    assert first in done.person[0]
    assert "1 row of job" in done.person[0]
    assert second in done.person[1]


def test_an_entry_that_was_written_over_needs_a_person_and_nothing_is_purged(
    table: DeltaTable,
) -> None:
    write(table)
    lost = write(table)
    entry = table._layout.folder.entry(1)
    other = table.driver.perform(Get(table._layout.folder.entry(2)))
    assert isinstance(other, Found)
    table.driver.perform(Put(entry, other.body))
    done = below(table)[table.root.url]
    assert "damaged" in done.findings
    assert any(entry in line for line in done.person)
    assert "removed" not in done.uploads
    assert [key for key in keys(table, "data/") if lost in key]


def test_another_engines_table_is_named_and_nothing_of_it_is_deleted(
    foreign: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(foreign, mode="overwrite")
    layout = type(foreign._layout)
    monkeypatch.setattr(layout, "retention", lambda self, state: -60.0)
    before = keys(foreign)
    done = below(foreign)[foreign.root.url]
    assert (done.kind, done.uploads) == ("delta", {})
    assert "another engine made this Delta table" in done.notes[0]
    assert keys(foreign) == before


@pytest.mark.parametrize("command", ["recover", "purge"])
def test_another_engines_table_is_registered_in_no_catalog(
    foreign: DeltaTable, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As by Airflow's and Dagster's maintenance."""
    sent: list[Any] = []
    monkeypatch.setattr(catalog, "sync_settled", lambda *it: sent.append(it))
    said = invoke(command, foreign.root.url, "--catalog", "glue://wh/others", "--apply")
    assert (said.exit_code, sent) == (Exit.DONE, [])
    assert "is not registered: another engine made this Delta table" in said.stderr
    assert f"zero-rename catalog sync {foreign.root.url} --catalog glue://wh/others" in said.stderr


def test_a_table_with_a_feature_that_is_not_known_is_named_and_left(table: DeltaTable) -> None:
    entry = (
        b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":'
        b'["deletionVectors"],"writerFeatures":["deletionVectors"]}}'
    )
    table.driver.perform(Put(table._layout.folder.entry(1), entry))
    done = below(table)[table.root.url]
    assert "deletionVectors" in done.notes[0]
    assert (done.person, done.again) == ([], [])


def test_a_first_job_that_died_needs_no_log_for_its_files_to_go(s3_bucket: Bucket) -> None:
    table = DeltaTable(f"s3://{s3_bucket.name}/lake/flights")
    job = dead_job(table)
    done = below(table)[table.root.url]
    assert done.jobs == {"failed": 1}  # Nothing can fence it.
    assert job in done.again[0]
    table.driver.perform(Delete(table.root.open_key(job)))
    place = table.run(destination_at(table.root))
    table.driver.perform(Put(f"{table.root.prefix}/_delta_log/note", b""))
    place = table.run(destination_at(table.root))
    report = purge_destination(Table(table.root.url), place, ACT)
    assert dict(report.counts) == {PurgeAction.REMOVED: 1, PurgeAction.ABORTED: 1}
    assert not table.exists()


def test_catalog_is_told_of_a_table_that_was_made_here_alone(
    table: DeltaTable, foreign: DeltaTable
) -> None:
    told: list[Any] = []

    def register(table: Any) -> dict[str, Any]:
        told.append(table)
        return {"catalog": "glue://lake/flights", "table": "created"}

    done = {it.table: it for it in looked_after(table, ACT, register=register)}
    assert [(type(it), it.root) for it in told] == [(DeltaTable, table.root)]
    assert done[table.root.url].catalog["table"] == "created"
    assert done[foreign.root.url].catalog == {}


def test_conflicts_of_runs_need_a_person_where_maintenance_is_to_fail(table: DeltaTable) -> None:
    for rank in (2, 1):
        write(table, mode="overwrite", run_rank=rank, idempotency_key=f"run {rank}")
    (done,) = looked_after(table, ACT, conflicts=ConflictOrder(fails=True))
    assert done.conflicts == {"unresolved": 2}
    assert "conflict over day=1" in done.person[0]


def test_a_job_that_is_named_as_dead_has_to_be_open(table: DeltaTable) -> None:
    job = dead_job(table)
    purged = invoke("purge", table.root.url, "--job", "zr1-00000000000000000000000000", "--apply")
    assert purged.exit_code == 2
    assert "No such job is open" in purged.output
    report = as_json("purge", table.root.url, "--job", job, "--apply")
    assert [(it["job"], it["outcome"]) for it in report["recovered"]] == [(job, "aborted")]


def test_plan_of_a_purge_has_the_jobs_that_are_named_as_dead(table: DeltaTable) -> None:
    job, living = dead_job(table), dead_job(table, with_upload=False)
    place = table.run(destination_at(table.root))
    planned = purge_destination(Table(table.root.url), place, PurgeOrder(jobs=[job]))
    assert [(it.job, it.outcome) for it in planned.jobs] == [(job, "would-abort"), (living, "left")]
    assert [(it.job, it.action) for it in planned.entries] == [(job, PurgeAction.WOULD_ABORT)]
    assert {it.job for it in table.open_jobs()} == {job, living}


def test_plan_of_a_purge_refuses_a_named_job_that_is_not_open(table: DeltaTable) -> None:
    order = PurgeOrder(jobs=["zr1-01J0000000000000000000000A"])
    place = table.run(destination_at(table.root))
    with pytest.raises(InvalidInputError, match="No such job is open"):
        purge_destination(Table(table.root.url), place, order)


def loaded_before_by_magic(table: DeltaTable) -> None:
    """The ledger's record of a run of one of Hadoop's committers, which an adoption leaves."""
    record = a_try(run_uuid(), idempotency_key="daily/1/load", mode="replace")
    table.run(ledger.open_try(table.root, record))
    table.run(ledger.close_try(table.root, record, state=COMMITTED))


def test_conflicts_of_a_delta_table_are_found_where_hadoops_committers_wrote_before(
    table: DeltaTable,
) -> None:
    loaded_before_by_magic(table)
    assert table.run(destination_at(table.root)).kind == "delta and s3a"
    found = find_here(Table(table.root.url))
    assert {it.committer for it in found} == {S3A, "zero_rename"}
