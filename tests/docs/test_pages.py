"""Pages whose code and commands do what they say, as they stand."""

from __future__ import annotations

import random
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Behind, Bucket

import zero_rename
import zero_rename.tables
from support.command_line import invoke
from support.doc_examples import DOCS, blocks, commands, examples
from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.moto_server import running
from support.protocol import ROOT, memory_table
from support.refusing_store import demanding_encryption
from zero_rename import JobSpec, Table
from zero_rename.committer import DamagedError, Mode
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

#: The pages' table.
URL = "s3://bucket/flights"


def text_of(page: str, url: str = URL) -> str:
    """A page about a table of ours."""
    return (DOCS / page).read_text("utf-8").replace(URL, url)


def run(page: str, name: str, table: Table) -> None:
    """Run a marked example."""
    exec(examples(DOCS / page)[name].replace(URL, table.root.url), {})


def done(words: Sequence[str]) -> str:
    """What a command says that ends well."""
    result = invoke(*words)
    assert result.exit_code == 0, f"{words}: {result.output}"
    return result.output


def appended(table: Table, rows: pa.Table, *partition_by: str) -> None:
    with table.job(rows.schema, partition_by=partition_by) as job:
        job.write(rows)


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    """A table that is not there yet."""
    return Table(f"s3://{s3_bucket.name}/flights")


class TestCatalogs:
    """docs/catalogs.md"""

    @pytest.fixture(autouse=True)
    def flights(self, table: Table) -> None:
        days = ["2013-01-01", "2013-01-01", "2013-01-02"]
        columns = {"day": days, "carrier": ["UA", "AA", "B6"], "delay": [20.0, None, 70.0]}
        appended(table, pa.table(columns), "day")

    @pytest.fixture(autouse=True)
    def glue(self, glue_client: Any) -> Iterator[Any]:
        glue_client.create_database(DatabaseInput={"Name": "database"})
        yield glue_client
        glue_client.delete_database(Name="database")

    def test_python_examples_run(self, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
        names: dict[str, Any] = {}
        for example in blocks(text_of("catalogs.md", table.root.url)):
            exec(example, names)
        assert names["late"].count() == 2
        assert capsys.readouterr().out.split() == ["1", "1"]

    def test_commands_run(self, table: Table, glue: Any) -> None:
        """In their order, on one table."""
        found = commands(text_of("catalogs.md", table.root.url))
        assert len(found) >= 7
        for words in found:
            done(words)
        there = glue.get_table(DatabaseName="database", Name="flights")["Table"]
        assert there["StorageDescriptor"]["Location"] == f"{table.root.url}/"


def test_evolution_in_plain_python(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/schema-evolution.md"""
    rows = pa.table({"day": ["2013-01-01"], "delay": pa.array([20], pa.int32())})
    appended(table, rows, "day")
    first, _, third = blocks(text_of("schema-evolution.md", table.root.url))[:3]
    names: dict[str, Any] = {}
    exec(first, names)
    assert capsys.readouterr().out.split() == ["int64", "1"]
    assert table.to_arrow(columns=["delay"]).column("delay").to_pylist() == [20, 2**40]
    exec(third, names)
    assert Table(table.root.url).to_arrow().to_pylist() == [{"delay": "late", "day": "2013-01-02"}]


class TestCheapReads:
    """The guide *Make reads cheap*"""

    PAGE = "guides/cheap-reads.md"
    ROWS = range(4_000)

    @pytest.fixture(autouse=True)
    def flights(self, table: Table) -> None:
        """Four files, in each of which stands any flight."""
        numbers = list(self.ROWS)
        random.Random(1).shuffle(numbers)
        for place in range(4):
            appended(table, pa.table({"flight_id": numbers[place::4]}))

    def test_its_commands_sort_what_is_there(self, table: Table) -> None:
        def opened() -> int:
            """Files that a reader of the page's condition opens."""
            return len(table.scan(filter=pc.field("flight_id") < 1000).files)

        asks, does = commands(text_of(self.PAGE, table.root.url))
        run(self.PAGE, "read", table)
        done(asks)
        assert opened() == 4
        done(does)
        assert opened() == 1
        assert table.to_arrow()["flight_id"].to_pylist() == list(self.ROWS)

    def test_its_code_sorts_as_well(self, table: Table) -> None:
        run(self.PAGE, "sort", table)
        assert table.to_arrow()["flight_id"].to_pylist() == list(self.ROWS)


@pytest.mark.usefixtures("s3_server")
def test_encryption_that_a_bucket_demands(table: Table, behind: Behind) -> None:
    """The guide *Write where a bucket demands encryption*"""
    page = "guides/encryption.md"
    code = examples(DOCS / page)["encryption"].replace(URL, table.root.url)
    names: dict[str, Any] = {"rows": pa.table({"day": [1], "n": [1]})}
    key = re.findall(r'KEY = "(.*)"', code)[0]
    behind(demanding_encryption("aws:kms", key))
    exec(code, names)
    doctor, changes = commands(text_of(page, table.root.url))
    assert "encryption demanded" not in invoke(*doctor).output
    done(changes)
    assert str(Table(table.root.url).encryption) == "SSE-KMS arn:aws:kms:…"
    assert "encryption demanded" in invoke(*doctor).output


def test_a_fast_store_first(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guide *Write to a fast store first*"""
    profile = "aws_access_key_id = other\naws_secret_access_key = secret\nregion = us-east-1\n"
    (tmp_path / "config").write_text(f"[profile nvme]\n{profile}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with running() as fast:
        fast.client().create_bucket(Bucket="fast")
        text = text_of("guides/fast-tier.md").replace("s3://bucket/", f"s3://{bucket}/")
        text = text.replace("http://nvme.example:9000", fast.endpoint)
        names: dict[str, Any] = {}
        for code in blocks(text):
            exec(code, names)
        days = "['day=2026-01-30', 'day=2026-01-31']"
        assert capsys.readouterr().out == f"{days}\n{days} []\n"
        table = DeltaTable(f"s3://{bucket}/flights")
        with table.job(replace_partitions=["day=2026-01-31"], mode="replace") as job:
            job.write(table.scan(["day=2026-01-31"]).to_arrow())
        shown, copied, *_ = said = [done(words) for words in commands(text)]
    assert "would copy" in shown
    assert "copied" in copied
    assert table.data_root is None
    assert "secret" not in "".join(said)


class TestLostRecords:
    """The guide *My records are gone*"""

    PAGE = "guides/my-records-are-gone.md"
    DAYS = ("2013-01-01", "2013-01-02", "2013-01-03")

    @pytest.fixture(autouse=True)
    def loaded(self, table: Table) -> None:
        """A row for each of three days, the second of them replaced and hidden."""
        for number, day in enumerate(self.DAYS):
            appended(table, pa.table({"flight": [number], "day": [day]}), "day")
        rows = pa.table({"flight": [10], "day": self.DAYS[1:2]})
        opened = table.open_job(JobSpec(rows.schema, Mode.REPLACE, keep_replaced=True))
        writer = table.task_writer(opened, 0, 0)
        writer.write(rows)
        table.commit(opened, [writer.close()])

    @pytest.fixture
    def codes(self, table: Table) -> Any:
        """Carries out some of the page's commands for directories. Returns their exit codes."""
        of_directories, _, _ = text_of(self.PAGE, table.root.url).partition("## Entries of a Delta")
        found = commands(of_directories)
        return lambda *names: [
            invoke(*words).exit_code for words in found if not names or words[0] in names
        ]

    @staticmethod
    def flights(table: Table, partitions: list[str] | None = None) -> list[int]:
        return sorted(table.to_arrow(partitions=partitions)["flight"].to_pylist())

    @staticmethod
    def lose(bucket: Bucket, below: str) -> None:
        for key in bucket.keys(f"flights/_zero_rename/{below}"):
            bucket.client.delete_object(Bucket=bucket.name, Key=key)

    def test_its_commands_tell_of_a_head_and_build_it_again(
        self, table: Table, s3_bucket: Bucket, codes: Any
    ) -> None:
        self.lose(s3_bucket, f"heads/day={self.DAYS[1]}.json")
        with pytest.raises(DamagedError):
            self.flights(table)
        assert codes() == [1, 1, 1, 0, 1]
        assert self.flights(table) == [0, 2, 10]
        # What the replace kept is all that is left to name.
        (found,) = table.verify()
        assert str(found.kind) == "unnamed"

    def test_a_replace_makes_a_partition_whole_of_which_the_decisions_do_not_tell(
        self, table: Table, s3_bucket: Bucket, codes: Any
    ) -> None:
        self.lose(s3_bucket, f"heads/day={self.DAYS[1]}.json")
        self.lose(s3_bucket, "jobs/")
        assert codes("repair") == [1, 1]
        # The other partitions' heads name decisions that are gone as well.
        for partitions in (None, [f"day={self.DAYS[0]}"]):
            with pytest.raises(DamagedError):
                self.flights(table, partitions)
        run(self.PAGE, "replace", table)
        assert self.flights(table, [f"day={self.DAYS[1]}"]) == [1, 2]

    def test_a_job_makes_the_record_of_the_table_again(
        self, table: Table, s3_bucket: Bucket, codes: Any
    ) -> None:
        self.lose(s3_bucket, "table.json")
        assert codes("doctor", "verify") == [1, 1, 1]
        with pytest.raises(DamagedError):
            self.flights(table)
        run(self.PAGE, "append", table)
        assert self.flights(table) == [0, 2, 3, 10]

    def test_a_replace_of_all_begins_anew_without_any_record(
        self, table: Table, s3_bucket: Bucket, codes: Any
    ) -> None:
        self.lose(s3_bucket, "")
        assert codes("doctor", "verify") == [1, 1, 1]
        with pytest.raises(DamagedError):
            self.flights(table)
        with pytest.raises(DamagedError):
            run(self.PAGE, "append", table)
        run(self.PAGE, "anew", table)
        assert self.flights(table) == [1, 2, 3]
        assert table.verify() == []


class TestReadYesterday:
    """The guide *Read yesterday, undo a job*, but for the job that it undoes"""

    @pytest.fixture
    def store(self, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
        """A store whose clock is at the evening of the page."""
        then = datetime(2026, 1, 31, 23, 0, tzinfo=UTC).timestamp()
        store = MemoryStore(clock=ManualClock(then - 3600))
        for name in ("zero_rename.cli.tables", "zero_rename.cli.upkeep"):
            monkeypatch.setattr(import_module(name), "Table", lambda _: memory_table(store))
        monkeypatch.setattr(zero_rename.tables, "DeltaTable", lambda _: self.table_in(store))
        return store

    @pytest.fixture
    def text(self, store: MemoryStore) -> str:
        """The page. After seven jobs of one evening, its job has replaced their rows a night
        later."""
        for _ in range(7):
            self.load(store, 1)
        store.clock.advance(7200)
        job = self.load(store, 2)
        return text_of("guides/read-yesterday.md").replace("zr1-01J0000000000000000000000A", job)

    def table_in(self, store: MemoryStore) -> DeltaTable:
        table = DeltaTable(ROOT.url)
        table.driver = MemoryDriver(store)  # type: ignore[assignment]
        return table

    def load(self, store: MemoryStore, flight: int) -> str:
        rows = pa.table({"flight": [flight], "day": ["2026-01-30"]})
        with self.table_in(store).job(rows.schema, mode="replace", partition_by=["day"]) as job:
            job.write(rows)
        return str(job.job)

    def rows(self, store: MemoryStore) -> list[int]:
        return self.table_in(store).scan().to_arrow()["flight"].to_pylist()

    def test_its_code_reads_and_brings_back(self, text: str, store: MemoryStore) -> None:
        [code] = blocks(text)
        assert self.rows(store) == [2]
        exec(code, {})
        assert self.rows(store) == [1]
        assert self.table_in(store).history(1)[0].operation == "RESTORE"

    def test_its_commands_too(self, text: str, store: MemoryStore) -> None:
        history, undo, restore, retention, shorter, purge = commands(text)
        assert undo[undo.index("--job") + 1] in done(history)
        done(undo)
        assert self.rows(store) == [1]
        self.load(store, 2)
        done(restore)
        assert self.rows(store) == [1]
        assert "30 days" in done(retention)
        assert "0.0416667 days" in done(shorter)
        assert len(store.keys("flights/data/")) > 1
        # Jobs tell by their own clock when they removed a file.
        store.clock.advance(time.time() + 3601 - store.clock())
        done(purge)
        assert len(store.keys("flights/data/")) == 1


#: A command, or a marked block of Python, in a page's order.
_STEP = re.compile(
    r"^\$ zero-rename (.*?)(?:# ends with (\d).*)?$|<!-- example: ([\w-]+) -->", re.M
)


def test_what_is_stale(s3_bucket: Bucket) -> None:
    """The guide *What is stale*"""
    page, here = DOCS / "guides" / "what-is-stale.md", f"s3://{s3_bucket.name}"
    names: dict[str, Any] = {}
    ran = []
    for command, code, example in _STEP.findall(page.read_text("utf-8")):
        if example:
            exec(examples(page)[example].replace("s3://bucket", here), names)
        else:
            found = invoke(*shlex.split(command.replace("s3://bucket", here), comments=True))
            assert not code or found.exit_code == int(code), found.output
            ran.append(found.output)
        if example == "programs":
            for day in range(14):
                names["make_day"](day, 800)
            names["make_week"](0)
            names["make_week"](1)
            names["make_month"]()
    stale, behind, plan, chart, again, at_last, other_version, all_of_it = ran
    assert "week=0" in stale
    assert "week=1" not in stale
    assert "behind" in behind
    assert "2 jobs in 2 layers" in plan
    assert chart.startswith("flowchart LR")
    assert "1 job in 1 layer" in again
    assert "Nothing needs to run again" in at_last
    assert other_version.count("made by no code version, now 4") == 2
    assert "3 jobs in 2 layers" in all_of_it
