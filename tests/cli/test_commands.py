"""The command line on a real server: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from rich.console import Console
from typer.testing import Result

import zero_rename
from support.command_line import as_json, invoke
from support.s3a_jobs import OTHER, MagicJob, a_try
from support.s3a_stand_in import marker
from zero_rename import JobSpec, Table
from zero_rename.cli import app
from zero_rename.cli.help_page import HEADINGS
from zero_rename.cli.output import Exit, sheet_of
from zero_rename.committer import (
    CommitStateUnknownError,
    DataLostError,
    OpenedJob,
    OutcomeUnknownError,
    Owner,
    StoreRefusedError,
    TaskResult,
    UnfinishedCommitError,
    UnfinishedUpkeepError,
    ZeroRenameError,
)
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.backoff import Backoff
from zero_rename.committer.store.requests import AbortUpload, Put, Unknown
from zero_rename.s3a.runs.ledger import open_try
from zero_rename.s3a.runs.try_record import FAILED
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

ROOT = Path(__file__).resolve().parents[2]
DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    table = Table(f"s3://{s3_bucket.name}/flights")
    with table.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    return table


def written(table: Table, **policy: Any) -> tuple[OpenedJob, TaskResult]:
    """A job with its files written and nothing decided."""
    opened = table.open_job(JobSpec(DATA.schema, **policy))
    writer = table.task_writer(opened, 0, 0)
    writer.write(DATA)
    return opened, writer.close()


def commands() -> dict[str, Any]:
    """Every command by its words."""

    def walk(group: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, (*words, name))
            else:
                yield " ".join((*words, name)), command

    return dict(walk(typer.main.get_command(app), ()))


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_without_its_libraries_the_command_names_the_extra(library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from zero_rename.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    needed = f"The command line needs {library}: pip install 'airflow-provider-zero-rename[cli]'"
    assert ended.stderr.splitlines() == [needed]


def test_the_command_is_a_module_too() -> None:
    module = [sys.executable, "-m", "zero_rename"]
    ended = subprocess.run([*module, "show", "ftp://x"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "s3://" in ended.stderr


def test_show(table: Table) -> None:
    assert [(p["partition"], p["version"], p["rows"]) for p in as_json("show", table.root.url)] == [
        ("day=1", 1, 2),
        ("day=2", 1, 1),
    ]
    assert "day=1" in invoke("show", table.root.url).stdout


def test_show_counts_no_rows_of_another_committers_files(table: Table, s3_bucket: Any) -> None:
    """Nothing says how many they have: unknown is neither none nor a sum."""
    rows = io.BytesIO()
    pq.write_table(DATA.drop_columns("day"), rows)
    for name in ("part-0.parquet", "part-1.parquet"):
        s3_bucket.put(f"listed/day=1/{name}", rows.getvalue())
    s3_bucket.put("listed/_SUCCESS", b"")
    url = f"s3://{s3_bucket.name}/listed"
    (shown,) = as_json("show", url)
    assert (shown["partition"], shown["files"], shown["rows"]) == ("day=1", 2, None)
    assert shown["bytes"] == 2 * len(rows.getvalue())
    assert "-2" not in invoke("show", url).stdout


def test_an_open_job_is_listed_and_recovered(table: Table, s3_bucket: Any) -> None:
    opened, _ = written(table, max_duration=1000.0)
    (job,) = as_json("jobs", table.root.url)
    assert (job["job"], job["decided"]) == (opened.job, None)
    assert opened.job in invoke("jobs", table.root.url).stdout
    (left,) = as_json("recover", table.root.url, "--apply")
    assert left["outcome"] == "left"
    (planned,) = as_json("recover", table.root.url, "--patience", "0")
    assert planned["outcome"] == "would-abort"
    assert "--apply" in invoke("recover", table.root.url, "--patience", "0").stderr
    assert len(s3_bucket.uploads()) == 2
    assert len(as_json("jobs", table.root.url)) == 1
    (aborted,) = as_json("recover", table.root.url, "--patience", "0", "--apply")
    assert aborted["outcome"] == "aborted"
    assert as_json("jobs", table.root.url) == []
    assert s3_bucket.uploads() == []


def test_history_shows_the_last_jobs_first(table: Table) -> None:
    with table.job(DATA.schema, mode="replace", replace_partitions=["day=1"]) as job:
        job.write(DATA.slice(0, 2))
    first = as_json("history", table.root.url)[0]
    assert (first["job"], first["change"], first["partition"]) == (job.job, "replace", "day=1")
    assert (first["rows"], first["files_removed"]) == (2, 1)
    shown = invoke("history", table.root.url, "--most", "1").stdout
    assert str(job.job) in shown
    assert "day=2" not in shown


def test_history_says_what_a_merge_did_to_rows(table: Table) -> None:
    gone = table.delete([("value", "=", 1)])
    told = as_json("history", table.root.url)[0]
    assert told["rows_deleted"] == gone.rows.deleted > 0
    assert told["bytes_read"] == gone.bytes_read
    shown = invoke("history", table.root.url, "--most", "1").stdout
    assert f"{gone.rows.deleted:,} deleted" in " ".join(shown.split())


@pytest.mark.usefixtures("s3_server")
def test_purge_names_each_upload_and_why(table: Table, s3_bucket: Any) -> None:
    key = "flights/day=1/part-00000-2f9a.parquet"
    s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    (entry,) = as_json("purge", table.root.url, "--apply")["entries"]
    assert (entry["key"], entry["action"]) == (key, "kept")
    arguments = ("purge", table.root.url, "--foreign", "--older-than", "3600")
    assert as_json(*arguments)["entries"][0]["action"] == "would-abort"
    assert "--apply" in invoke(*arguments).stderr
    assert s3_bucket.uploads() == [key]
    assert as_json(*arguments, "--apply")["entries"][0]["action"] == "aborted"
    assert s3_bucket.uploads() == []


@pytest.mark.parametrize("job", ["flights", "zr1-" + "0" * 26])
def test_purge_refuses_a_job_that_nobody_knows(table: Table, s3_bucket: Any, job: str) -> None:
    """Before it does anything else: who named it means another."""
    opened, _ = written(table)
    refused = invoke("purge", table.root.url, "--job", job, "--patience", "0", "--apply")
    assert refused.exit_code == 2
    assert f"of a job '{job}' here; nothing was changed" in refused.stderr
    assert len(s3_bucket.uploads()) == 2
    done = as_json("purge", table.root.url, "--job", opened.job, "--apply")
    assert [it["outcome"] for it in done["recovered"]] == ["aborted"]
    # It may be repeated: the job is known by its decision.
    assert as_json("purge", table.root.url, "--job", opened.job, "--apply")["recovered"] == []


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("recover", "--patience"),
        ("purge", "--patience"),
        ("purge --foreign", "--older-than"),
        ("purge", "--records-older-than"),
        ("doctor", "--max-duration"),
        ("lifecycle", "--max-duration"),
        ("gc", "--older-than"),
        ("conflicts", "--since"),
        ("uploads list", "--older-than"),
        ("s3a-jobs", "--patience"),
        ("s3a-recover", "--patience"),
    ],
)
def test_every_age_is_spelled_alike(table: Table, command: str, option: str) -> None:
    for age in ("36500", "36500s", "1.5h", "90m", "7d"):
        taken = invoke(*command.split(), table.root.url, option, age)
        assert taken.exit_code in (Exit.DONE, Exit.LOOK), (age, taken.output)
    for age in ("soon", "-1", "nan", "7w", "9" * 400):
        assert invoke(*command.split(), table.root.url, option, age).exit_code == Exit.REFUSED, age


def test_an_age_is_in_seconds(table: Table) -> None:
    opened = table.open_job(JobSpec(DATA.schema))
    (left,) = as_json("recover", table.root.url, "--patience", "1h")
    assert left["outcome"] == "left"
    (dead,) = as_json("recover", table.root.url, "--patience", "0.0s")
    assert (dead["job"], dead["outcome"]) == (opened.job, "would-abort")
    refused = invoke("purge", table.root.url, "--foreign", "--older-than", "59m")
    assert (refused.exit_code, "59m is less than 1h" in refused.stderr) == (2, True)


def test_purge_fails_loudly_where_aborting_does(
    table: Table, s3_bucket: Any, answered_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = Unknown("503 SlowDown")
    answered_by(lambda request: stays if isinstance(request, AbortUpload) else None)
    monkeypatch.setattr("zero_rename.committer.upkeep.purging.purge._ROUNDS", Backoff(2, 0.01))
    (job,) = {file.job for file in table.files()}
    key = f"flights/day=1/part-00009-{job}-0000.parquet"
    s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    (entry,) = as_json("purge", table.root.url, "--apply", code=1)["entries"]
    assert (entry["key"], entry["action"]) == (key, "failed")
    assert "503 SlowDown" in entry["reason"]
    printed = invoke("purge", table.root.url, "--apply")
    assert printed.exit_code == 1
    assert "1 of these are not done" in printed.stderr
    assert s3_bucket.uploads() == [key]


def test_gc_says_what_it_would_do_and_does_it(table: Table) -> None:
    url = table.root.url
    assert as_json("gc", url)["condensed"] == 0, "it keeps what is younger than seven days"
    assert "there is nothing to do" in invoke("gc", url).stdout
    while as_json("gc", url, "--older-than", "0")["condensed"] == 0:
        pass  # The store's dates are whole seconds.
    planned = invoke("gc", url, "--older-than", "0")
    assert "would be condensed" in planned.stdout
    assert "--apply" in planned.stderr
    report = as_json("gc", url, "--older-than", "0s", "--apply")
    assert (report["folded"], report["condensed"], report["failed"]) == (2, 1, {})
    assert report["saved"] > 0
    assert [entry["rows"] for entry in as_json("show", url)] == [2, 1]
    assert as_json("verify", url) == []
    assert invoke("gc", url, "--older-than", "soon").exit_code == 2


def test_purge_and_maintain_treat_destinations_of_hadoops_committers(s3_bucket: Any) -> None:
    root = TableRoot(s3_bucket.name, "wh/magic")
    job = MagicJob(Table(root.url).driver.perform, root).begin()
    made, job_id = job.task(1), "zr1-00000000000000000000000000"
    planned = as_json("purge", root.url, "--s3a-patience", "0")
    assert [it["action"] for it in planned["entries"]] == ["would-abort"] * len(made)
    refused = invoke("purge", root.url, "--job", job_id, "--apply")
    assert (refused.exit_code, len(s3_bucket.uploads())) == (2, len(made))
    assert "none is here. Nothing was changed." in refused.output
    (found,) = as_json("maintain", f"s3://{s3_bucket.name}/wh", "--s3a-patience", "0", "--apply")
    assert (found["table"], found["kind"]) == (root.url, "s3a")
    assert found["jobs"] == {"rolled-back": 1}
    assert s3_bucket.uploads() == []
    printed = invoke("maintain", f"s3://{s3_bucket.name}/wh")
    assert printed.exit_code == 0
    assert "There is no table, and no destination" in printed.output


class TestPurgeOfAFolder:
    """One above several tables."""

    def test_damaged_table_does_not_keep_others_from_their_purge(
        self, table: Table, s3_bucket: Any
    ) -> None:
        url = f"s3://{s3_bucket.name}/wh"
        for name in ("damaged", "sound"):
            with Table(f"{url}/{name}").job(DATA.schema, partition_by=["day"]) as job:
                job.write(DATA)
        dead, _ = written(Table(f"{url}/sound"), max_duration=1000.0)
        s3_bucket.put("wh/damaged/_zero_rename/table.json", b"{nonsense")
        done = as_json("purge", url, "--patience", "0", "--apply", code=Exit.LOOK)
        assert [(it["job"], it["outcome"]) for it in done["recovered"]] == [(dead.job, "aborted")]
        (error,) = done["errors"]
        assert error.startswith("RecordDamagedError: A control object cannot be read")
        assert "not done: RecordDamagedError" in invoke("purge", url).stderr

    def test_dead_job_is_named_with_its_table(self, table: Table, s3_bucket: Any) -> None:
        """Purged with the folder it would be aborted, and the command would say *refused*."""
        for name in ("a", "b"):
            with Table(f"s3://{s3_bucket.name}/wh/{name}").job(DATA.schema) as job:
                job.write(DATA)
        dead, _ = written(Table(f"s3://{s3_bucket.name}/wh/a"), max_duration=1000.0)
        said = invoke("purge", f"s3://{s3_bucket.name}/wh", "--job", dead.job, "--apply")
        assert said.exit_code == Exit.REFUSED
        assert "this folder holds several tables. Nothing was changed" in said.stderr
        assert [it.job for it in Table(f"s3://{s3_bucket.name}/wh/a").open_jobs()] == [dead.job]

    def test_table_that_a_catalog_refuses_does_not_keep_others_from_their_purge(
        self, table: Table, s3_bucket: Any
    ) -> None:
        url = f"s3://{s3_bucket.name}/wh"
        for name in ("a", "b"):
            with Table(f"{url}/{name}").job(DATA.schema, partition_by=["day"]) as job:
                job.write(DATA)
        dead, _ = written(Table(f"{url}/b"), max_duration=1000.0)
        given = ("--patience", "0", "--catalog", "glue://nowhere", "--apply")
        done = as_json("purge", url, *given, code=Exit.LOOK)
        assert [(it["job"], it["outcome"]) for it in done["recovered"]] == [(dead.job, "aborted")]


def test_a_slip_in_a_path_is_told(table: Table) -> None:
    """The table that was meant would look as if it were well."""
    slip, said = f"{table.root.url}s", "There is no table, and no destination of Hadoop's"
    assert said in invoke("purge", slip).stderr
    assert said not in invoke("purge", table.root.url).stderr
    searched = invoke("conflicts", slip)
    assert (searched.exit_code, "Nothing was searched" in searched.stderr) == (Exit.REFUSED, True)
    assert "zero-rename maintain FOLDER lists the tables" in searched.stderr
    maintained = invoke("maintain", table.root.url, slip)
    assert (maintained.exit_code, f"{slip}: {said}" in maintained.stderr) == (0, True)
    assert f"{slip}: {said}" in invoke("maintain", slip, "--json").stderr


@pytest.fixture(params=[Table, DeltaTable])
def partition(request: pytest.FixtureRequest, s3_bucket: Any) -> str:
    """The URL of a partition's folder, of either kind of table."""
    table = request.param(f"s3://{s3_bucket.name}/wh/flights")
    with table.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    return f"{table.root.url}/day=1"


@pytest.mark.parametrize("command", ["doctor", "purge", "maintain"])
def test_command_for_a_partition_names_the_table_around_it(partition: str, command: str) -> None:
    said = invoke(command, partition).stderr
    table = partition.removesuffix("/day=1")
    assert f"{partition} is a partition of the table {table}: name that table." in said
    assert "There is no table" not in said


@pytest.mark.parametrize("command", ["recover", "history", "repair", "compact"])
def test_command_that_needs_a_table_names_the_table_around_a_partition(
    partition: str, command: str
) -> None:
    said = invoke(command, partition)
    assert said.exit_code == Exit.REFUSED
    table = partition.removesuffix("/day=1")
    assert f"{partition} is a partition of the table {table}." in said.stderr
    assert "Name that table." in said.stderr


def test_table_whose_record_is_gone_is_not_called_none(table: Table, s3_bucket: Any) -> None:
    s3_bucket.client.delete_object(Bucket=s3_bucket.name, Key=table.root.table_key)
    examined = invoke("doctor", table.root.url)
    assert (examined.exit_code, "There is no table" in examined.stderr) == (Exit.LOOK, False)
    repaired = invoke("repair", table.root.url)
    assert (repaired.exit_code, "table.json" in repaired.stderr) == (Exit.REFUSED, True)
    assert "is gone, and heads of the table's partitions are there" in repaired.stderr
    assert "There is no table" in invoke("doctor", f"{table.root.url}s").stderr


def test_doctor_names_the_commands_for_a_destination_of_hadoops(s3_bucket: Any) -> None:
    body = marker(OTHER, "magic", {})
    s3_bucket.client.put_object(Bucket=s3_bucket.name, Key="flights/_SUCCESS", Body=body)
    assert "s3a-jobs" in invoke("doctor", f"s3://{s3_bucket.name}/flights").stderr


def test_doctor_names_a_rule_that_expires_the_ledger_of_hadoops_runs(s3_bucket: Any) -> None:
    """Without its record a run that is cleared appends its rows once more."""
    client, ledger = s3_bucket.client, "wh/_zero_rename/s3a-runs/"
    client.put_object(Bucket=s3_bucket.name, Key=f"{ledger}flights/a/{OTHER}.json", Body=b"{}")
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ledger}}
    rules = {"Rules": [{**rule, "Expiration": {"Days": 30}}]}
    client.put_bucket_lifecycle_configuration(Bucket=s3_bucket.name, LifecycleConfiguration=rules)
    done = invoke("doctor", f"s3://{s3_bucket.name}/wh/flights")
    assert "lifecycle rule expires the ledger of runs" in done.output
    assert done.exit_code == Exit.LOOK


@pytest.mark.parametrize("command", ["s3a-jobs", "s3a-recover"])
def test_a_slip_in_the_path_of_a_destination_of_hadoops_is_told(
    s3_bucket: Any, command: str
) -> None:
    where = f"s3://{s3_bucket.name}/flights"
    said = "Hadoop's committers have left nothing there"
    assert said in invoke(command, where).stderr
    body = marker(OTHER, "magic", {})
    s3_bucket.client.put_object(Bucket=s3_bucket.name, Key="flights/_SUCCESS", Body=body)
    assert said not in invoke(command, where).stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("recover",), Exit.REFUSED),
        (("history",), Exit.REFUSED),
        (("compact",), Exit.REFUSED),
        (("jobs",), Exit.DONE),
    ],
)
def test_what_looks_after_a_destination_of_hadoops_committers_is_named_where_no_table_is(
    s3_bucket: Any, words: tuple[str, ...], code: Exit
) -> None:
    root = TableRoot(s3_bucket.name, "wh/magic")
    MagicJob(Table(root.url).driver.perform, root).begin().task(1)
    said = invoke(*words, root.url)
    assert said.exit_code == code
    assert "no zero_rename table here" in said.output
    assert "`zero-rename s3a-jobs` lists what its jobs left" in said.stderr
    assert "s3a-jobs" not in invoke(*words, f"s3://{s3_bucket.name}/wh/nothing").output


def test_whole_bucket_is_maintained_and_purged(table: Table, s3_bucket: Any) -> None:
    """The table, and uploads that lie in no table."""
    url, key = f"s3://{s3_bucket.name}", "elsewhere/day=1/part-0.parquet"
    dead, _ = written(table, max_duration=1000.0)
    s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    given = ("--patience", "0", "--foreign", "--older-than", "1h")
    planned = as_json("purge", url, *given)
    assert [it["outcome"] for it in planned["recovered"]] == ["would-abort"]
    assert planned["entries"][-1]["key"] == key
    done = as_json("maintain", url, *given, "--apply")
    assert [it["table"] for it in done] == [table.root.url, f"{url}/elsewhere"]
    assert done[0]["jobs"] == {"aborted": 1}
    assert table.open_jobs() == []
    assert dead.job not in invoke("jobs", table.root.url).stdout


def test_path_that_is_none_is_refused_before_others_are_maintained(table: Table) -> None:
    dead, _ = written(table, max_duration=1000.0)
    said = invoke("maintain", table.root.url, "flights", "--patience", "0", "--apply")
    assert (said.exit_code, "'flights' is no path on S3" in said.stderr) == (Exit.REFUSED, True)
    assert [it.job for it in table.open_jobs()] == [dead.job]


def test_maintain_with_json_tells_what_dead_drivers_left_on_disk(
    table: Table, tmp_path: Path
) -> None:
    said = invoke("maintain", table.root.url, "--json", "--buffer-dir", str(tmp_path / "none"))
    assert json.loads(said.stdout)[0]["table"] == table.root.url
    assert "is no folder of this machine" in said.stderr


@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_purge_tells_of_the_uploads_of_a_dead_job_alike_before_and_as_it_aborts_them(
    s3_bucket: Any, layout: str
) -> None:
    url = f"s3://{s3_bucket.name}/wh/{layout}"
    table = Table(url) if layout == "directory" else DeltaTable(url)
    with table.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    if isinstance(table, Table):
        written(table, max_duration=1000.0)
    else:
        dead = table.job(DATA.schema)
        dead.__enter__()
        key = f"wh/delta/data/{dead.job}/0.parquet"
        s3_bucket.client.create_multipart_upload(Bucket=s3_bucket.name, Key=key)
    left = as_json("purge", url)["entries"]
    assert {it["action"] for it in left} == {"kept"}
    planned = as_json("purge", url, "--patience", "0")["entries"]
    done = as_json("purge", url, "--patience", "0", "--apply")["entries"]
    assert [(it["key"], it["action"]) for it in planned] == [
        (it["key"], "would-abort") for it in left
    ]
    assert [(it["key"], it["action"]) for it in done] == [(it["key"], "aborted") for it in left]
    assert s3_bucket.uploads() == []


@pytest.mark.parametrize("command", ["purge", "maintain"])
def test_age_and_foreign_uploads_want_each_other(table: Table, command: str) -> None:
    """An age alone looked as if it spared all that is younger."""
    assert invoke(command, table.root.url, "--foreign").exit_code == 2
    said = invoke(command, table.root.url, "--older-than", "7d")
    assert (said.exit_code, "--older-than is the age of foreign uploads" in said.output) == (
        2,
        True,
    )


@pytest.mark.parametrize("command", ["recover", "purge"])
def test_catalog_that_is_none_is_refused_before_jobs_are_settled(
    table: Table, command: str
) -> None:
    dead, _ = written(table, max_duration=1000.0)
    given = ("--catalog", "nowhere", "--patience", "0", "--apply")
    said = invoke(command, table.root.url, *given)
    assert (said.exit_code, "names no table of a catalog" in said.stderr) == (Exit.REFUSED, True)
    assert [it.job for it in table.open_jobs()] == [dead.job]


def test_catalog_of_a_table_whose_first_job_died_has_nothing_to_be_told(
    s3_bucket: Any, glue_client: Any
) -> None:
    glue_client.create_database(DatabaseInput={"Name": "first_died"})
    table = Table(f"s3://{s3_bucket.name}/first")
    written(table, max_duration=1000.0)
    given = ("--catalog", "glue://first_died/t", "--patience", "0", "--apply")
    said = invoke("recover", table.root.url, *given)
    assert (said.exit_code, "No job has made the table yet" in said.stderr) == (Exit.DONE, True)
    assert table.open_jobs() == []


class TestDestinationOfHadoopsCommitters:
    """A directory that this package could take over."""

    @pytest.fixture
    def root(self, s3_bucket: Any) -> TableRoot:
        """With a file that a run of theirs has committed."""
        root, body = TableRoot(s3_bucket.name, "wh/magic"), io.BytesIO()
        pq.write_table(pa.table({"value": [1, 2]}), body)
        s3_bucket.put("wh/magic/day=1/part-0.parquet", body.getvalue())
        Table(root.url).run(open_try(root, a_try(mode="replace", state=FAILED)))
        return root

    def test_rows_are_not_deleted_by_making_a_table_of_it(
        self, root: TableRoot, s3_bucket: Any
    ) -> None:
        before = s3_bucket.keys("")
        said = invoke("delete", root.url, "--where", "value = 1", "--apply")
        assert said.exit_code == Exit.REFUSED
        assert "those committers are refused. Nothing was changed" in said.stderr
        assert s3_bucket.keys("") == before

    @pytest.mark.parametrize("layout", [(), ("--layout", "delta")])
    def test_it_is_not_adopted_while_a_job_has_not_ended(
        self, root: TableRoot, s3_bucket: Any, layout: tuple[str, ...]
    ) -> None:
        """Its files would be counted that recovery takes back, or not those that it completes."""
        job = MagicJob(Table(root.url).driver.perform, root).begin()
        job.task(1)
        said = invoke("adopt", root.url, *layout, "--apply")
        assert said.exit_code == Exit.REFUSED
        assert f"the job {job.uuid}, which has left magic files" in said.stderr
        assert as_json("s3a-recover", root.url, "--dead", job.uuid, "--apply")
        assert invoke("adopt", root.url, *layout, "--apply").exit_code == Exit.DONE

    def test_it_is_not_adopted_while_a_run_is_at_work(self, root: TableRoot) -> None:
        Table(root.url).run(open_try(root, a_try(OTHER, mode="replace")))
        said = invoke("adopt", root.url, "--apply")
        assert (said.exit_code, f"({OTHER}), which is at work" in said.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        "copy {t} s3://KEY:hush@lake/x",
        "copy {t} s3://KEY:hush@lake/x --layout delta",
        "show s3a://KEY:hush@lake/x",
        "purge s3://KEY:hush@lake",
        "uploads list s3n://KEY:hush@lake/x",
        "catalog sync {t} --catalog glue://user:hush@db/t",
        "recover {t} --catalog glue://user:hush@db",
    ],
)
@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_keys_in_an_argument_are_not_printed(s3_bucket: Any, words: str, kind: Any) -> None:
    url = f"s3://{s3_bucket.name}/flights"
    with kind(url).job(pa.schema([("delay", pa.int64())])):
        pass
    said = invoke(*words.format(t=url).split())
    assert (said.exit_code, "hush" in said.output) == (2, False)


def test_job_of_hadoops_committers_that_nobody_has_left_is_told(s3_bucket: Any) -> None:
    """A slip in its UUID looked as if all were settled."""
    root = TableRoot(s3_bucket.name, "wh/magic")
    job = MagicJob(Table(root.url).driver.perform, root).begin()
    job.task(1)
    assert f"Nothing is left of {OTHER}." in invoke("s3a-recover", root.url, "--job", OTHER).stdout
    both = invoke("s3a-recover", root.url, "--job", OTHER, "--job", job.uuid.upper(), "--json")
    assert [it["job"] for it in json.loads(both.stdout)] == [job.uuid]
    assert f"Nothing is left of {OTHER}." in both.stderr


@pytest.mark.parametrize("command", ["recover", "purge"])
def test_a_job_that_could_not_be_settled_is_told_by_the_exit_code(
    table: Table, s3_bucket: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("zero_rename.committer.commit.complete.COMPLETE", Backoff(6, 0.01))
    opened, result = written(table)
    s3_bucket.abort_uploads()
    # moto answers the completion of a missing upload with 500, which tells nothing.
    with pytest.raises((DataLostError, UnfinishedCommitError)):
        table.commit(opened, [result])
    planned = as_json(command, table.root.url)
    planned = planned["recovered"] if command == "purge" else planned
    assert [(job["job"], job["outcome"]) for job in planned] == [(opened.job, "would-finish")]
    found = as_json(command, table.root.url, "--apply", code=1)
    outcomes = found["recovered"] if command == "purge" else found
    assert [(job["job"], job["outcome"]) for job in outcomes] == [(opened.job, "failed")]
    printed = invoke(command, table.root.url, "--apply")
    assert printed.exit_code == 1
    assert opened.job in printed.stdout


def test_verify_names_what_differs(table: Table, s3_bucket: Any) -> None:
    assert as_json("verify", table.root.url) == []
    s3_bucket.put("flights/day=1/late.parquet", b"x")
    (lost,) = table.files("day=2")
    s3_bucket.delete(lost.key)
    found = {f["key"]: f["kind"] for f in as_json("verify", table.root.url, code=1)}
    assert found == {"flights/day=1/late.parquet": "unnamed", lost.key: "missing"}


@pytest.mark.usefixtures("s3_server")
def test_words_of_strangers_do_nothing_to_the_terminal(table: Table, s3_bucket: Any) -> None:
    """Owners, keys and what records hold: escapes are shown, and a line stays a line."""
    bad = "\x1b[2J\x1b]0;pwned\x07\nzr1-00000000000000000000000000"
    owner = Owner(application=bad, host=bad)
    opened = table.open_job(JobSpec(DATA.schema, owner=owner, max_duration=1000.0))
    s3_bucket.put("flights/day=1/\x1b[2J.parquet", b"x")
    commands = {"jobs": 0, "recover": 0, "verify": 1, "doctor": 1, "purge": 0}
    for command, code in commands.items():
        result = invoke(command, table.root.url)
        assert result.exit_code == code, result.output
        assert_harmless(result)
    assert "\\x1b[2J" in invoke("jobs", table.root.url).stdout
    key = f"flights/_zero_rename/open/{opened.job}.json"
    s3_bucket.put(key, json.dumps(json.loads(s3_bucket.read(key)) | {"job": bad}).encode())
    for command in commands:
        assert_harmless(invoke(command, table.root.url))


def test_a_narrow_terminal_cuts_no_key_off() -> None:
    """Of forty partitions each read ``day=…``, and of a job nothing that could be copied."""
    written = io.StringIO()
    job = "zr1-01J0000000000000000000000A"
    rows = [(job, "undecided", "flights/year=2013/month=12/day=31/part-00000.parquet")]
    Console(width=40, file=written).print(sheet_of(("job", "decision", "key"), rows))
    cells = [line.split("│")[1:-1] for line in written.getvalue().splitlines() if "│" in line]
    assert tuple("".join(map(str.strip, column)) for column in zip(*cells, strict=True)) == rows[0]


def assert_harmless(result: Result) -> None:
    written = result.stdout + result.stderr
    assert "\x1b" not in written
    assert "\x07" not in written
    assert not [line for line in written.splitlines() if line.startswith("zr1-0000")]


def test_adopt_is_dry_until_told(s3_bucket: Any) -> None:
    rows = io.BytesIO()
    pq.write_table(DATA.drop_columns("day"), rows)
    for path in ("day=1/part-0.parquet", "day=2/part-0.parquet"):
        s3_bucket.put(f"flights/{path}", rows.getvalue())
    table = Table(f"s3://{s3_bucket.name}/flights")
    url = table.root.url
    found = as_json("adopt", url)
    assert {e["partition"]: e["action"] for e in found["entries"]} == {
        "day=1": "would-adopt",
        "day=2": "would-adopt",
    }
    assert "--apply" in invoke("adopt", url).stderr
    assert not table.exists()
    assert {e["action"] for e in as_json("adopt", url, "--apply")["entries"]} == {"adopted"}
    assert [(p["partition"], p["version"]) for p in as_json("show", url)] == [
        ("day=1", 1),
        ("day=2", 1),
    ]
    s3_bucket.put("flights/day=03/part-0.parquet", rows.getvalue())
    (left,) = as_json("adopt", url, code=1)["entries"]
    assert (left["partition"], left["action"]) == ("day=03", "left")


def test_compact_names_partitions_that_it_leaves_and_compacts_the_others(s3_bucket: Any) -> None:
    rows = io.BytesIO()
    pq.write_table(DATA.drop_columns("day"), rows)
    for number in range(2):
        for day in (1, 2):
            s3_bucket.put(f"flights/day={day}/part-{number}.parquet", rows.getvalue())
    url = f"s3://{s3_bucket.name}/flights"
    Table(url).adopt(apply=True)
    s3_bucket.put("flights/day=1/part-1.parquet", b"PAR1".ljust(len(rows.getvalue()), b"."))
    left, done = as_json("compact", url, "--apply", code=1)
    assert (left["partition"], left["action"], left["job"]) == ("day=1", "left", None)
    assert "day=1/part-1.parquet" in left["reason"]
    assert (done["partition"], done["action"]) == ("day=2", "compacted")
    result = invoke("compact", url, "--apply")
    assert result.exit_code == 1
    assert "day=1 was left as it is: " in result.stderr
    assert "day=1/part-1.parquet" in result.stderr


def test_a_refusal_is_one_paragraph(s3_bucket: Any) -> None:
    result = invoke("show", f"s3://{s3_bucket.name}/nothing")
    assert result.exit_code == 2
    assert "TableNotFoundError: There is no zero_rename table here." in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert invoke("jobs", "flights").exit_code == 2


class TestConflicts:
    @pytest.fixture
    def late(self, s3_bucket: Any) -> Table:
        """A table of directories in which a late run has replaced the rows of a newer one."""
        table = Table(f"s3://{s3_bucket.name}/late")
        for rank in (2, 1):
            rows = pa.table({"value": [rank], "day": [1]})
            policy = {"run_rank": rank, "idempotency_key": f"d/{rank}/load"}
            owner = Owner("daily", f"run {rank}", "load")
            by = {"partition_by": ["day"], "mode": "overwrite", "owner": owner}
            with table.job(rows.schema, **by, **policy) as job:
                job.write(rows)
        return table

    def test_late_run_is_found_and_kept(self, late: Table) -> None:
        url = late.root.url
        (found,) = as_json("conflicts", url, code=1)["conflicts"]
        assert (found["partition"], found["cause"]) == ("day=1", "the older came later")
        told = [(it["run_id"], it["rank"], it["visible"]) for it in found["runs"]]
        assert told == [("run 1", "1", True), ("run 2", "2", False)]
        again = invoke("conflicts", url)
        assert (again.exit_code, "not settled" in again.stdout) == (1, True)
        assert f"zero-rename resolve {url} --policy" in again.stderr
        dry = invoke("resolve", url, "--policy", "keep=d/1/load")
        assert "--apply" in dry.stderr
        assert "would be settled for" in " ".join(dry.stdout.split())
        (done,) = as_json("resolve", url, "--policy", "keep=d/1/load", "--apply")["conflicts"]
        assert (done["settled"], done["settlement"]["how"]) == (True, "kept")
        assert late.to_arrow(["value"])["value"].to_pylist() == [1]
        assert invoke("conflicts", url).exit_code == 0
        assert invoke("conflicts", url, "--since", "1h").exit_code == 0

    def test_record_that_cannot_be_read_needs_a_look(self, late: Table) -> None:
        job = next(it.job for it in late.snapshot().files)
        late.run(Put(late.root.decision_key(job), b"{"))
        said = invoke("conflicts", late.root.url)
        assert "No conflict was found, but some records of runs could not be read." in said.stdout
        assert "counts as a conflict that is not settled" in said.stderr
        assert said.exit_code == 1

    def test_conflict_that_cannot_be_settled_needs_a_look(self, late: Table) -> None:
        url = late.root.url
        invoke("conflicts", url)
        said = invoke("resolve", url, "--policy", "prefer=other", "--apply")
        assert (said.exit_code, "names none of its runs" in said.stderr) == (1, True)

    @pytest.mark.parametrize("named", ["day=01", "/day=1/"])
    def test_partition_is_found_in_whatever_spelling(self, late: Table, named: str) -> None:
        said = invoke("conflicts", late.root.url, "--partition", named)
        assert (said.exit_code, "day=1" in said.stdout) == (1, True)
        kept = as_json("keep-rows", late.root.url, named, "--keep", "newest")
        assert kept["partition"] == "day=1"

    @pytest.mark.parametrize("named", ["day=x", "nope", "month=1"])
    def test_partition_that_the_table_cannot_have_is_no_all_clear(
        self, late: Table, named: str
    ) -> None:
        said = invoke("conflicts", late.root.url, "--partition", named)
        assert (said.exit_code, "partition" in said.stderr) == (2, True)
        assert invoke("keep-rows", late.root.url, named, "--keep", "newest").exit_code == 2

    def test_partition_without_conflict_is_refused(self, late: Table) -> None:
        invoke("conflicts", late.root.url)
        policy = ("--policy", "newest_run", "--partition", "day=2")
        said = invoke("resolve", late.root.url, *policy)
        assert (said.exit_code, "No runs that conflict over day=2" in said.stderr) == (2, True)

    def test_folder_that_holds_nothing_is_refused(self, s3_bucket: Any) -> None:
        said = invoke("conflicts", f"s3://{s3_bucket.name}/nothing")
        assert (said.exit_code, "There is no table" in said.stderr) == (2, True)


#: Each where nothing is to be said, and the sentence that says so.
NOTHING = {
    "jobs": "No job is open.",
    "recover": "No job is open: there is nothing to recover.",
    "purge": "No upload is under way, no job is open, no record is old: there is nothing to purge.",
    "verify": "Nothing differs.",
    "conflicts": "No runs conflict.",
    "adopt": "No partition has files without a head: there is nothing to adopt.",
    "repair": "No committed job is open: nothing can be lost.",
    "s3a-jobs": "Nothing is left of S3A jobs.",
    "s3a-recover": "Nothing is left of S3A jobs.",
}


class TestOneMind:
    """What all commands have in common."""

    @pytest.mark.parametrize("command", NOTHING)
    def test_an_empty_table_is_a_sentence(self, table: Table, command: str) -> None:
        result = invoke(command, table.root.url)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == NOTHING[command]
        found = json.loads(invoke(command, table.root.url, "--json").stdout)
        key = "conflicts" if command == "conflicts" else "entries"
        assert (found.get(key, []) if isinstance(found, dict) else found) == []

    @pytest.mark.usefixtures("s3_server", "s3_bucket")
    @pytest.mark.parametrize("command", ["jobs", "purge", "retention", "resolve"])
    def test_bucket_that_is_not_there_is_told_once(self, command: str) -> None:
        policy = ("--policy", "newest_run") if command == "resolve" else ()
        said = invoke(command, "s3://nobody-has-this-bucket/wh/flights", *policy)
        assert said.exit_code == Exit.REFUSED
        assert said.output.count("refused ListObjects in bucket") == 1

    @pytest.mark.parametrize("command", ["retention", "checkpoint", "data-root", "publish"])
    def test_delta_table_that_is_not_there_is_not_taken_for_one_of_directories(
        self, table: Table, command: str
    ) -> None:
        said = invoke(command, f"{table.root.url}s")
        assert said.exit_code == Exit.REFUSED
        assert "TableNotFoundError: There is no table here" in said.output

    def test_no_open_job_where_there_is_no_table(self, table: Table) -> None:
        result = invoke("jobs", f"{table.root.url}s")
        assert (result.exit_code, result.stdout.count("there is no zero_rename table")) == (0, 1)

    def test_every_command_prints_json_and_none_has_another_word_for_apply(self) -> None:
        for name, command in commands().items():
            options = {word for parameter in command.params for word in parameter.opts}
            assert "--json" in options, name
            assert not {"--dry-run", "--dry", "--yes", "--execute"} & options, name

    def test_version_is_printed(self) -> None:
        result = invoke("--version")
        assert (result.exit_code, result.stdout) == (0, f"zero-rename {zero_rename.__version__}\n")

    def test_help_lists_each_command_under_one_heading_in_one_paragraph(self) -> None:
        listed = [name for names in HEADINGS.values() for name in names]
        assert sorted(listed) == sorted({name.split()[0] for name in commands()})
        told = invoke("--help").stdout
        assert [told.index(f" {heading} ") for heading in HEADINGS] == sorted(
            told.index(f" {heading} ") for heading in HEADINGS
        )
        helps = [command.help.replace("\n\n", "") for command in commands().values()]
        assert [text for text in helps if "\n" in text] == []

    def test_exit_codes_are_in_the_help_and_in_the_documentation(self) -> None:
        told = " ".join(invoke("--help").stdout.split())
        assert "Exit codes: 0 done" in told.replace("│ ", "")
        page = (ROOT / "docs" / "commands.md").read_text("utf-8")
        rows = {line.split("`")[1].split()[1] for line in page.splitlines() if "| `zero" in line}
        assert rows == {name.split()[0] for name in commands()}

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (OutcomeUnknownError("The store did not say."), Exit.UNKNOWN),
            (CommitStateUnknownError("The decision may be written."), Exit.UNKNOWN),
            (UnfinishedCommitError("It is committed; a file is not visible yet."), Exit.UNKNOWN),
            (UnfinishedUpkeepError("It is begun."), Exit.UNKNOWN),
            (StoreRefusedError("No right to list."), Exit.REFUSED),
            (DataLostError("A file is gone."), Exit.REFUSED),
        ],
    )
    def test_begun_or_not_known_is_not_refused(
        self, table: Table, monkeypatch: pytest.MonkeyPatch, error: ZeroRenameError, code: Exit
    ) -> None:
        def ends(*_: Any) -> Any:
            raise error

        monkeypatch.setattr(Table, "verify", ends)
        ended = invoke("verify", table.root.url)
        assert (ended.exit_code, ended.stderr.split(":")[0]) == (code, type(error).__name__)


class TestEncryption:
    KEY = "arn:aws:kms:us-east-1:1:key/1"

    def test_encryption_is_shown_tried_and_changed(self, table: Table) -> None:
        url = table.root.url
        assert "the bucket's own" in invoke("encryption", url).stderr
        said = {"algorithm": "SSE-KMS", "key": self.KEY}
        words = ("encryption", url, "SSE-KMS", "--key", self.KEY)
        assert as_json(*words) == {"before": None, "after": said}
        assert table.encryption is None
        assert as_json(*words, "--apply") == {"before": None, "after": said}
        assert as_json("encryption", url) == {"before": said, "after": said}
        assert as_json("encryption", url, "none", "--apply") == {"before": said, "after": None}
        assert table.encryption is None

    def test_encryption_that_cannot_be_right_changes_nothing(self, table: Table) -> None:
        for words in (("AES256",), ("SSE-S3", "--key", self.KEY), ("SSE-C",)):
            refused = invoke("encryption", table.root.url, *words, "--apply")
            assert refused.exit_code != 0
            assert "encryption" in refused.stderr
        assert table.encryption is None

    @pytest.mark.parametrize(
        ("words", "option"),
        [
            (("doctor", "{t}", "--release", "emr-7.10.0"), "--release"),
            (("policy", "delta-log", "{t}", "--data-root", "s3://fast/files"), "--data-root"),
            (("policy", "writer", "{t}", "--of", "j-1"), "--of"),
        ],
    )
    def test_option_that_means_nothing_there_is_refused(
        self, table: Table, words: tuple[str, ...], option: str
    ) -> None:
        refused = invoke(*(it.format(t=table.root.url) for it in words))
        assert (refused.exit_code, option in refused.stderr) == (Exit.REFUSED, True)

    def test_key_without_an_encryption_is_refused(self, table: Table) -> None:
        refused = invoke("encryption", table.root.url, "--key", self.KEY, "--apply")
        assert (refused.exit_code, "--key is given" in refused.stderr) == (Exit.REFUSED, True)

    def test_encryption_of_no_table_is_refused(self, table: Table) -> None:
        refused = invoke("encryption", f"{table.root.url}s")
        assert refused.exit_code == Exit.REFUSED
        assert "TableNotFoundError: There is no table here" in refused.stderr

    def test_apply_without_an_encryption_is_refused(self, table: Table) -> None:
        refused = invoke("encryption", table.root.url, "--apply")
        assert refused.exit_code == Exit.REFUSED
        assert "--apply is given without the encryption" in refused.stderr

    def test_copy_has_the_encryption_that_is_named_or_the_old_tables(self, table: Table) -> None:
        table.set_encryption("SSE-S3", apply=True)
        url = table.root.url
        invoke("copy", url, f"{url}2")
        invoke("copy", url, f"{url}3", "--encryption", "SSE-KMS", "--encryption-key", self.KEY)
        found = [str(Table(f"{url}{number}").encryption) for number in (2, 3)]
        assert found == ["SSE-S3", f"SSE-KMS {self.KEY}"]
