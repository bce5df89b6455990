from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.airflow import Connect, Tables, run_task, task_context
from support.s3a_jobs import MagicJob
from zero_rename.committer import (
    DamagedError,
    InvalidInputError,
    JobFencedError,
    Table,
    TableNotFoundError,
    ZeroRenameError,
)
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.backoff import Backoff
from zero_rename.committer.store.requests import AbortUpload, Refused
from zero_rename.operators.maintenance import PurgeStaleUploadsOperator, RecoverJobsOperator
from zero_rename.operators.s3a_maintenance import RecoverS3AJobsOperator
from zero_rename.provider.hooks import ZeroRenameHook

pytestmark = pytest.mark.memory_s3


def run(kind: type, tables: Any, **arguments: Any) -> dict[str, Any]:
    arguments.setdefault("apply", True)
    task = kind(task_id="maintain", tables=tables, **arguments)
    report = run_task(task, task_context(task))
    assert json.loads(json.dumps(report)) == report
    return report


def foreign_upload(tables: Tables) -> str:
    key = "wh/flights/day=1/part-00000-2b1f.snappy.parquet"
    tables.bucket.client.create_multipart_upload(Bucket=tables.bucket.name, Key=key)
    return key


class TestRecover:
    def test_a_job_of_a_delta_table_is_settled_by_its_log(self, tables: Tables) -> None:
        data = pa.table({"delay": [1, 2], "day": [1, 2]})
        delta = ZeroRenameHook().get_delta_table(tables.url())
        with delta.job(data.schema, partition_by=["day"]) as first:
            first.write(data)
        dead = delta.job()
        opened = dead.__enter__()
        (left,) = run(RecoverJobsOperator, tables.url())["tables"]
        assert [it["outcome"] for it in left["recovered"]] == ["left"]
        (planned,) = run(RecoverJobsOperator, tables.url(), patience=0, apply=False)["tables"]
        assert [it["outcome"] for it in planned["recovered"]] == ["would-abort"]
        (report,) = run(RecoverJobsOperator, tables.url(), patience=0)["tables"]
        assert (report["kind"], report["failed"]) == ("delta", 0)
        assert [it["outcome"] for it in report["recovered"]] == ["aborted"]
        with pytest.raises(JobFencedError):
            opened.__exit__(None, None, None)
        assert delta.scan().count() == 2

    def test_settles_what_was_interrupted(self, tables: Tables) -> None:
        committed, dead = tables.decided(1), tables.undecided(2)
        (report,) = run(RecoverJobsOperator, tables.url(), patience=timedelta(0))["tables"]
        assert report["table"] == tables.url()
        assert {job["job"]: job["outcome"] for job in report["recovered"]} == {
            committed: "committed",
            dead: "aborted",
        }
        assert tables.table().open_jobs() == []
        assert tables.bucket.uploads() == []
        assert [file.partition for file in tables.table().files()] == ["day=1"]

    def test_only_says_so_by_default(self, tables: Tables) -> None:
        committed, dead = tables.decided(1), tables.undecided(2)
        task = RecoverJobsOperator(task_id="maintain", tables=tables.url(), patience=0)
        (report,) = run_task(task, task_context(task))["tables"]
        assert {job["job"]: job["outcome"] for job in report["recovered"]} == {
            committed: "would-finish",
            dead: "would-abort",
        }
        assert {job.job for job in tables.table().open_jobs()} == {committed, dead}

    def test_leaves_what_may_live(self, tables: Tables) -> None:
        alive = tables.undecided(2)
        (report,) = run(RecoverJobsOperator, tables.url())["tables"]
        assert [job["outcome"] for job in report["recovered"]] == ["left"]
        assert [job.job for job in tables.table().open_jobs()] == [alive]

    def test_several_tables_of_which_one_is_none(self, tables: Tables) -> None:
        job = tables.decided(1)
        names = [tables.url("missing"), tables.url()]
        with pytest.raises(TableNotFoundError, match="missing"):
            run(RecoverJobsOperator, names)
        assert tables.table().is_closed(job)

    def test_operator_for_hadoops_committers_is_named(self, tables: Tables) -> None:
        root = TableRoot(tables.bucket.name, "wh/magic")
        MagicJob(tables.table("magic").driver.perform, root).begin().task(1)
        with pytest.raises(TableNotFoundError, match="RecoverS3AJobsOperator"):
            run(RecoverJobsOperator, tables.url("magic"))

    @pytest.mark.parametrize("error", [DamagedError("bad"), OverflowError("timestamp")])
    def test_a_table_that_breaks_does_not_keep_the_next_from_recovery(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        job = tables.decided(1)
        recover = Table.recover

        def breaks(self: Table, patience: float | None = None) -> Any:
            if self.root.url.endswith("/broken"):
                raise error
            return recover(self, patience)

        monkeypatch.setattr(Table, "recover", breaks)
        with pytest.raises(type(error)):
            run(RecoverJobsOperator, [tables.url("broken"), tables.url()])
        assert tables.table().is_closed(job)


def test_slip_in_the_name_of_a_table_to_be_purged_is_told(
    tables: Tables, capfd: pytest.CaptureFixture[str]
) -> None:
    tables.load(1)
    run(PurgeStaleUploadsOperator, tables.url())
    assert "There is no table" not in capfd.readouterr().out
    (report,) = run(PurgeStaleUploadsOperator, tables.url("flightz"))["tables"]
    assert report["kind"] == "directory"
    assert f"{tables.url('flightz')}: There is no table" in capfd.readouterr().out


def test_damaged_table_does_not_keep_others_below_its_folder_from_their_purge(
    tables: Tables,
) -> None:
    tables.load(1, name="lake/damaged")
    tables.bucket.put("wh/lake/damaged/_zero_rename/table.json", b"{nonsense")
    dead = tables.undecided(2, name="lake/sound")
    with pytest.raises(DamagedError, match="lake/damaged"):
        run(PurgeStaleUploadsOperator, tables.url("lake"), patience=0)
    assert tables.table("lake/sound").is_closed(dead)


@pytest.mark.usefixtures("s3_server")
class TestCatalog:
    """What a load could not register is registered by whoever settles its jobs."""

    @pytest.fixture
    def database(self, tables: Tables, connect: Connect) -> str:
        """Of a connection that registers its tables in it."""
        name = tables.bucket.name
        ZeroRenameHook().get_glue().create_database(DatabaseInput={"Name": name})
        connect("zr", extra={"catalog": f"glue://{name}", "table_root": tables.url("").rstrip("/")})
        return name

    def test_destination_of_hadoops_committers_is_not_registered(
        self, tables: Tables, database: str
    ) -> None:
        tables.load(1, name="lake/flights")
        tables.bucket.put("wh/lake/magic/day=1/part-0.parquet", b"no Parquet")
        root = TableRoot(tables.bucket.name, "wh/lake/magic")
        MagicJob(tables.table("lake/magic").driver.perform, root).begin().task(1)
        reports = run(PurgeStaleUploadsOperator, "lake", zero_rename_conn_id="zr")["tables"]
        assert [(it["kind"], "catalog" in it) for it in reports] == [
            ("table", True),
            ("s3a", False),
            ("directory", False),
        ]
        (report,) = run(RecoverS3AJobsOperator, "lake/magic", zero_rename_conn_id="zr")["tables"]
        assert (report["outcomes"], "catalog" in report) == ({"left": 1}, False)

    def test_recovery_of_hadoops_jobs_registers_a_table_of_this_package(
        self, tables: Tables, database: str
    ) -> None:
        """One committer took over from the other."""
        tables.load(1)
        (report,) = run(RecoverS3AJobsOperator, "flights", zero_rename_conn_id="zr")["tables"]
        assert report["catalog"]["table"] == "created"

    def partitions(self, database: str, table: str = "flights") -> list[str]:
        glue = ZeroRenameHook().get_glue()
        try:
            found = glue.get_partitions(DatabaseName=database, TableName=table)["Partitions"]
        except glue.exceptions.EntityNotFoundException:
            return []
        return sorted(partition["Values"][0] for partition in found)

    def test_a_job_that_died_before_it_was_registered(self, tables: Tables, database: str) -> None:
        tables.load(1)
        tables.decided(2)
        report = run(RecoverJobsOperator, "flights", zero_rename_conn_id="zr")["tables"][0]
        assert report["catalog"] == {
            "catalog": f"glue://{database}/flights",
            "read_by": "folders",
            "table": "created",
            "added": 2,
            "updated": 0,
            "dropped": 0,
            "projected": False,
        }
        assert self.partitions(database) == ["1", "2"]
        again = run(PurgeStaleUploadsOperator, "flights", zero_rename_conn_id="zr")["tables"][0]
        assert again["catalog"]["table"] == "unchanged"

    def test_delta_table_is_registered_too(self, tables: Tables, database: str) -> None:
        data = pa.table({"delay": [1], "day": [1]})
        delta = ZeroRenameHook().get_delta_table(tables.url())
        with delta.job(data.schema, partition_by=["day"]) as job:
            job.write(data)
        kinds = (RecoverJobsOperator, PurgeStaleUploadsOperator)
        reports = [run(it, "flights", zero_rename_conn_id="zr")["tables"][0] for it in kinds]
        told = [(it["kind"], it["catalog"]["table"], it["catalog"]["read_by"]) for it in reports]
        assert told == [("delta", "created", "log"), ("delta", "unchanged", "log")]
        assert self.partitions(database) == []

    def test_nothing_is_told_where_nothing_is_to_be_changed(
        self, tables: Tables, database: str
    ) -> None:
        tables.load(1)
        for arguments in ({"apply": False}, {"catalog": ""}):
            report = run(RecoverJobsOperator, "flights", zero_rename_conn_id="zr", **arguments)
            assert "catalog" not in report["tables"][0]
        assert self.partitions(database) == []

    def test_a_failure_fails_the_task_and_not_the_other_tables(
        self, tables: Tables, database: str
    ) -> None:
        tables.load(1, name="a")
        job = tables.decided(1, name="b")
        names = [tables.url("a"), tables.url("b")]
        with pytest.raises(AirflowFailException, match="no database nowhere"):
            run(RecoverJobsOperator, names, catalog="glue://nowhere")
        assert tables.table("b").is_closed(job)

    def test_one_tables_name_is_not_for_several(self, tables: Tables) -> None:
        names = [tables.url("a"), tables.url("b")]
        with pytest.raises(AirflowFailException, match="is one table's, and 2"):
            run(RecoverJobsOperator, names, catalog="glue://lake/a")

    def test_one_tables_name_is_not_for_all_below_a_folder(
        self, tables: Tables, database: str
    ) -> None:
        for name in ("a", "b"):
            tables.load(1, name=name)
        folder = tables.url("").rstrip("/")
        with pytest.raises(AirflowFailException, match="is one table's, and 2"):
            run(PurgeStaleUploadsOperator, folder, catalog=f"glue://{database}/b")
        assert self.partitions(database, "b") == []

    def test_a_table_that_no_job_has_made_yet(self, tables: Tables, database: str) -> None:
        tables.undecided(1)
        report = run(RecoverJobsOperator, "flights", zero_rename_conn_id="zr", patience=0)
        assert "catalog" not in report["tables"][0]


class TestPurge:
    def test_recovers_first(self, tables: Tables) -> None:
        tables.undecided(2)
        (report,) = run(PurgeStaleUploadsOperator, tables.url(), patience=0.0)["tables"]
        assert [job["outcome"] for job in report["recovered"]] == ["aborted"]
        assert tables.bucket.uploads() == []

    def test_only_says_so_by_default(self, tables: Tables) -> None:
        job = tables.undecided(2)
        tables.table().recover(patience=0.0)
        key = f"wh/flights/day=2/part-00000-{job}-0009.parquet"
        tables.bucket.client.create_multipart_upload(Bucket=tables.bucket.name, Key=key)
        (report,) = run(PurgeStaleUploadsOperator, tables.url(), apply=False)["tables"]
        assert (report["would_abort"], report["aborted"], report["kept"]) == (1, 0, 0)
        assert [(u["key"], u["job"]) for u in report["uploads"]] == [(key, job)]
        assert tables.bucket.uploads() == [key]
        (report,) = run(PurgeStaleUploadsOperator, tables.url())["tables"]
        assert report["aborted"] == 1
        assert tables.bucket.uploads() == []

    def test_foreign_uploads_are_left(self, tables: Tables) -> None:
        tables.load(1)
        key = foreign_upload(tables)
        (report,) = run(PurgeStaleUploadsOperator, tables.url())["tables"]
        assert (report["aborted"], report["kept"]) == (0, 1)
        assert tables.bucket.uploads() == [key]

    @pytest.mark.usefixtures("s3_server")
    def test_foreign_uploads_are_purged_by_age(self, tables: Tables) -> None:
        """moto dates every upload to 2010."""
        tables.load(1)
        key = foreign_upload(tables)
        old = timedelta(days=365 * 100)
        (report,) = run(PurgeStaleUploadsOperator, tables.url(), foreign=True, older_than=old)[
            "tables"
        ]
        assert (report["aborted"], report["kept"]) == (0, 1)
        assert "younger than 3153600000 s" in report["uploads"][0]["reason"]
        (report,) = run(PurgeStaleUploadsOperator, tables.url(), foreign=True)["tables"]
        assert [u["key"] for u in report["uploads"] if u["action"] == "aborted"] == [key]
        assert tables.bucket.uploads() == []

    def test_an_age_that_is_not_a_number_is_refused(self, tables: Tables) -> None:
        """Every foreign upload was as old as that, and the floor was not above it."""
        tables.load(1)
        key = foreign_upload(tables)
        with pytest.raises(InvalidInputError, match="Invalid older_than=nan: not a duration"):
            run(PurgeStaleUploadsOperator, tables.url(), foreign=True, older_than=float("nan"))
        with pytest.raises(InvalidInputError, match="older_than=nan"):
            tables.table().purge(float("nan"), foreign=True)
        assert tables.bucket.uploads() == [key]

    @pytest.mark.usefixtures("s3_server")
    def test_an_upload_that_stays_fails_the_task(
        self, tables: Tables, answered_by: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables.load(1)
        key = foreign_upload(tables)
        stays = Refused("MethodNotAllowed")
        answered_by(lambda request: stays if isinstance(request, AbortUpload) else None)
        monkeypatch.setattr("zero_rename.committer.upkeep.purging.purge._ROUNDS", Backoff(2, 0.01))
        with pytest.raises(ZeroRenameError, match="1 orphaned upload could not be removed"):
            run(PurgeStaleUploadsOperator, tables.url(), foreign=True)
        assert tables.bucket.uploads() == [key]

    @pytest.mark.usefixtures("s3_server")
    def test_what_goes_into_xcom_is_bounded(self, tables: Tables) -> None:
        tables.load(1)
        with ThreadPoolExecutor(8) as pool:
            keys = [f"wh/flights/day=1/part-{n:05d}-2b1f.snappy.parquet" for n in range(130)]
            create = tables.bucket.client.create_multipart_upload
            list(pool.map(lambda key: create(Bucket=tables.bucket.name, Key=key), keys))
        (report,) = run(PurgeStaleUploadsOperator, tables.url(), foreign=True)["tables"]
        assert (report["aborted"], len(report["uploads"])) == (130, 100)
        assert report["uploads_left_off"] == 30
        assert tables.bucket.uploads() == []

    @pytest.mark.usefixtures("s3_server")
    def test_the_age_is_the_connections_else_the_configurations(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch, connect: Connect
    ) -> None:
        tables.load(1)
        key = foreign_upload(tables)
        monkeypatch.setenv("AIRFLOW__ZERO_RENAME__PURGE_OLDER_THAN_HOURS", "900000")
        run(PurgeStaleUploadsOperator, tables.url(), foreign=True)
        assert tables.bucket.uploads() == [key]
        connect("zr", extra={"purge_older_than_hours": 100, "table_root": tables.url("")})
        run(PurgeStaleUploadsOperator, "flights", foreign=True, zero_rename_conn_id="zr")
        assert tables.bucket.uploads() == []

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"foreign": True, "older_than": 3600}, "below \\[zero_rename\\] purge_floor_hours"),
            ({"foreign": True, "older_than": timedelta(hours=23)}, "below"),
            ({"older_than": 360000}, "foreign=True is not given"),
        ],
    )
    def test_ages_that_are_refused(
        self, tables: Tables, arguments: dict[str, Any], message: str
    ) -> None:
        key = foreign_upload(tables)
        with pytest.raises(AirflowFailException, match=message):
            run(PurgeStaleUploadsOperator, tables.url(), **arguments)
        assert tables.bucket.uploads() == [key]

    def test_no_table_named(self, tables: Tables) -> None:
        with pytest.raises(AirflowFailException, match="names no table"):
            run(PurgeStaleUploadsOperator, [])
