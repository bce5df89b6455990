"""The guide *My records are gone*: its commands and its code do what it says, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Bucket
from typer.testing import CliRunner

from support.doc_examples import examples
from zero_rename import JobSpec, Table
from zero_rename.cli import app
from zero_rename.committer import DamagedError, Mode

pytestmark = pytest.mark.memory_s3

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "my-records-are-gone.md"
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]
#: The page's table.
URL = "s3://bucket/flights"


def commands() -> list[str]:
    text = "\n".join(re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))
    lines = [line for line in text.splitlines() if line]
    return [line.split("#")[0].removeprefix("$ ").strip() for line in lines]


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    """A table with a row for each of three days, the second of them replaced and hidden."""
    table = Table(f"s3://{s3_bucket.name}/flights")
    for number, day in enumerate(DAYS):
        rows = pa.table({"flight": [number], "day": [day]})
        with table.job(rows.schema, partition_by=("day",)) as job:
            job.write(rows)
    rows = pa.table({"flight": [10], "day": DAYS[1:2]})
    opened = table.open_job(JobSpec(rows.schema, Mode.REPLACE, keep_replaced=True))
    writer = table.task_writer(opened, 0, 0)
    writer.write(rows)
    table.commit(opened, [writer.close()])
    return table


def flights(table: Table) -> list[int]:
    return sorted(table.to_arrow()["flight"].to_pylist())


def lose(bucket: Bucket, below: str) -> None:
    for key in bucket.keys(f"flights/_zero_rename/{below}"):
        bucket.client.delete_object(Bucket=bucket.name, Key=key)


def run(name: str, table: Table) -> None:
    exec(examples(PAGE)[name].replace(URL, table.root.url), {})


def ends(table: Table, command: str) -> int:
    words = shlex.split(command.replace(URL, table.root.url))
    assert words[0] == "zero-rename"
    return CliRunner().invoke(app, words[1:]).exit_code


def test_its_commands_tell_of_a_head_and_build_it_again(table: Table, s3_bucket: Bucket) -> None:
    lose(s3_bucket, f"heads/day={DAYS[1]}.json")
    with pytest.raises(DamagedError):
        flights(table)
    assert [ends(table, command) for command in commands()] == [1, 1, 1, 0, 1]
    assert flights(table) == [0, 2, 10]
    # What the replace kept is all that is left to name.
    (found,) = table.verify()
    assert str(found.kind) == "unnamed"


def test_a_replace_makes_a_partition_whole_of_which_the_decisions_do_not_tell(
    table: Table, s3_bucket: Bucket
) -> None:
    lose(s3_bucket, f"heads/day={DAYS[1]}.json")
    lose(s3_bucket, "jobs/")
    repair = [command for command in commands() if "repair" in command]
    assert [ends(table, command) for command in repair] == [1, 1]
    with pytest.raises(DamagedError):
        flights(table)
    # The other partitions' heads name decisions that are gone as well.
    with pytest.raises(DamagedError):
        table.to_arrow(partitions=[f"day={DAYS[0]}"])
    run("replace", table)
    assert sorted(table.to_arrow(partitions=[f"day={DAYS[1]}"])["flight"].to_pylist()) == [1, 2]


def test_a_job_makes_the_record_of_the_table_again(table: Table, s3_bucket: Bucket) -> None:
    lose(s3_bucket, "table.json")
    assert [ends(table, command) for command in commands()[:2]] == [1, 1]
    with pytest.raises(DamagedError):
        flights(table)
    run("append", table)
    assert flights(table) == [0, 2, 3, 10]


def test_a_replace_of_all_begins_anew_without_any_record(table: Table, s3_bucket: Bucket) -> None:
    lose(s3_bucket, "")
    assert [ends(table, command) for command in commands()[:2]] == [1, 1]
    with pytest.raises(DamagedError):
        flights(table)
    with pytest.raises(DamagedError):
        run("append", table)
    run("anew", table)
    assert flights(table) == [1, 2, 3]
    assert table.verify() == []
