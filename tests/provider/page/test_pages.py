"""What the pages say, and that nothing of a bucket is taken for markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World
from zero_rename.committer import InvalidInputError, Owner, Problem, TableOverview
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.layout import new_write_id
from zero_rename.committer.format.records.decision import Decision
from zero_rename.committer.format.records.failure import Failure
from zero_rename.committer.format.records.run_conflict import SettledBy, Settlement
from zero_rename.committer.format.row_changes import ChangeReads, RowChanges
from zero_rename.committer.overview.orphaned_uploads import find_orphaned_uploads
from zero_rename.committer.overview.partition_history import look_back
from zero_rename.committer.overview.recent_jobs import read_job_manifest
from zero_rename.committer.overview.table_overview import look_over
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep.conflicts.conflict_record import settle
from zero_rename.committer.upkeep.conflicts.conflict_search import find_conflicts
from zero_rename.provider.page import pages, wording
from zero_rename.provider.page.addresses import task_address
from zero_rename.provider.page.failed_tasks import FailedTask

TASK = Owner(dag_id="flights", run_id="scheduled__2013-02-02T00:00:00+00:00", task_id="load")
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
#: All that the templates themselves have.
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "div", "main"),
    *("section", "h1", "h2", "h3", "p", "b", "i", "small", "span", "a", "time", "code", "ul", "li"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "text", "line", "rect", "details"),
    *("summary", "form", "label", "input", "button"),
}


class Read(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.said)

    def links(self) -> dict[str, str]:
        return {(it.get("href") or ""): tag for tag, it in self.tags if it.get("href")}


def visitor(sees: bool = True) -> Any:
    return SimpleNamespace(may_see_dag=lambda dag_id: sees)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(MemoryStore(clock))


def look(world: World) -> TableOverview:
    return world.driver.run(look_over(world.context, 100))


def table_page(
    world: World, sees: bool = True, tasks: Sequence[FailedTask] = (), **asked: Any
) -> Read:
    asked = {"year": None, "day": None, **asked}
    return Read(pages.table(visitor(sees), "lake", "flights", look(world), tasks, **asked))


def verdict(world: World) -> tuple[str, str]:
    said = wording.verdict_on(look(world), ())
    return said.level, said.text


def partition_page(world: World, partition: str) -> str:
    overview = look(world)
    history = world.driver.run(look_back(world.context, partition, overview.jobs))
    return pages.partition(visitor(), "lake", "flights", overview, history)


def fail(world: World, *partitions: str, owner: Owner = TASK, text: str = "no such column") -> None:
    error = InvalidInputError(text, remedy="Name it.")
    failure = Failure.of(error, ROOT, "idempotency_key", owner, new_write_id(), partitions)
    world.store.apply(Put(ROOT.failure_key("idempotency_key"), failure.encode()))


class TestTable:
    def test_a_quiet_night(self, world: World, clock: ManualClock) -> None:
        world.load(DAY1, rows=842, owner=TASK)
        clock.advance(7200.0)
        page = table_page(world)
        assert "Nothing needs action" in page.text
        assert "Last commit 2 hours ago : 842 rows into day=1" in page.text
        assert "Needs action" not in page.text.replace("Nothing needs action", "")

    def test_failed_tasks_alone(self, world: World) -> None:
        world.load(DAY1)
        overview = look(world)
        lost, again = (FailedTask(TASK, overview.now, it, DAY1) for it in (False, True))
        for tasks, level, said in (
            ([lost] * 3, "failed", "3 failed tasks"),
            ([again], "running", "1 failed task to be tried again"),
            ([lost, again], "failed", "1 failed task; 1 failed task to be tried again"),
        ):
            assert vars(wording.verdict_on(overview, tasks)) == {"level": level, "text": said}
            glance = Read(f"<table>{pages.glance('lake', 'flights', overview, tasks)}</table>")
            for page in (table_page(world, tasks=tasks), glance):
                assert said in page.text
                assert "Nothing needs action" not in page.text
        said = table_page(world, tasks=[lost]).text
        assert "has failed; neither a commit nor a failure of it is shown here" in said

    def test_an_unreadable_partition_alone(self, world: World) -> None:
        world.load(DAY1, DAY2)
        world.store.apply(Put(ROOT.head_key(DAY1), b"{"))
        assert verdict(world) == ("failed", "Partitions: 1 unreadable")

    def test_a_failed_run_of_no_known_partition_alone(self, world: World) -> None:
        world.load(DAY1)
        fail(world)
        assert verdict(world) == ("failed", "1 failed run of no known partition")

    def test_conflict_is_shown_until_it_is_settled_and_then_who_decided(self, world: World) -> None:
        world.date_jobs()
        for rank in (2, 1):
            run: dict[str, Any] = {"idempotency_key": f"run {rank}", "run_rank": rank}
            world.load(DAY1, owner=TASK, mode=Mode.REPLACE, **run)
        (conflict,) = world.driver.run(find_conflicts(world.context)).conflicts
        assert verdict(world) == ("conflicted", "Partitions: 1 conflicted")
        page = table_page(world).text
        assert "Needs action" in page
        assert "the older came later" in page
        by = Owner("maintenance", "r", "settle")
        done = Settlement("run 1", ("run 2",), None, by, "keep=x", SettledBy.KEPT)
        world.driver.run(settle(ROOT.conflicts_key, conflict, done))
        assert verdict(world)[0] == "quiet"
        page = table_page(world).text
        assert "Settled (kept, keep=x) by" in page
        assert "maintenance" in page

    def test_texts_do_not_name_a_dag_that_the_visitor_may_not_see(self, world: World) -> None:
        world.date_jobs()
        for rank in (2, 1):
            owner = Owner(dag_id=f"secret.{rank}", run_id=f"run {rank}", task_id="load")
            run: dict[str, Any] = {"idempotency_key": f"secret.{rank}/run/load", "run_rank": rank}
            world.load(DAY1, owner=owner, mode=Mode.REPLACE, **run)
        (conflict,) = world.driver.run(find_conflicts(world.context)).conflicts
        text = "beside secret.2.load, for (secret.1/run/load); secretary waits. And secret.2."
        fail(world, DAY2, owner=Owner(dag_id="secret.1", run_id="r", task_id="load"), text=text)
        overview = look(world)
        history = world.driver.run(look_back(world.context, DAY1, overview.jobs))
        for sees in (True, False):
            of_day = pages.partition(visitor(sees), "lake", "flights", overview, history)
            for page in (table_page(world, sees).text, Read(of_day).text):
                assert "Runs conflict" in page
                assert ("secret." in page) == sees
        hidden = table_page(world, sees=False).text
        assert "for (a DAG you may not see); secretary waits. And a DAG you may not see." in hidden
        by = Owner("secret.1", "r", "settle")
        done = Settlement("x", ("y",), None, by, "prefer=secret.2", SettledBy.KEPT)
        world.driver.run(settle(ROOT.conflicts_key, conflict, done))
        assert "prefer=a DAG you may not see" in table_page(world, sees=False).text

    def test_a_job_whose_record_cannot_be_read_alone(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open()
        world.store.apply(Put(ROOT.open_key(opened.job), b"{"))
        assert verdict(world) == ("failed", "1 job left open by a dead process")

    def test_an_aborted_job_is_not_running(self, world: World, clock: ManualClock) -> None:
        world.load(DAY1)
        opened = world.open(max_duration=60.0)
        world.write(opened, DAY1)
        abort = Decision.abort(opened.job, new_write_id())
        world.store.apply(Put(ROOT.decision_key(opened.job), abort.encode()))
        page = table_page(world)
        assert "Nothing needs action" in page.text
        assert "running" not in page.text
        assert "aborted none of its rows will be visible" in page.text
        clock.advance(61.0)
        assert "1 job left open by a dead process" in table_page(world).text

    def test_a_night_that_is_not(self, world: World, clock: ManualClock) -> None:
        for day in (1, 2, 3):
            world.load(f"date=2013-02-0{day}", schema=_dated(), partition_by=("date",))
        fail(world, "date=2013-02-02", "date=2013-02-04")
        world.write(
            world.open(schema=_dated(), partition_by=("date",), owner=TASK), "date=2013-02-03"
        )
        page = table_page(world)
        assert "Partitions: 2 failed, 1 running" in page.text
        assert "InvalidInputError : no such column Name it." in page.text
        squares = [it.get("class") for tag, it in page.tags if tag == "rect" and it.get("rx")]
        assert squares == ["s-committed", "s-failed", "s-running", "s-failed"]

    def test_who_ran_a_job_leads_to_its_task(self, world: World) -> None:
        world.load(DAY1, owner=TASK)
        address = "../dags/flights/runs/scheduled__2013-02-02T00%3A00%3A00%2B00%3A00/tasks/load"
        page = table_page(world)
        assert address in page.links()
        assert "flights.load" in page.text
        hidden = table_page(world, sees=False)
        assert address not in hidden.links()
        assert "flights.load" not in hidden.text
        assert "a DAG you may not see" in hidden.text

    @pytest.mark.parametrize("application", ["dagster", "flights_job.py"])
    def test_run_of_dagster_leads_to_no_dag(self, world: World, application: str) -> None:
        """The link led to a DAG that does not exist, or its name was hidden as that of a DAG."""
        run = "6f1d2c3b-4a59-4e8f-9b7a-0c1d2e3f4a5b"
        series = f"- {'0' * 16} {run}"
        owner = Owner("__ASSET_JOB", run, "flights", application=application, series=series)
        world.load(DAY1, owner=owner)
        page = table_page(world, sees=False)
        assert not any("/dags/" in link for link in page.links())
        assert "Dagster, asset flights" in page.text

    def test_a_mapped_tasks_try(self) -> None:
        owner = Owner(dag_id="d/e", run_id="r", task_id="t", map_index=3, try_number=2)
        assert task_address(owner) == "../dags/d%2Fe/runs/r/tasks/t/mapped/3?try_number=2"
        assert task_address(Owner(application="a.py")) is None

    def test_partitions_without_a_day(self, world: World) -> None:
        world.load(DAY1, "day=2")
        page = table_page(world)
        assert "partition?conn=lake&table=flights&partition=day%3D1" in page.links()
        assert "svg" not in dict(page.tags)

    def test_a_day_of_several_partitions_lists_them(self, world: World) -> None:
        names = [f"date=2013-02-01/day={hour}" for hour in (1, 2)]
        world.load(*names, schema=_dated(), partition_by=("date", "day"))
        page = table_page(world)
        assert "table?conn=lake&table=flights&day=2013-02-01#day" in page.links()
        from datetime import date

        shown = str(table_page(world, day=date(2013, 2, 1)).links())
        assert "partition=date%3D2013-02-01%2Fday%3D1" in shown
        assert "partition=date%3D2013-02-01%2Fday%3D2" in shown

    def test_partitions_of_a_day_that_end_in_the_same_column_have_their_whole_names(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from datetime import date

        names = [f"day={number}/date=2013-02-01" for number in (1, 2, 3)]
        world.load(*names, schema=_dated(), partition_by=("day", "date"))
        text = table_page(world, day=date(2013, 2, 1)).text
        assert all(name in text for name in names)
        monkeypatch.setattr(pages, "_SQUARES", 2)
        text = table_page(world, day=date(2013, 2, 1)).text
        assert "and 1 more" in text

    def test_number_of_failed_runs_that_are_left_out(self, world: World) -> None:
        world.load(DAY1)
        for number in range(27):
            error = InvalidInputError("no such column")
            key = f"key-{number}"
            failure = Failure.of(error, ROOT, key, TASK, new_write_id(), (DAY1,))
            world.store.apply(Put(ROOT.failure_key(key), failure.encode()))
        assert "and 2 more" in table_page(world).text

    def test_a_table_that_is_not_made_yet(self, world: World) -> None:
        world.write(world.open(), DAY1)
        page = table_page(world)
        assert "its first job is not committed" in page.text
        assert "No job has committed lately" in page.text


def _dated() -> Any:
    import pyarrow as pa

    return pa.schema([("value", pa.int64()), ("date", pa.string()), ("day", pa.int32())])


class TestPartition:
    def test_its_history(self, world: World, clock: ManualClock) -> None:
        first = world.load(DAY1, rows=3, owner=TASK).job
        clock.advance(60.0)
        second = world.load(DAY1, mode=Mode.REPLACE, rows=5).job
        page = Read(partition_page(world, DAY1))
        rows = page.text.partition("History")[2]
        assert rows.index(second) < rows.index(first)
        assert "replaced" in rows
        assert f"job?conn=lake&table=flights&job={first}" in page.links()

    def test_one_that_nobody_wrote(self, world: World) -> None:
        world.load(DAY1)
        assert "No job has written this partition" in Read(partition_page(world, "day=9")).text


class TestJob:
    def page(self, world: World, job: str) -> Read:
        found = world.driver.run(read_job_manifest(world.context, job))
        return Read(pages.job(visitor(), "lake", "flights", job, found))

    def test_its_manifest(self, world: World) -> None:
        done = world.load(DAY1, rows=7, owner=TASK)
        page = self.page(world, done.job)
        (file,) = world.snapshot().files
        assert file.key in page.text
        assert file.checksum in page.text

    def test_number_of_partitions_that_are_left_out(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = world.load(DAY1, DAY2, "day=3")
        monkeypatch.setattr(pages, "_CHANGES_SHOWN", 2)
        partitions = self.page(world, done.job).text.partition("Manifest")[0]
        assert "and 1 more" in partitions
        assert "day=3" not in partitions

    def test_what_a_merge_did(self, world: World) -> None:
        world.load(DAY1, rows=2)
        policy: dict[str, Any] = {
            "replace_partitions": (DAY1,),
            "row_changes": {DAY1: RowChanges(inserted=3, deleted=5)},
            "change_reads": ChangeReads(partitions_left=4, rows_left=70, bytes_read=2048),
        }
        done = world.load(DAY1, mode=Mode.REPLACE, rows=3, **policy)
        text = self.page(world, done.job).text
        assert "Inserted 3 Updated 0 Deleted 5 Unchanged 70" in text
        assert "Partitions left 4 Bytes read 2.0 KiB" in text

    def test_an_aborted_one_and_one_without_a_decision(self, world: World) -> None:
        world.load(DAY1)
        opened = world.open()
        assert "no decision about this job" in self.page(world, opened.job).text
        world.abort(opened)
        assert "None of its rows is or will be visible" in self.page(world, opened.job).text

    def test_what_is_no_job(self, world: World) -> None:
        with pytest.raises(InvalidInputError, match="no job's id"):
            self.page(world, "../../secrets")


def test_orphaned_uploads_in_bytes_and_dollars(world: World, clock: ManualClock) -> None:
    world.load(DAY1)
    opened = world.open(max_duration=1.0)
    world.write(opened, DAY1)
    clock.advance(2.0)
    left = world.driver.run(find_orphaned_uploads(ROOT))
    about = {"conn": "lake", "name": "flights", "url": ROOT.url}
    page = Read(pages.page("upkeep_part.html", **about, left=left, problems=[]))
    assert "Leaked uploads 1" in page.text
    assert "less than $0.01 a month" in page.text
    assert f"zero-rename purge {ROOT.url} --apply" in page.text
    assert "No problems" in page.text
    assert "html" not in dict(page.tags)


@pytest.mark.parametrize(
    ("size", "cost"), [(0, "$0.00"), (2**30, "$0.02"), (2**40, "$23.55"), (1, "less than $0.01")]
)
def test_what_bytes_cost(size: int, cost: str) -> None:
    assert wording.cost_text(size) == cost


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 seconds"), (1, "1 second"), (7200, "2 hours"), (90_000, "1 day"), (-5, "0 seconds")],
)
def test_how_long_ago(seconds: float, text: str) -> None:
    assert wording.span_text(seconds) == text


class TestStrangers:
    """Whoever writes into the bucket says what he likes in names, owners and messages."""

    @pytest.fixture
    def evil(self, world: World, clock: ManualClock) -> World:
        owner = Owner(
            dag_id=EVIL, run_id=EVIL, task_id=EVIL, application=EVIL, host=EVIL, try_number=1
        )
        by: dict[str, Any] = {"owner": owner, "schema": _dated(), "partition_by": ("date",)}
        world.load(f"date={EVIL.replace('/', '%2F')}", **by)
        world.load("date=2013-02-01", **by, idempotency_key=EVIL)
        world.load("date=2013-02-01", **by, idempotency_key="x", mode=Mode.REPLACE)
        world.load("date=2013-02-01", **dict(by, owner=Owner(application=EVIL, host=EVIL)))
        fail(world, f"date={EVIL}", owner=owner, text=EVIL)
        world.write(world.open(**by, max_duration=1.0), f"date={EVIL.replace('/', '%2F')}")
        clock.advance(2.0)
        return world

    def pages(self, world: World) -> dict[str, Callable[[], str]]:
        overview = look(world)
        name = overview.partitions[0].name
        job = overview.jobs[0].job
        left = world.driver.run(find_orphaned_uploads(ROOT))
        upkeep: dict[str, Any] = {**dict.fromkeys(("conn", "name", "url"), EVIL), "left": left}
        upkeep["problems"] = [Problem(EVIL, EVIL, EVIL, EVIL)]
        problem = dict.fromkeys(("title", "said", "remedy"), EVIL)
        found = world.driver.run(read_job_manifest(world.context, job))
        owner = Owner(dag_id=EVIL, run_id=EVIL, task_id=EVIL, map_index=-1, try_number=1)
        tasks = [FailedTask(owner, overview.now, again=False, partition=EVIL)]
        return {
            "table": lambda: pages.table(visitor(), EVIL, EVIL, overview, tasks, None, None),
            "glance": lambda: pages.glance(EVIL, EVIL, overview, tasks),
            "partition": lambda: partition_page(world, name),
            "unknown": lambda: partition_page(world, EVIL),
            "job": lambda: pages.job(visitor(), EVIL, EVIL, job, found),
            "upkeep": lambda: pages.page("upkeep.html", **upkeep),
            "tables": lambda: pages.page("tables.html", conn=EVIL, root=EVIL, names=[EVIL]),
            "connections": lambda: pages.page("connections.html", known=[EVIL], default=EVIL),
            "problem": lambda: pages.page("problem.html", status=400, **problem),
        }

    def test_nothing_of_it_is_markup(self, evil: World) -> None:
        for name, page in self.pages(evil).items():
            read = Read(page())
            assert "alert(1)" in page(), name
            assert {tag for tag, _ in read.tags} <= TAGS, name
            scripts = [it for tag, it in read.tags if tag == "script"]
            assert all(it.get("src") == "files/page.js" for it in scripts), name
            attributes = {attribute for _, it in read.tags for attribute in it}
            assert not {it for it in attributes if it.startswith("on")}, name
            addresses = [it for link in read.links() for it in [link.split(":")[0].lower()]]
            assert "javascript" not in addresses, name
            assert "49" not in read.said, name
