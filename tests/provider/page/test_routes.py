"""The page as Airflow's API server serves it: who is let in, and what is said where something is
the matter. A real table on a real S3 server, by an Airflow connection."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from support.airflow import SCHEMA, Connect, Tables, day_rows, migrate
from support.airflow_runs import forget_runs
from zero_rename.committer import Owner
from zero_rename.committer.table import Table
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.page import routes
from zero_rename.provider.table_watch import SharedTables

pytestmark = [pytest.mark.airflow, pytest.mark.memory_s3]

MOUNT = "/zero-rename"
READS = {"GetObject", "HeadObject", "ListObjects", "ListMultipartUploads", "ListParts"}
SECRET = "s3cr3t-k3y"


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """What Airflow mounts of its plugins, with its auth manager; its database has no run."""
    migrate()
    forget_runs()
    from airflow.api_fastapi.app import init_auth_manager, init_plugins

    made = FastAPI()
    init_plugins(made)
    init_auth_manager(made)
    return made


class Site:
    """The page to one user after the other."""

    def __init__(self, app: FastAPI) -> None:
        self._client = TestClient(app, follow_redirects=False)

    @property
    def manager(self) -> Any:
        """Airflow's auth manager."""
        from airflow.api_fastapi.app import get_auth_manager

        return get_auth_manager()

    def log_in(self, role: str | None) -> None:
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        user = SimpleAuthManagerUser(username="user", role=role)
        self._client.cookies.set("_token", self.manager.generate_jwt(user))

    def log_out(self) -> None:
        self._client.cookies.clear()

    def ask(self, page: str, status: int = 200, method: str = "GET", **query: Any) -> str:
        answer = self._client.request(method, f"{MOUNT}/{page}", params=query)
        assert answer.status_code == status, answer.text
        self.headers = answer.headers
        return answer.text


@pytest.fixture
def site(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(routes, "_shared", SharedTables())
    made = Site(app)
    made.log_in("OP")
    return made


@pytest.fixture
def lake(tables: Tables, connect: Connect) -> Tables:
    """A connection whose table root holds tables."""
    connect("lake", extra={"table_root": tables.url("")})
    return tables


PAGES = {
    "": {},
    "tables": {"conn": "lake"},
    "glance": {"conn": "lake", "table": "flights"},
    "table": {"conn": "lake", "table": "flights"},
    "partition": {"conn": "lake", "table": "flights", "partition": "day=1"},
    "job": {"conn": "lake", "table": "flights", "job": "zr1-0"},
    "upkeep": {"conn": "lake", "table": "flights"},
}


def test_a_walk_through_a_table_which_only_reads(
    site: Site, lake: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(dag_id="daily", run_id="r1", task_id="load")
    job = lake.load(1, 2, owner=owner, idempotency_key="daily/r1/load").job
    lake.undecided(2)
    lake.bucket.counter.reset()
    assert "table?conn=lake&amp;table=flights" in site.ask("tables", conn="lake")
    assert "1 running" in site.ask("glance", **PAGES["glance"])
    table = site.ask("table", **PAGES["table"])
    assert "partition?conn=lake&amp;table=flights&amp;partition=day%3D2" in table
    assert "../dags/daily/runs/r1/tasks/load" in table
    assert job in site.ask("partition", **PAGES["partition"])
    query: dict[str, Any] = {**PAGES["job"], "job": job}
    assert f"{job}-0000.parquet" in site.ask("job", **query)
    assert "In use" in site.ask("upkeep", **PAGES["upkeep"])
    sent = set(lake.bucket.counter.counts())
    # The bucket's lifecycle rules are a GET, too.
    assert sent <= READS | {"GET bucket"}
    # To who may not see the DAG its name is not told.
    asked = []
    monkeypatch.setattr(site.manager, "is_authorized_dag", lambda **of: asked.append(of))
    table = site.ask("table", **PAGES["table"])
    told = [(it["method"], it["details"].id, it["access_entity"].name) for it in asked]
    assert told == [("GET", "daily", "TASK_INSTANCE")]
    assert "daily" not in table
    assert "a DAG you may not see" in table


def test_tables_below_a_root_whose_scheme_is_in_capitals_are_shown(
    site: Site, lake: Tables, connect: Connect
) -> None:
    connect("lake", extra={"table_root": lake.url("").replace("s3://", "S3A://")})
    lake.load(1)
    assert "table?conn=lake&amp;table=flights" in site.ask("tables", conn="lake")
    for name in ("flights", lake.url(), lake.url().replace("s3:", "S3N:")):
        assert "day=1" in site.ask("table", conn="lake", table=name)


def test_a_table_in_a_folder_that_is_called_like_a_partition(site: Site, lake: Tables) -> None:
    lake.load(1, name="source=crm/customers")
    listed = site.ask("tables", conn="lake")
    assert "table?conn=lake&amp;table=source%3Dcrm%2Fcustomers" in listed
    assert "day=1" in site.ask("table", conn="lake", table="source=crm/customers")


@pytest.mark.parametrize("page", [it for it in PAGES if PAGES[it].get("table")])
def test_delta_table_is_said_to_be_one(site: Site, lake: Tables, page: str) -> None:
    delta = ZeroRenameHook().get_delta_table(lake.url())
    with delta.job(SCHEMA, partition_by=["day"]) as job:
        job.write(day_rows([1], 2))
    asked = PAGES[page] | ({"job": str(job.job)} if page == "job" else {})
    said = site.ask(page, 400, **asked)
    assert "is a Delta table; this page shows only tables of directories" in said
    assert "zero-rename history" in said


class TestAccess:
    @pytest.mark.parametrize("page", PAGES)
    def test_nobody_is_let_in_without_a_login(self, site: Site, lake: Tables, page: str) -> None:
        site.log_out()
        said = site.ask(page, 401, **PAGES[page])
        assert "Not logged in" in said
        assert "flights" not in said
        assert "lake" not in said

    @pytest.fixture
    def rights(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Custom views that viewers have, as an auth manager for production keeps them; the simple
        one gives every one of them to every viewer."""
        given: set[str] = set()

        def is_given(method: str, resource_name: str, user: Any) -> bool:
            return method == "GET" and resource_name in given

        monkeypatch.setattr(site.manager, "is_authorized_custom_view", is_given)
        return given

    @pytest.mark.parametrize("role", [None, "VIEWER"])
    def test_who_may_read_neither_connections_nor_tables_sees_nothing(
        self, site: Site, lake: Tables, rights: set[str], role: str | None
    ) -> None:
        site.log_in(role)
        for page, asked in PAGES.items():
            said = site.ask(page, 403, **asked)
            assert "Not allowed" in said
            if role == "VIEWER":
                assert "the one to read &#39;Zero Rename tables&#39;" in said
            assert "tables?conn=" not in said
        assert lake.bucket.counter.total() == 0

    def test_who_may_read_tables_alone(
        self, site: Site, lake: Tables, rights: set[str], tables: Tables, connect: Connect
    ) -> None:
        lake.load(1)
        rights.add("Zero Rename tables")
        site.log_in("VIEWER")
        site.ask("", 303)
        assert site.headers["location"] == "tables?conn=lake"
        assert "day=1" in site.ask("table", **PAGES["table"])
        assert "does not lie below" in site.ask("table", 400, conn="lake", table="s3://other/x")
        # What the connection's keys can read beyond a root is for who may read the connection.
        connect("bare")
        for page in ("tables", "table"):
            said = site.ask(page, 403, conn="bare", table=tables.url())
            assert "has no table root" in said
        site.log_in("OP")
        assert "day=1" in site.ask("table", conn="bare", table=tables.url())

    def test_who_may_not_see_plugins(
        self, site: Site, lake: Tables, rights: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []
        monkeypatch.setattr(
            site.manager,
            "is_authorized_view",
            lambda access_view, user: asked.append(access_view.name),
        )
        assert "pages of plugins" in site.ask("tables", 403, conn="lake")
        assert asked == ["PLUGINS"]
        rights.add("Zero Rename tables")
        site.ask("tables", conn="lake")

    def test_a_teams_connection_is_the_teams(
        self, site: Site, lake: Tables, rights: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow.models import Connection

        rights.add("Zero Rename tables")
        monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
        monkeypatch.setattr(Connection, "get_team_name", lambda conn_id: "red")
        teams = ["blue"]
        monkeypatch.setattr(
            site.manager, "is_authorized_team", lambda method, details, user: details.name in teams
        )
        site.log_in("VIEWER")
        site.ask("tables", 403, conn="lake")
        teams.append("red")
        site.ask("tables", conn="lake")

    def test_a_token_that_is_none(self, site: Site) -> None:
        site._client.cookies.set("_token", "x.y.z")
        assert "Not allowed" in site.ask("", 403)

    def test_a_table_out_of_the_root(self, site: Site, lake: Tables) -> None:
        """Who may see a connection's tables may not see all that its keys can read."""
        for url in ("s3://other/wh/flights", lake.url("flights").replace("/wh/", "/wh2/")):
            assert "does not lie below" in site.ask("table", 400, conn="lake", table=url)
        for url in (lake.url("flights"), lake.url("flights").replace("s3:", "s3a:")):
            assert "no zero_rename table here" in site.ask("table", 404, conn="lake", table=url)
        assert "names no table" in site.ask("table", 400, conn="lake", table="../x")

    def test_it_takes_nothing_but_get(self, site: Site) -> None:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            site.ask("table", 405, method=method, **PAGES["table"])

    def test_no_other_site_may_show_it_and_no_script_runs_within(self, site: Site) -> None:
        site.ask("")
        policy = site.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy

    def test_style_and_script_are_for_everybody_and_no_other_file(self, site: Site) -> None:
        site.log_out()
        assert "--committed" in site.ask("files/page.css")
        assert "use strict" in site.ask("files/page.js")
        assert "<svg" in site.ask("files/icon.svg") + site.ask("files/icon-dark.svg")
        for name in ("base.html", "..%2Faccess.py", "table.html"):
            site.ask(f"files/{name}", 404)


class TestConnections:
    def test_those_of_the_database_and_of_the_environment(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow.models import Connection
        from airflow.utils.session import create_session

        monkeypatch.setenv("AIRFLOW_CONN_BY_URI", "zero-rename://?table_root=s3%3A%2F%2Fb%2Fw")
        monkeypatch.setenv("AIRFLOW_CONN_BROKEN", "{")
        monkeypatch.setenv("AIRFLOW_CONN_ANOTHER", '{"conn_type": "aws"}')
        # Airflow only knows names in upper case.
        monkeypatch.setenv("AIRFLOW_CONN_lower", "zero-rename://")
        with create_session() as session:
            session.add(Connection(conn_id="kept", conn_type="zero_rename"))
        try:
            said = site.ask("")
        finally:
            with create_session() as session:
                session.query(Connection).filter_by(conn_id="kept").delete()
        assert "tables?conn=kept" in said
        assert "tables?conn=by_uri" in said
        assert "another" not in said
        assert "lower" not in said
        assert "broken" not in said

    def test_the_only_one_is_taken(self, site: Site, lake: Tables) -> None:
        site.ask("", 303)
        assert site.headers["location"] == "tables?conn=lake"

    def test_one_without_a_table_root(self, site: Site, tables: Tables, connect: Connect) -> None:
        connect("bare")
        assert "has no table root" in site.ask("tables", conn="bare")
        assert "no zero_rename table" in site.ask("table", 404, conn="bare", table=tables.url())


class TestErrors:
    """Each is said on the page, with what to do; never a traceback, never a secret."""

    def told(self, site: Site, status: int, page: str = "table", **query: str) -> str:
        said = site.ask(page, status, **(PAGES["table"] | query))
        assert "Traceback" not in said
        assert SECRET not in said
        return said

    def test_no_such_connection(self, site: Site) -> None:
        said = self.told(site, 400, conn="absent")
        assert "There is no Airflow connection &#39;absent&#39;" in said
        assert "airflow connections add" in said

    def test_one_of_another_type(self, site: Site, connect: Connect) -> None:
        connect("files", "http", login="me", password=SECRET)
        assert "not &#39;zero_rename&#39;" in self.told(site, 400, conn="files")

    def test_no_table(self, site: Site, lake: Tables) -> None:
        assert "There is no zero_rename table here." in self.told(site, 404, table="absent")
        assert "There is no table there yet" in site.ask("tables", conn="lake")

    def test_no_bucket(self, site: Site, tables: Tables, connect: Connect) -> None:
        connect("lake", extra={"table_root": "s3://no-such-bucket-anywhere/wh"})
        assert "no-such-bucket-anywhere" in self.told(site, 502)

    def test_a_store_that_cannot_be_reached(
        self, site: Site, lake: Tables, connect: Connect
    ) -> None:
        connect(
            "aws_default",
            "aws",
            login="key",
            password=SECRET,
            extra={"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"},
        )
        said = self.told(site, 502)
        assert "127.0.0.1:9" in said
        assert "remedy" in said

    def test_one_that_does_not_answer_in_time(
        self, site: Site, lake: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = threading.Event()
        monkeypatch.setattr(routes, "PATIENCE", 0.01)
        monkeypatch.setattr(Table, "overview", lambda self: answers.wait(60))
        try:
            assert "has not answered everything within" in self.told(site, 502)
        finally:
            answers.set()

    def test_what_nobody_expected(
        self,
        site: Site,
        lake: Tables,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(self: Any) -> None:
            raise RuntimeError(f"password={SECRET}")

        monkeypatch.setattr(Table, "overview", fail)
        with caplog.at_level(logging.ERROR):
            said = self.told(site, 500)
        (record,) = [it for it in caplog.records if "Page error" in it.getMessage()]
        assert record.getMessage().split()[-1] in said
        assert "RuntimeError" in said
        assert record.exc_info is not None

    def test_an_address_that_lacks_something(self, site: Site, lake: Tables) -> None:
        assert "missing or invalid parameters" in site.ask("table", 400, conn="lake")
        assert "day" in self.told(site, 400, day="<script>")
        assert "No such page" in site.ask("elsewhere", 404)

    def test_a_connection_that_was_mended_is_read_anew(
        self, site: Site, lake: Tables, connect: Connect
    ) -> None:
        good = lake.url("")
        bad = {"table_root": "s3://no-such-bucket-anywhere/wh"}
        connect("lake", extra=bad)
        self.told(site, 502)
        connect("lake", extra={"table_root": good})
        self.told(site, 404)


def test_the_plugin_describes_it_for_airflows_navigation() -> None:
    from zero_rename.provider.plugin import ZeroRenamePlugin

    (entry,) = ZeroRenamePlugin.external_views
    assert (entry["href"], entry["url_route"]) == ("/zero-rename/", "zero-rename")
    (mounted,) = ZeroRenamePlugin.fastapi_apps
    assert mounted["url_prefix"] == MOUNT
