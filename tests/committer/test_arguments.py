"""Arguments of tables of both layouts that are refused before anything is sent or changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from zero_rename import Table
from zero_rename.committer import InvalidInputError, JobSpec, RunRanks
from zero_rename.committer.upkeep.purging.upload_selection import Selection
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
ROWS = pa.table({"day": [1], "id": [1]})
JOB = "zr1-00000000000000000000000000"


def made(bucket: Bucket, kind: Any) -> Any:
    """A table with two files of two jobs in one partition."""
    table = kind(f"s3://{bucket.name}/{kind.__name__}")
    for _ in range(2):
        with table.job(ROWS.schema, partition_by=["day"]) as job:
            job.write(ROWS)
    return table


OF_BOTH: dict[str, tuple[Callable[[Any], object], str]] = {
    "merge, schema_mode": (
        lambda it: it.merge(ROWS, ["id"], schema_mode="mrg"),
        "schema_mode is 'mrg'; .* Choose one of keep, merge",
    ),
    "merge, on_repeat": (lambda it: it.merge(ROWS, ["id"], on_repeat="own"), "on_repeat is 'own'"),
    "merge, markers": (
        lambda it: it.merge(ROWS, ["id"], success_markers="nowhere"),
        "success_markers is 'nowhere'",
    ),
    "delete, on_repeat": (
        lambda it: it.delete([("id", "=", 1)], on_repeat="own"),
        "on_repeat is 'own'",
    ),
    "newer_runs": (
        lambda it: it.newer_runs(["day=1"], None, True, on_conflict="oldest"),
        "on_conflict is 'oldest'",
    ),
    "newer_runs of a text": (
        lambda it: it.newer_runs("day=1", RunRanks.of(1), True, on_conflict="last_wins"),
        r"the text 'day=1', not a list of partitions.*partitions=\['day=1'\]",
    ),
    "rival_jobs of a text": (
        lambda it: it.rival_jobs("day=1", False),
        "the text 'day=1', not a list of partitions",
    ),
    "compact to nothing": (lambda it: it.compact(target_bytes=0), "target_bytes=0"),
    "compact to less": (lambda it: it.compact(target_bytes=-1, apply=True), "target_bytes=-1"),
    "settle a text": (lambda it: it.settle(JOB), f"jobs='{JOB}' is not a list"),
    "blank key": (lambda it: it.job(idempotency_key=" "), "idempotency_key=' '"),
    "key of half a letter": (lambda it: it.job(idempotency_key="\ud800"), "idempotency_key="),
    "key that is a number": (lambda it: it.job(idempotency_key=7), "idempotency_key=7"),
}


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize(("call", "says"), OF_BOTH.values(), ids=list(OF_BOTH))
def test_invalid_argument_is_refused_with_its_name(
    s3_bucket: Bucket, kind: Any, call: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        call(made(s3_bucket, kind))


@pytest.mark.parametrize("given", ["day=1", None, [1]])
@pytest.mark.parametrize("verb", ["partition_states", "settled"])
def test_partitions_that_are_no_list_of_texts_are_refused(
    s3_bucket: Bucket, verb: str, given: Any
) -> None:
    table = made(s3_bucket, Table)
    with pytest.raises(InvalidInputError, match="list of partitions"):
        getattr(table, verb)(given)
    assert [*getattr(table, verb)(it for it in ["day=1"])] == ["day=1"]


def test_decisions_of_a_text_instead_of_a_list_are_refused(s3_bucket: Bucket) -> None:
    table = made(s3_bucket, Table)
    with pytest.raises(InvalidInputError, match=f"jobs='{JOB}' is not a list of job ids"):
        table.decisions(JOB)
    assert table.decisions(it for it in [JOB]) == {JOB: None}


def test_plan_for_jobs_named_by_a_generator_refuses_what_is_unknown(s3_bucket: Bucket) -> None:
    with pytest.raises(InvalidInputError, match=f"No such job is open.*{JOB}"):
        made(s3_bucket, DeltaTable).plan_give_up(it for it in [JOB])
    with pytest.raises(InvalidInputError, match=f"jobs='{JOB}' is not a list"):
        made(s3_bucket, DeltaTable).plan_give_up(JOB)


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize(
    "given", [float("inf"), float("nan"), timedelta(hours=1), "60", True, None]
)
def test_max_duration_that_no_record_can_hold_is_refused(
    s3_bucket: Bucket, kind: Any, given: Any
) -> None:
    with pytest.raises(InvalidInputError, match=r"max_duration=.* finite number of seconds"):
        made(s3_bucket, kind).job(max_duration=given)


@pytest.mark.parametrize("given", [float("inf"), float("nan"), "60", True, None])
def test_interval_of_a_heartbeat_that_no_record_can_hold_is_refused(
    s3_bucket: Bucket, given: Any
) -> None:
    """The open record of the job could not be read any more."""
    table = made(s3_bucket, Table)
    with table.job(ROWS.schema, partition_by=["day"]) as job:
        with pytest.raises(InvalidInputError, match=r"interval=.* finite number of seconds"):
            table.send_heartbeat(job.opened.job, given)
        assert [it.damage for it in table.open_jobs()] == [""]


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_job_of_another_table_is_refused(s3_bucket: Bucket, kind: Any, verb: str) -> None:
    """A head would name a file that lies in the other table: its partition could not be read."""
    table = made(s3_bucket, Table)
    other = kind(f"s3://{s3_bucket.name}/other")
    with other.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
        opened = job.opened
        calls = {"commit": lambda: table.commit(opened, []), "abort": lambda: table.abort(opened)}
        with pytest.raises(InvalidInputError, match=f"opened on .*{other.root.url}, not on this"):
            calls[verb]()
    assert (table.scan().count(), other.scan().count()) == (2, 1)
    assert table.open_jobs() == []


AGES: dict[str, Callable[[Any, Any], object]] = {
    "recover": lambda it, age: it.recover(age),
    "plan_recovery": lambda it, age: it.plan_recovery(age),
    "conflicts": lambda it, age: it.conflicts(seconds=age),
    "doctor": lambda it, age: it.doctor(age),
}
AGES_OF: dict[Any, dict[str, Callable[[Any, Any], object]]] = {
    DeltaTable: AGES | {"purge_records": lambda it, age: it.purge_records(age)},
    Table: AGES
    | {
        "repair": lambda it, age: it.repair(patience=age),
        "gc": lambda it, age: it.gc(age),
        "purge, patience": lambda it, age: it.purge(patience=age),
        "purge, older_than": lambda it, age: it.purge(older_than=age, foreign=True),
        "purge, records_older_than": lambda it, age: it.purge(records_older_than=age),
    },
}


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize("age", [float("nan"), -1, "60", True])
def test_age_that_is_no_number_of_seconds_is_refused_and_leaves_living_jobs(
    s3_bucket: Bucket, kind: Any, age: Any
) -> None:
    table = made(s3_bucket, kind)
    with table.job(ROWS.schema, partition_by=["day"]) as living:
        living.write(ROWS)
        for call in AGES_OF[kind].values():
            with pytest.raises(InvalidInputError, match="must be a number of seconds"):
                call(table, age)
    assert table.scan().count() == 3


@pytest.mark.parametrize("given", [{"older_than": 60.0}, {"foreign": True}])
def test_purge_of_foreign_uploads_without_both_of_its_arguments_is_refused(
    s3_bucket: Bucket, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError, match="is given without"):
        made(s3_bucket, Table).purge(**given)


@pytest.mark.parametrize("age", [float("nan"), -1])
def test_selection_of_uploads_by_an_age_that_is_no_number_of_seconds_is_refused(age: float) -> None:
    with pytest.raises(InvalidInputError, match=r"older_than=.* must be a number of seconds"):
        Selection(older_than=age)


class TestJobsByName:
    """A generator is read once: its jobs are those that it names, and none is overlooked."""

    def test_rows_of_jobs_named_by_generator_are_kept(self, s3_bucket: Bucket) -> None:
        table = made(s3_bucket, Table)
        jobs = [file.job for file in table.files()]
        found = table.keep_rows("day=1", (job for job in jobs))
        assert (sorted(found.kept), found.dropped) == (sorted(jobs), ())

    def test_text_as_jobs_to_keep_is_refused(self, s3_bucket: Bucket) -> None:
        with pytest.raises(InvalidInputError, match="keep='newest' is not a list"):
            made(s3_bucket, Table).keep_rows("day=1", "newest")

    def test_job_named_by_generator_is_purged(self, s3_bucket: Bucket) -> None:
        table = made(s3_bucket, Table)
        opened = table.open_job(JobSpec(ROWS.schema))
        table.purge(jobs=(job for job in [opened.job]), apply=True)
        assert table.open_jobs() == []

    def test_job_named_as_text_to_purge_is_refused(self, s3_bucket: Bucket) -> None:
        with pytest.raises(InvalidInputError, match=r"jobs='zr1-.* is not a list"):
            made(s3_bucket, Table).purge(jobs=JOB, apply=True)
