"""Maintenance of all tables of a connection: what is done, what is told, and when it fails."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException
from botocore.exceptions import ClientError

from support.airflow import Connect, Tables, run_task, task_context
from zero_rename.catalog.glue import GlueCatalog
from zero_rename.committer.errors import StoreUnreachableError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import AbortUpload, ListUploads, Unknown
from zero_rename.committer.upkeep.purging.upload_selection import UploadsPath
from zero_rename.committer.upkeep.tables_below import tables_below
from zero_rename.maintenance import destinations
from zero_rename.operators.maintenance import MaintainTablesOperator
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
DATA = pa.table({"delay": [1, 2], "day": [1, 2]})


class Pushed:
    """A task instance that keeps what is pushed."""

    def __init__(self) -> None:
        self.xcom: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        assert json.loads(json.dumps(value)) == value
        self.xcom[key] = value


class Unanswered(GlueCatalog):
    """Glue that throttles."""

    def _get_table(self) -> None:
        answer: Any = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
        raise ClientError(answer, "GetTable")


@pytest.fixture
def connection(tables: Tables, connect: Connect) -> str:
    connect("zr", extra={"table_root": tables.url("").rstrip("/")})
    return "zr"


def run(connection: str, pushed: Pushed | None = None, **arguments: Any) -> dict[str, Any]:
    arguments.setdefault("apply", True)
    task = MaintainTablesOperator(task_id="maintain", zero_rename_conn_id=connection, **arguments)
    context = task_context(task)
    context["ti"] = pushed or Pushed()
    report = run_task(task, context)
    assert json.loads(json.dumps(report)) == report
    return report


def test_a_delta_table_of_the_connection_is_looked_after(tables: Tables, connection: str) -> None:
    delta = ZeroRenameHook("zr").get_delta_table("lake/flights")
    job = delta.job(DATA.schema, partition_by=["day"])
    with job:
        job.write(DATA)
    dead = delta.job()
    dead.__enter__()
    (report,) = run(connection, patience=0)["tables"]
    assert (report["table"], report["kind"]) == (tables.url("lake/flights"), "delta")
    assert report["jobs"] == {"aborted": 1}
    assert delta.scan().count() == DATA.num_rows


def test_all_tables_of_the_connection_are_looked_after(tables: Tables, connection: str) -> None:
    names = ("deep/er/weather", "flights", "source=crm/region=eu/customers", "source=erp")
    for name in names:
        tables.load(1, name=name)
    tables.bucket.put("wh/logs/x.txt", b"x")
    tables.bucket.put("wh/foreign/day=1/part-0.parquet", b"x")
    tables.bucket.put("wh/_zero_rename/s3a-runs/s3a/run/1-open.json", b"{}")
    dead = tables.undecided(2, name="deep/er/weather", max_duration=0.001)
    found = ZeroRenameHook(connection).table_urls()
    assert found == [tables.url(name) for name in names]
    pushed = Pushed()
    report = run(connection, pushed, patience=0.0)
    kinds = {it["table"]: it["kind"] for it in report["tables"]}
    assert kinds == {**dict.fromkeys(found, "table"), tables.url("s3a"): "s3a"}
    assert report["tables"][0]["jobs"] == {"aborted": 1}
    assert (report["person"], report["again"]) == (0, 0)
    assert tables.table("deep/er/weather").job_state(dead) == "aborted"
    assert tables.bucket.uploads() == []
    row = f"| `{found[0]}` | table | 1 aborted | 1 aborted | none |"
    assert row in pushed.xcom["markdown"]


def test_a_bucket_as_the_root_and_a_first_job_that_died(tables: Tables, connection: str) -> None:
    tables.undecided(1, name="new")
    path = UploadsPath(tables.bucket.name, "")
    (root,) = tables.table("new").run(tables_below(path))
    assert root.url == tables.url("new")


@pytest.mark.parametrize("given", [1.5, [None], {"flights": 1}])
def test_a_template_that_makes_no_tables(tables: Tables, connection: str, given: object) -> None:
    task = MaintainTablesOperator(task_id="maintain", zero_rename_conn_id=connection)
    task.tables = given
    with pytest.raises(AirflowFailException, match=r"neither a list of tables|not a text"):
        run_task(task, task_context(task))


def test_folder_without_a_table_is_named_in_the_report(tables: Tables, connection: str) -> None:
    tables.load(1)
    report = run(connection, tables=["flights", "flightz"])
    told = {it["table"]: it["notes"] for it in report["tables"]}
    nothing = "There is no table, and no destination of Hadoop's committers."
    assert told == {tables.url(): [], tables.url("flightz"): [nothing]}


def test_what_would_take_long_to_be_made_again_is_told(tables: Tables, connect: Connect) -> None:
    """Of rows that lie in a fast root alone, and of which nothing says what they were made from."""
    connect("zr", extra={"table_root": tables.url("").rstrip("/"), "max_recompute": 3600})
    delta = DeltaTable(tables.url(), driver=tables.table().driver)
    data = pa.table({"day": [1, 2], "flight": ["a", "b"]})
    root = f"s3://{tables.bucket.name}/scratch"
    with delta.job(data.schema, partition_by=["day"], data_root=root, inputs=()) as job:
        job.write(data)
    pushed = Pushed()
    (told,) = run("zr", pushed)["tables"][0]["notes"]
    assert told.startswith("at risk: 2 partitions not durable yet cannot be made again: day=1, ")
    assert told in pushed.xcom["markdown"]
    delta.checkpoint(apply=True)
    assert run("zr")["tables"][0]["notes"] == []


def test_nothing_is_changed_by_default(tables: Tables, connection: str) -> None:
    tables.load(1)
    tables.undecided(2)
    report = run(connection, apply=False, patience=0.0)
    assert report["tables"][0]["jobs"] == {"would-abort": 1}
    assert len(tables.bucket.uploads()) == 1


@pytest.mark.usefixtures("s3_server")
def test_tables_are_registered_where_their_loads_do(
    tables: Tables, connection: str, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    database = tables.bucket.name
    connect("zr", extra={"table_root": tables.url("").rstrip("/"), "catalog": f"glue://{database}"})
    for name in ("a", "b"):
        tables.load(1, name=name)
    tables.decided(2, name="b")
    with pytest.raises(AirflowFailException, match=f"no database {database}"):
        run(connection, tables="a")
    glue = ZeroRenameHook(connection).get_glue()
    glue.create_database(DatabaseInput={"Name": database})
    pushed = Pushed()
    report = run(connection, pushed)
    told = [it["catalog"] for it in report["tables"]]
    assert [(it["table"], it["added"]) for it in told] == [("created", 1), ("created", 2)]
    found = glue.get_partitions(DatabaseName=database, TableName="b")["Partitions"]
    assert sorted(it["Values"] for it in found) == [["1"], ["2"]]
    assert "registered" in pushed.xcom["markdown"]
    monkeypatch.setattr("zero_rename.catalog.registration.GlueCatalog", Unanswered)
    report = run(connection, tables="a")
    assert report["again"] == 1
    assert "zero-rename catalog sync" in report["tables"][0]["again"][0]


@pytest.mark.usefixtures("s3_server")
def test_one_tables_name_is_not_for_all_below_a_folder(tables: Tables, connection: str) -> None:
    glue = ZeroRenameHook(connection).get_glue()
    glue.create_database(DatabaseInput={"Name": tables.bucket.name})
    for name in ("a", "b"):
        tables.load(1, name=name)
    catalog = f"glue://{tables.bucket.name}/b"
    with pytest.raises(AirflowFailException, match="is one table's, and 2"):
        run(connection, tables=tables.url("").rstrip("/"), catalog=catalog)
    assert glue.get_tables(DatabaseName=tables.bucket.name)["TableList"] == []


class TestFails:
    def test_for_what_needs_a_person(self, tables: Tables, connection: str) -> None:
        """The other table is looked after all the same, and the report is there."""
        tables.load(1, name="a")
        (file,) = tables.table("a").files()
        tables.bucket.delete(file.key)
        tables.load(1, name="b")
        tables.undecided(1, name="b")
        pushed = Pushed()
        with pytest.raises(AirflowFailException, match=f"Action is needed.*{file.key}"):
            run(connection, pushed, patience=0.0)
        assert tables.bucket.uploads() == []
        report = pushed.xcom["return_value"]
        assert report["person"] == 1
        assert report["tables"][0]["findings"] == {"missing": 1}
        assert "## Needs action" in pushed.xcom["markdown"]

    def test_for_a_record_that_cannot_be_read(self, tables: Tables, connection: str) -> None:
        tables.load(1)
        tables.bucket.put("wh/flights/_zero_rename/heads/day=1.json", b"{")
        with pytest.raises(AirflowFailException, match="day=1"):
            run(connection)

    def test_for_a_committed_file_that_is_lost(
        self, tables: Tables, connection: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("zero_rename.committer.store.backoff.Backoff.delay", lambda *_: 0.0)
        tables.load(2)
        tables.decided(1)
        tables.bucket.abort_uploads()
        with pytest.raises(AirflowFailException, match="repair"):
            run(connection)

    @pytest.mark.usefixtures("s3_server")
    def test_not_for_the_weather(
        self, tables: Tables, connection: str, answered_by: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables.load(1)
        monkeypatch.setattr("zero_rename.committer.store.backoff.Backoff.delay", lambda *_: 0.0)
        key = "wh/flights/day=1/part-00000-2b1f.snappy.parquet"
        tables.bucket.client.create_multipart_upload(Bucket=tables.bucket.name, Key=key)
        unclear = Unknown("503")
        answered_by(lambda request: unclear if isinstance(request, AbortUpload) else None)
        report = run(connection, foreign=True)
        assert (report["person"], report["again"]) == (0, 1)
        assert report["tables"][0]["uploads"] == {"failed": 1}

    def test_for_what_nobody_thought_of(
        self, tables: Tables, connection: str, answered_by: Any
    ) -> None:
        tables.load(1)

        def answer(request: Any) -> None:
            if isinstance(request, ListUploads):
                raise OverflowError("timestamp")

        answered_by(answer)
        with pytest.raises(AirflowFailException, match="OverflowError: timestamp"):
            run(connection)

    def test_without_a_table_root(self, tables: Tables, connect: Connect) -> None:
        connect("zr", extra={})
        with pytest.raises(AirflowFailException, match="table_root"):
            run("zr")
        assert run("zr", tables=[])["tables"] == []


def test_what_goes_into_xcom_is_bounded(tables: Tables, connection: str) -> None:
    tables.load(1)
    for number in range(40):
        tables.bucket.put(f"wh/flights/day=1/stray-{number}.parquet", b"x")
    report = run(connection)
    (only,) = report["tables"]
    assert only["findings"] == {"unnamed": 40}
    assert len(only["notes"]) == 20
    assert only["left_off"]["notes"] == 20


def test_table_at_which_the_store_does_not_answer_is_tried_again(
    tables: Tables, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the others are looked after."""

    def unanswered(root: TableRoot) -> Any:
        if root.prefix.endswith("/silent"):
            raise StoreUnreachableError("The store did not answer.", table=root.url)
        return (yield from destinations_in(root))

    destinations_in = destinations.destinations_in
    monkeypatch.setattr(destinations, "destinations_in", unanswered)
    dead = tables.undecided(2)
    report = run(connection, tables=["silent", "flights"], patience=0)
    silent, flights = report["tables"]
    assert (silent["kind"], report["person"], report["again"]) == ("unknown", 0, 1)
    assert silent["again"][0].startswith("The store did not answer.")
    assert (flights["kind"], flights["jobs"]) == ("table", {"aborted": 1})
    assert tables.table().is_closed(dead)
