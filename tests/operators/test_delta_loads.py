"""Loads of Delta tables by the operator, with a stand-in for spark-submit that really commits."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from support.airflow import Connect, Tables, run_task, task_context
from support.fake_spark import IDLE, WRITES, FakeSpark
from support.s3a_loads import EARLIER, LATER
from support.spark_loads import operator, refused, run
from zero_rename.committer import InvalidInputError, RefusedError
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete, Found, Get, Put
from zero_rename.log.job_files import JobFiles, report_body
from zero_rename.operators.publishing import AbortLoadOperator, PublishLoadOperator
from zero_rename.orchestration.runs import heartbeat
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.memory_s3]
ONCE = "flights/scheduled__2013-02-02/load"
#: As :data:`WRITES`, into a Delta table where the operator says so, as ``save()`` does.
WRITES_DELTA = WRITES.replace(
    "job = committer.Table(url).job(",
    """from zero_rename.committer.format.handoff import Handoff
from zero_rename.tables import DeltaTable

assert Handoff.decode(os.environ).layout == "delta"
job = DeltaTable(url).job(""",
)
#: As ``save()`` does where the operator says that it merges.
MERGES = """
import os
import pyarrow as pa
from zero_rename.committer.format.handoff import Handoff
from zero_rename.tables import DeltaTable

said = Handoff.decode(os.environ)
assert (said.layout, said.mode, said.merge_on) == ("delta", "merge", ("n",))
rows = pa.table({"n": [1, 2], "day": [1, 1]})
DeltaTable(said.table.url).merge(
    rows,
    said.merge_on,
    partition_by=["day"],
    idempotency_key=said.idempotency_key,
    on_repeat=said.on_repeat or "skip",
)
"""


@pytest.fixture
def delta(tables: Tables, spark: FakeSpark) -> Any:
    spark.runs(WRITES_DELTA)
    return ZeroRenameHook().get_delta_table(tables.url())


def load(tables: Tables, **arguments: Any) -> Any:
    return operator(tables, **{"layout": "delta", "partition": "day=1", **arguments})


def rows(delta: DeltaTable) -> int:
    return delta.scan().count()


def test_a_load_reports_what_it_committed(tables: Tables, delta: DeltaTable) -> None:
    report = run(load(tables))
    assert report["job"] == delta.job_of_key(ONCE)
    assert (report["rows"], report["files"], report["repeated"]) == (1, 1, False)
    assert (report["partition"], report["version"]) == ("day=1", 0)
    assert delta.owner_of(report["job"]).dag_id == "flights"  # pyrefly: ignore[missing-attribute]


def test_a_retry_reports_what_an_earlier_try_committed(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    first = run(load(tables))
    again = run(load(tables), try_number=2)
    assert (again["job"], again["repeated"]) == (first["job"], True)
    assert len(spark.calls()) == 1
    assert rows(delta) == 1


def clean(delta: DeltaTable) -> None:
    """Remove the log's first entry, as other engines do when it is old."""
    delta.checkpoint_log()
    delta.driver.perform(Delete(f"{delta.root.prefix}/_delta_log/{0:020}.json"))


def test_retry_of_a_run_whose_entry_was_cleaned_submits_nothing(
    tables: Tables, delta: DeltaTable, spark: FakeSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    run(load(tables))
    run(load(tables), run_id="next")
    clean(delta)
    again = run(load(tables), try_number=2)
    assert (again["job"], again["rows"], again["partitions"]) == ("", None, [])
    assert again["repeated"]
    assert "To load again, give on_repeat='append' and clear the task" in capsys.readouterr().out
    cleared = run(load(tables, on_repeat="skip"), try_number=2, max_tries=1)
    assert cleared == again
    assert len(spark.calls()) == 2
    assert rows(delta) == 2


def test_cleared_task_whose_entry_was_cleaned_is_refused_though_its_retries_were_raised(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    """It counted as a retry, and was reported as loaded."""
    run(load(tables, mode="overwrite"))
    run(load(tables), run_id="next")
    clean(delta)
    with pytest.raises(AirflowFailException, match=r"Not submitted\. .*on_repeat='append'"):
        run(load(tables, mode="overwrite", retries=1), try_number=2, max_tries=1)
    assert len(spark.calls()) == 2


def test_report_of_a_run_without_an_owner_counts_as_before(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    """Earlier versions wrote such reports, and so does a repair from the log."""
    run(load(tables))
    run(load(tables), run_id="next")
    clean(delta)
    delta.driver.perform(
        Put(JobFiles(f"{delta.root.prefix}/_zero_rename/").run(ONCE), report_body(ONCE, "", 0))
    )
    assert delta.owner_of_key(ONCE) is None
    assert run(load(tables), try_number=2)["repeated"]
    assert len(spark.calls()) == 2


def test_run_whose_entry_was_cleaned_is_not_loaded_again_unless_it_leaves_the_former_rows(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    """Its commit would be refused, after Spark has run."""
    run(load(tables, mode="overwrite"))
    run(load(tables), run_id="next")
    clean(delta)
    for again in ({"try_number": 2, "max_tries": 1}, {}):  # Cleared, or deleted and made again.
        with pytest.raises(AirflowFailException, match=r"Not submitted\. .*on_repeat='append'"):
            run(load(tables, mode="overwrite"), **again)
    assert len(spark.calls()) == 2
    report = run(load(tables, mode="overwrite", on_repeat="append"), try_number=2, max_tries=1)
    assert (report["rows"], report["repeated"]) == (1, False)
    assert rows(delta) == 1


def test_a_cleared_task_replaces_what_it_loaded(tables: Tables, delta: DeltaTable) -> None:
    first = run(load(tables))
    again = run(load(tables), try_number=2, max_tries=1)
    assert again["job"] != first["job"]
    assert rows(delta) == 1


def test_an_overwrite_without_rows_empties_its_partition(tables: Tables, delta: DeltaTable) -> None:
    run(load(tables))
    report = run(load(tables, mode="overwrite", env_vars={"TEST_DAYS": ""}), run_id="next")
    assert report["partitions"][0]["removed"] == 1
    assert rows(delta) == 0


def test_late_run_is_refused_before_it_starts_spark(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    newest = load(tables, mode="overwrite", on_conflict="newest_run")
    first = run(newest, run_id="newer", start=LATER)
    calls = len(spark.calls())
    with pytest.raises(AirflowFailException, match=f"have loaded day=1 .by {first['job']}"):
        run(newest, run_id="older", start=EARLIER)
    skipped = load(tables, mode="overwrite", on_conflict="newest_run", on_superseded="skip")
    with pytest.raises(AirflowSkipException):
        run(skipped, run_id="older", start=EARLIER)
    assert len(spark.calls()) == calls
    deliberate = load(tables, mode="overwrite", on_conflict="last_wins")
    run(deliberate, run_id="older", start=EARLIER)
    assert rows(delta) == 1
    run(newest, run_id="between", start=EARLIER)


def test_late_run_reports_what_it_left_out(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    words = {"mode": "overwrite", "on_conflict": "newest_run", "on_superseded": "skip"}
    several = load(tables, partition="*", env_vars={"TEST_OVERWRITE": "1"}, **words)
    first = run(several, run_id="newer", start=LATER)
    two = load(tables, partition="*", env_vars={"TEST_OVERWRITE": "1", "TEST_DAYS": "1,2"}, **words)
    report = run(two, run_id="older", start=EARLIER)
    assert report["superseded"] == {"day=1": first["job"]}
    assert (report["partition"], report["rows_left_out"]) == ("day=2", 1)
    assert rows(delta) == 2


def test_load_waits_for_another_run_of_its_partition(
    tables: Tables, delta: DeltaTable, spark: FakeSpark, pauses: Any
) -> None:
    run(load(tables), run_id="first")
    other = delta.job(mode="overwrite", replace_partitions=["day=1"])
    other.__enter__()
    pauses(lambda: other.__exit__(None, None, None))
    calls = len(spark.calls())
    report = run(load(tables, mode="overwrite", wait_for_other_runs=3600), run_id="second")
    assert [it.job for it in delta.history()][:2] == [report["job"], other.job]
    assert len(spark.calls()) == calls + 1


#: Opens its job, and is killed.
KILLED = WRITES_DELTA.replace("    job.write(", "    os._exit(137)\n    job.write(")


@pytest.mark.usefixtures("s3_server")
def test_job_of_a_killed_driver_is_closed_as_its_task_fails(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    """No heartbeat tells that it is dead: for a day other runs would wait for it."""
    run(load(tables), run_id="first")
    spark.runs(KILLED)
    with pytest.raises(AirflowException, match="was killed"):
        run(load(tables))
    assert delta.open_jobs() == []
    spark.runs(WRITES_DELTA)
    assert run(load(tables), try_number=2)["rows"] == 1
    assert rows(delta) == 2


def test_job_that_a_former_attempt_left_open_is_closed_once_its_run_has_committed(
    tables: Tables, delta: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was killed with its worker."""
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.0)
    first = run(load(tables))
    dead = delta.job(idempotency_key=ONCE, on_repeat="append", owner=delta.owner_of(first["job"]))
    dead.__enter__()
    assert run(load(tables), try_number=2)["job"] == first["job"]
    assert (delta.open_jobs(), delta.is_fenced(dead.job or "")) == ([], True)


def test_a_merge_reports_what_it_did_with_rows_and_once(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    spark.runs(MERGES)
    merges = load(tables, mode="merge", merge_on=["n"], partition="*")
    first = run(merges)
    again = run(merges, try_number=2)
    for report, repeated in ((first, False), (again, True)):
        assert report["repeated"] is repeated
        assert report["row_changes"] == {"inserted": 2, "updated": 0, "deleted": 0, "unchanged": 0}
        assert report["partitions"][0]["partition"] == "day=1"
    assert (rows(delta), len(delta.history())) == (2, 1)


def test_an_application_that_writes_directories_is_found_out(
    tables: Tables, spark: FakeSpark
) -> None:
    spark.runs(WRITES)
    with pytest.raises(RefusedError, match="committed no job"):
        run(load(tables))


def test_a_data_root_of_the_connection_is_refused_for_directories(
    tables: Tables, spark: FakeSpark, connect: Connect
) -> None:
    connect("zr", extra={"data_root": "s3://fast/lake"})
    said = "data_root=s3://fast/lake is of Delta tables, and is given for a table of directories"
    refused(spark, said, load(tables, layout=None, zero_rename_conn_id="zr"))


def test_hadoops_committers_refuse_it_as_the_dag_file_is_parsed(tables: Tables) -> None:
    with pytest.raises(InvalidInputError, match="magic, which writes directories"):
        load(tables, committer="magic")


def test_a_policy_of_the_connection_is_refused_too(
    tables: Tables, spark: FakeSpark, connect: Connect
) -> None:
    connect("zr", extra={"success_markers": "partition_and_table"})
    refused(spark, "success_markers=partition_and_table", load(tables, zero_rename_conn_id="zr"))


def test_connection_that_asks_for_success_markers_gets_the_tables(
    tables: Tables, delta: DeltaTable, spark: FakeSpark, connect: Connect
) -> None:
    connect("zr", extra={"success_markers": "table"})
    spark.runs(
        WRITES_DELTA.replace(
            "    owner=", "    success_markers=options.success_markers,\n    owner="
        )
    )
    report = run(load(tables, zero_rename_conn_id="zr"))
    found = delta.run(Get(f"{delta.root.prefix}/_SUCCESS"))
    assert isinstance(found, Found)
    assert SuccessMarker.parse(found.body, found.key).job == report["job"]


@pytest.mark.usefixtures("s3_server")
def test_delta_table_is_registered_once_the_job_is_committed(
    tables: Tables, delta: DeltaTable
) -> None:
    glue = ZeroRenameHook().get_glue()
    glue.create_database(DatabaseInput={"Name": tables.bucket.name})
    report = run(load(tables, catalog=f"glue://{tables.bucket.name}/days"))
    assert (report["catalog"]["table"], report["catalog"]["read_by"]) == ("created", "log")
    found = glue.get_table(DatabaseName=tables.bucket.name, Name="days")["Table"]
    assert found["Parameters"]["table_type"] == "DELTA"


#: The same, where the operator says that the rows are held back.
HELD_BACK = WRITES_DELTA.replace(
    'options.owner("test"),', 'options.owner("test"), publish=options.publish,'
).replace("job.committed.job", "(job.committed or job.unpublished).job")


class TestWriteAuditPublish:
    @pytest.fixture
    def held(self, tables: Tables, spark: FakeSpark) -> Any:
        spark.runs(HELD_BACK)
        return ZeroRenameHook().get_delta_table(tables.url())

    def publish(self, tables: Tables, job: str) -> Any:
        task = PublishLoadOperator(task_id="publish", table=tables.url(), job=job)
        return run_task(task, task_context(task))

    def test_rows_of_a_load_are_seen_and_told_once_they_are_published(
        self, tables: Tables, held: DeltaTable
    ) -> None:
        report = run(load(tables, publish=False))
        assert (report["unpublished"], report["rows"], rows(held)) == (True, 1, 0)
        assert held.scan(job=report["job"]).count() == 1
        assert held.job_of_key(ONCE) is None
        done = self.publish(tables, report["job"])
        assert (done["job"], done["rows"], done["repeated"]) == (report["job"], 1, False)
        assert rows(held) == 1
        assert self.publish(tables, report["job"])["repeated"]

    @pytest.mark.usefixtures("optional_providers")
    def test_lineage_of_a_load_is_told_as_it_is_published(
        self, tables: Tables, held: DeltaTable
    ) -> None:
        loads: Any = load(tables, publish=False)
        job = run(loads)["job"]
        assert loads.get_openlineage_facets_on_complete(None) is None
        task: Any = PublishLoadOperator(task_id="publish", table=tables.url(), job=job)
        assert task.get_openlineage_facets_on_complete(None) is None
        task.execute(task_context(task))
        (output,) = task.get_openlineage_facets_on_complete(None).outputs
        assert output.facets["version"].datasetVersion == job
        assert output.outputFacets["outputStatistics"].rowCount == 1

    @pytest.mark.usefixtures("s3_server")
    def test_table_is_registered_once_its_job_is_published(
        self, tables: Tables, held: DeltaTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The load could not tell the columns that the job brings."""
        glue, database = ZeroRenameHook().get_glue(), tables.bucket.name
        glue.create_database(DatabaseInput={"Name": database})
        job = run(load(tables, publish=False))["job"]
        for catalog, told in (
            (f"glue://{database}-none/days", None),
            (f"glue://{database}/days", 1),
        ):
            task = PublishLoadOperator(
                task_id="publish", table=tables.url(), job=job, catalog=catalog
            )
            report = run_task(task, task_context(task))
            assert ("catalog" in report) is (told is not None)
        assert report["catalog"]["table"] == "created"
        found = glue.get_table(DatabaseName=database, Name="days")["Table"]
        assert [it["Name"] for it in found["StorageDescriptor"]["Columns"]] == ["day", "flight"]
        assert "the job is committed, and glue://" in caplog.text

    def test_retry_of_a_load_submits_nothing_beside_the_job_that_waits(
        self, tables: Tables, held: DeltaTable, spark: FakeSpark
    ) -> None:
        first = run(load(tables, publish=False))
        again = run(load(tables, publish=False), try_number=2)
        assert (again["job"], again["repeated"]) == (first["job"], True)
        assert len(spark.calls()) == 1

    def test_rows_for_a_partition_that_the_task_does_not_name_fail_it_before_they_are_seen(
        self, tables: Tables, held: DeltaTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a retry, too: what waits is to be published next."""
        monkeypatch.setenv("TEST_DAYS", "1,2")
        for number in (1, 2):
            with pytest.raises(AirflowFailException, match=r"not name: day=2\. Nobody sees"):
                run(load(tables, mode="append", publish=False), try_number=number)
        monkeypatch.setenv("TEST_DAYS", "1")
        report = run(load(tables, mode="append", publish=False), try_number=3, max_tries=2)
        self.publish(tables, report["job"])
        assert rows(held) == 1
        assert held.unpublished() == []

    def test_cleared_load_that_writes_nothing_fails_and_leaves_what_waits(
        self, tables: Tables, held: DeltaTable, spark: FakeSpark
    ) -> None:
        """What waits may be the rows that an audit has rejected."""
        job = run(load(tables, publish=False))["job"]
        spark.runs(IDLE)
        with pytest.raises(RefusedError, match=f"attempt left to be published, {job}, still waits"):
            run(load(tables, publish=False), try_number=2, max_tries=1)
        assert [it.job for it in held.unpublished()] == [job]

    def test_job_that_was_aborted_fails_for_good(self, tables: Tables, held: DeltaTable) -> None:
        report = run(load(tables, publish=False))
        held.abort(report["job"])
        with pytest.raises(AirflowFailException, match="was aborted"):
            self.publish(tables, report["job"])

    def test_publication_behind_a_load_that_has_left_no_job_says_so(self, tables: Tables) -> None:
        with pytest.raises(AirflowFailException, match=r"the load has left none\. Nothing was pub"):
            self.publish(tables, "")

    def abort(self, tables: Tables, job: str) -> Any:
        task = AbortLoadOperator(task_id="abort", table=tables.url(), job=job)
        return run_task(task, task_context(task))

    def test_job_is_aborted_with_its_files_and_again_without_effect(
        self, tables: Tables, held: DeltaTable
    ) -> None:
        job = run(load(tables, publish=False))["job"]
        for _ in range(2):
            assert self.abort(tables, job) == {"table": tables.url(), "job": job}
        assert held.unpublished() == []
        assert not [it for it in held.run(list_objects(held.root.prefix)).keys if "/data/" in it]
        with pytest.raises(AirflowFailException, match="was aborted"):
            self.publish(tables, job)

    def test_abort_behind_a_load_that_has_failed_is_skipped(self, tables: Tables) -> None:
        with pytest.raises(AirflowSkipException, match="left no job"):
            self.abort(tables, "")

    def test_published_job_is_not_aborted_and_the_task_fails_for_good(
        self, tables: Tables, held: DeltaTable
    ) -> None:
        job = run(load(tables, publish=False))["job"]
        self.publish(tables, job)
        with pytest.raises(AirflowFailException, match="It was not aborted"):
            self.abort(tables, job)
        assert rows(held) == 1

    def test_conflict_with_what_came_since_fails_for_good(
        self, tables: Tables, held: DeltaTable
    ) -> None:
        report = run(load(tables, publish=False))
        with held.job(mode="overwrite", replace_partitions=["day=1"]):
            pass
        with pytest.raises(AirflowFailException, match="replaced a partition"):
            self.publish(tables, report["job"])

    @pytest.mark.parametrize(
        "words",
        [
            {"layout": "directory"},
            {"layout": "directory", "committer": "magic"},
            {"mode": "merge", "merge_on": ["n"]},
            {"on_conflict": "newest_run", "on_superseded": "skip"},
        ],
        ids=str,
    )
    def test_rows_that_cannot_be_held_back_are_refused_by_name(
        self, tables: Tables, words: dict[str, Any]
    ) -> None:
        with pytest.raises(AirflowFailException, match="publish=False is given with"):
            run(load(tables, **{"publish": False, **words}))


def test_load_has_no_link_to_the_page_which_tells_of_directories(
    tables: Tables, delta: DeltaTable
) -> None:
    task = load(tables)
    run(task)
    assert not hasattr(task, "_page_url")
    assert not hasattr(task, "_manifest_url")
