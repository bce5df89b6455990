"""Commands on a Delta table: each one works there, or refuses it and says what to do instead."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from conftest import Bucket

from support.command_line import as_json, invoke
from zero_rename import Table
from zero_rename.cli import app
from zero_rename.cli.output import DRY, Exit
from zero_rename.committer import Owner
from zero_rename.committer.format.as_of import AsOf
from zero_rename.committer.format.layout import new_job_id
from zero_rename.committer.store.requests import Delete, Found, Get, Put, PutFile
from zero_rename.log.job_files import open_body
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3
ROWS = pa.table({"day": ["1", "2"], "delay": [5, 6]})
#: By the words of a command: what follows them; ``{t}`` is the table, ``{j}`` its last job.
WORKS = {
    "catalog ddl": "{t} --engine duckdb",
    "checkpoint": "{t}",
    "compact": "{t}",
    "conflicts": "{t}",
    "data-root": "{t}",
    "delete": "{t} --where delay>5",
    "doctor": "{t}",
    "history": "{t}",
    "jobs": "{t}",
    "lineage lost": "{t}",
    "lineage plan": "{t}",
    "lineage show": "{t}",
    "lineage stale": "{t}/day=1",
    "lifecycle": "{t}",
    "maintain": "{t}",
    "policy": "writer {t}",
    "publish": "{t}",
    "purge": "{t}",
    "recover": "{t}",
    "repair": "{t}",
    "restore": "{t} --as-of 0",
    "resolve": "{t} --policy newest_run",
    "retention": "{t}",
    "s3a-jobs": "{t}",
    "s3a-recover": "{t}",
    "show": "{t}",
    "undo": "{t} --job {j}",
    "uploads abort": "{t} --older-than 1h",
    "uploads expect": "0 {t}",
    "uploads list": "{t}",
    "verify": "{t}",
}
#: The same of commands that refuse it, and a word of the remedy.
REFUSES = {
    "adopt": ("{t}", "layout='delta'"),
    "copy": ("{t} {t}2", "load(spark"),
    "encryption": ("{t}", "bucket's default"),
    "gc": ("{t}", "zero-rename purge"),
    "index": ("{t}", "zero-rename checkpoint"),
    "keep-rows": ("{t} day=1 --keep newest", "zero-rename restore"),
}
#: Commands that ask no table, or a catalog (tests/catalog/test_delta.py).
ELSEWHERE = {"catalog sync", "checks", "committers", "log-store", "s3a-check"}


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    """A Delta table with two commits."""
    found = DeltaTable(f"s3://{s3_bucket.name}/flights")
    for _ in range(2):
        with found.job(ROWS.schema, partition_by=["day"]) as job:
            job.write(ROWS)
    return found


def ask(table: DeltaTable, words: str, rest: str, *more: str) -> Any:
    job = table.history(1)[0].job if "{j}" in rest else None
    given = (it.format(t=table.root.url, j=job) for it in rest.split())
    return invoke(*words.split(), *given, *more)


def test_each_command_stands_in_one_of_the_lists() -> None:
    def walk(group: Any, words: tuple[str, ...] = ()) -> set[str]:
        found = set[str]()
        for name, command in group.commands.items():
            named = (*words, name)
            more = walk(command, named) if hasattr(command, "commands") else {" ".join(named)}
            found |= more
        return found

    assert walk(typer.main.get_command(app)) == {*WORKS, *REFUSES, *ELSEWHERE}


@pytest.mark.parametrize("words", WORKS)
def test_a_command_that_works_on_a_delta_table_ends_well(table: DeltaTable, words: str) -> None:
    done = ask(table, words, WORKS[words])
    assert done.exit_code == Exit.DONE, done.output
    assert "There is no" not in done.output


@pytest.mark.parametrize("words", REFUSES)
def test_a_command_that_a_delta_table_has_no_use_for_says_what_to_do(
    table: DeltaTable, words: str
) -> None:
    rest, remedy = REFUSES[words]
    done = ask(table, words, rest)
    assert done.exit_code == Exit.REFUSED
    assert "This is a Delta table" in done.output
    assert remedy in done.output
    assert table.state().log_version == 1


@pytest.mark.parametrize(
    ("words", "rest", "option"),
    [
        ("doctor", "{t} --apply", "record of its store's facts"),
        ("repair", "{t} --job zr1-00000000000000000000000000", "repair of one job"),
    ],
)
def test_an_option_that_a_delta_table_cannot_honour_is_refused(
    table: DeltaTable, words: str, rest: str, option: str
) -> None:
    done = ask(table, words, rest)
    assert done.exit_code == Exit.REFUSED
    assert option in done.output


def test_compact_sorts_partitions_by_columns_once(table: DeltaTable) -> None:
    words = ("compact", table.root.url, "--sort-by", "delay")
    assert DRY in invoke(*words).stderr
    found = as_json(*words, "--apply")
    assert [(it["partition"], it["action"], it["files_after"]) for it in found] == [
        ("day=1", "compacted", 1),
        ("day=2", "compacted", 1),
    ]
    assert "Every partition is sorted so" in invoke(*words, "--apply").stdout
    refused = invoke("compact", table.root.url, "--sort-by", "day")
    assert refused.exit_code == Exit.REFUSED
    assert "Rows cannot be sorted by day" in refused.stderr


def test_show_tells_partitions_at_one_version(table: DeltaTable) -> None:
    found = as_json("show", table.root.url)
    assert [(it["partition"], it["version"], it["files"], it["rows"]) for it in found] == [
        ("day=1", 1, 2, 2),
        ("day=2", 1, 2, 2),
    ]


def test_history_tells_entries_with_their_jobs_newest_first(table: DeltaTable) -> None:
    found = as_json("history", table.root.url, "--most", "1")
    assert [(it["version"], it["operation"], it["added"]) for it in found] == [(1, "WRITE", 2)]
    assert found[0]["job"].startswith("zr1-")
    assert found[0]["job"] in ask(table, "history", "{t}").output


def test_restore_brings_back_a_version_and_says_how_to_take_that_back(table: DeltaTable) -> None:
    planned = as_json("restore", table.root.url, "--as-of", "0")
    assert (planned["present"], planned["returned"], planned["removed"]) == (1, 0, 2)
    assert table.scan().count() == 4
    done = ask(table, "restore", "{t} --as-of 0 --apply")
    assert done.exit_code == Exit.DONE
    assert table.scan().count() == 2
    job = table.history(1)[0].job
    assert f"zero-rename undo {table.root.url} --job {job} --apply" in done.output
    again = ask(table, "restore", "{t} --as-of 0 --apply")
    assert "there is nothing to bring back" in again.output


def test_restore_of_one_partition_leaves_the_others(table: DeltaTable) -> None:
    done = as_json("restore", table.root.url, "--as-of", "0", "--partition", "day=1", "--apply")
    assert (done["partitions"], table.scan().count()) == (["day=1"], 3)


def test_undo_takes_a_job_back_and_names_those_that_are_to_be_undone_first(
    table: DeltaTable,
) -> None:
    second, first = (str(it.job) for it in table.history())
    refused = ask(table, "undo", f"{{t}} --job {first} --apply")
    assert refused.exit_code == Exit.REFUSED
    assert second in refused.output
    planned = ask(table, "undo", f"{{t}} --job {second}")
    assert planned.exit_code == Exit.DONE
    assert table.scan().count() == 4
    done = as_json("undo", table.root.url, "--job", second, "--apply")
    assert (done["version"], done["partitions"], table.scan().count()) == (0, ["day=1", "day=2"], 2)
    again = ask(table, "undo", f"{{t}} --job {second} --apply")
    assert f"{done['job']} has undone it already" in again.output
    emptied = ask(table, "undo", f"{{t}} --job {first} --apply")
    assert (emptied.exit_code, "no version: it was empty" in emptied.output) == (Exit.DONE, True)
    assert table.scan().count() == 0


def test_retention_is_shown_and_set(table: DeltaTable) -> None:
    assert "7 days" in ask(table, "retention", "{t}").output
    planned = ask(table, "retention", "{t} --set 30d")
    assert "The retention would be 30 days; it was 7 days." in planned.output
    assert "--apply" in planned.output
    assert table.retention == 7 * 86400.0
    done = ask(table, "retention", "{t} --set 30d --apply")
    assert "The retention is 30 days; it was 7 days." in done.output
    assert "cannot be brought back" not in done.output
    now = {"retention": 30 * 86400.0, "before": 30 * 86400.0, "after": 30 * 86400.0}
    assert as_json("retention", table.root.url) == now
    shorter = ask(table, "retention", "{t} --set 2h")
    assert "next purge would delete files replaced longer ago" in shorter.output
    assert ask(table, "retention", "{t} --set 10min --apply").exit_code == Exit.REFUSED
    assert table.retention == 30 * 86400.0


@pytest.mark.parametrize("words", ["retention", "data-root"])
def test_apply_without_a_value_that_is_to_be_set_is_refused(table: DeltaTable, words: str) -> None:
    refused = ask(table, words, "{t} --apply")
    assert refused.exit_code == Exit.REFUSED
    assert f"--apply is given without the {words.replace('-', ' ')}" in refused.output


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        ("undo", "{t} --job zr1-00000000000000000000000000"),
        ("restore", "{t} --as-of 1"),
        ("retention", "{t} --set 30d"),
    ],
)
def test_past_of_a_table_of_directories_is_refused_with_the_way_to_have_one(
    s3_bucket: Bucket, words: str, rest: str
) -> None:
    url = f"s3://{s3_bucket.name}/plain"
    with Table(url).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    done = invoke(words, *rest.format(t=url).split())
    assert done.exit_code == Exit.REFUSED
    assert "This table is no Delta table" in done.output
    assert f"zero-rename copy {url} NEW --layout delta" in done.output


def test_restore_of_files_that_are_gone_names_them_and_needs_a_look(table: DeltaTable) -> None:
    with table.job(ROWS.schema, mode="overwrite", replace_table=True) as job:
        job.write(ROWS)
    first = table.state(as_of=AsOf(version=0)).files[0].key
    table.driver.perform(Delete(first))
    planned = ask(table, "restore", "{t} --as-of 0")
    assert planned.exit_code == Exit.LOOK
    assert "cannot be brought back" in planned.output
    assert ask(table, "restore", "{t} --as-of 0 --apply").exit_code == Exit.REFUSED


def test_adopt_with_layout_delta_makes_a_table_of_a_directory(s3_bucket: Bucket) -> None:
    table = DeltaTable(f"s3://{s3_bucket.name}/plain")
    sink = io.BytesIO()
    pq.write_table(pa.table({"delay": [5]}), sink)
    table.driver.perform(PutFile("plain/day=1/a.parquet", sink.getvalue()))
    asked = ask(table, "adopt", "{t} --layout delta")
    assert asked.exit_code == Exit.DONE
    assert "would-adopt" in asked.output
    assert not table.exists()
    done = ask(table, "adopt", "{t} --layout delta --apply")
    assert done.exit_code == Exit.DONE, done.output
    assert table.scan().to_arrow().to_pylist() == [{"delay": 5, "day": 1}]
    again = ask(table, "adopt", "{t} --layout delta --apply")
    assert again.exit_code == Exit.REFUSED
    assert "This is a Delta table" in again.output


@pytest.mark.parametrize("words", ["checkpoint {t}", "data-root {t}", "data-root {t} none"])
def test_fast_root_of_a_table_of_directories_is_refused(s3_bucket: Bucket, words: str) -> None:
    table = Table(f"s3://{s3_bucket.name}/listed")
    with table.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    done = invoke(*words.format(t=table.root.url).split())
    assert done.exit_code == Exit.REFUSED
    assert "This table is no Delta table" in done.output


def test_copy_with_layout_delta_copies_a_table_of_directories_once(s3_bucket: Bucket) -> None:
    old, new = f"s3://{s3_bucket.name}/old", f"s3://{s3_bucket.name}/new"
    with Table(old).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    done = invoke("copy", old, new, "--layout", "delta")
    assert done.exit_code == Exit.DONE, done.output
    table = DeltaTable(new)
    assert sorted(it["delay"] for it in table.scan().to_arrow().to_pylist()) == [5, 6]
    assert table.partition_by == ("day",)
    again = invoke("copy", old, new, "--layout", "delta")
    assert again.exit_code == Exit.DONE
    assert "This state was copied before: nothing was done." in again.output
    assert table.state().log_version == 0
    with Table(old).job(ROWS.schema) as job:
        job.write(ROWS)
    changed = invoke("copy", old, new, "--layout", "delta")
    assert changed.exit_code == Exit.REFUSED
    assert "holds 2 files already" in changed.output
    assert table.state().log_version == 0
    assert not table.open_jobs()


def test_repair_commits_what_was_written_over_and_says_so_before(table: DeltaTable) -> None:
    log = f"{table.root.prefix}/_delta_log/00000000000000000001.json"
    table.driver.perform(Put(log, b'{"commitInfo": {"engineInfo": "Apache-Spark", "txnId": "s"}}'))
    assert table.scan().count() == 2
    asked = ask(table, "repair", "{t}")
    assert asked.exit_code == Exit.LOOK
    assert "--apply" in asked.output
    (planned,) = as_json("repair", table.root.url, code=Exit.LOOK)
    assert (planned["outcome"], planned["by"]) == ("would-commit", "Apache-Spark")
    assert ask(table, "verify", "{t}").exit_code == Exit.LOOK
    assert ask(table, "repair", "{t} --apply").exit_code == Exit.DONE
    assert table.scan().count() == 4
    assert ask(table, "verify", "{t}").exit_code == Exit.DONE


def test_repair_of_a_replaced_partition_needs_the_loss_accepted(table: DeltaTable) -> None:
    log = f"{table.root.prefix}/_delta_log/00000000000000000001.json"
    table.driver.perform(Put(log, b'{"commitInfo": {"txnId": "s"}}'))
    with table.job(ROWS.schema, mode="overwrite") as job:
        job.write(ROWS)
    left = ask(table, "repair", "{t} --apply")
    assert left.exit_code == Exit.LOOK
    assert "--accept-loss" in left.output
    assert ask(table, "verify", "{t}").exit_code == Exit.LOOK
    assert ask(table, "repair", "{t} --accept-loss --apply").exit_code == Exit.DONE
    assert ask(table, "verify", "{t}").exit_code == Exit.DONE
    assert table.scan().count() == 2


def test_jobs_and_recover_go_by_the_open_records_of_the_log(table: DeltaTable) -> None:
    job = table.job()
    job.__enter__()
    (found,) = as_json("jobs", table.root.url)
    assert (found["job"], found["damage"]) == (job.job, "")
    (left,) = as_json("recover", table.root.url)
    assert left["outcome"] == "left"
    (planned,) = as_json("recover", table.root.url, "--patience", "0")
    assert planned["outcome"] == "would-abort"
    (done,) = as_json("recover", table.root.url, "--patience", "0", "--apply")
    assert (done["job"], done["outcome"]) == (job.job, "aborted")
    assert table.open_jobs() == []


def test_jobs_says_which_jobs_of_a_log_are_committed_and_which_are_fenced(
    table: DeltaTable,
) -> None:
    perform = table.driver.perform
    kept: dict[str, bytes] = {}
    done = {}
    for name in ("committed", "fenced", "open"):
        job = table.job()
        job.__enter__()
        assert job.job is not None
        done[name] = job.job
        record = perform(Get(table.root.open_key(job.job)))
        assert isinstance(record, Found)
        kept[job.job] = record.body
        if name == "committed":
            job.write(pa.table({"day": ["3"], "delay": [7]}))
            job.__exit__(None, None, None)
        elif name == "fenced":
            table.give_up([job.job])
    for job, body in kept.items():
        perform(Put(table.root.open_key(job), body))
    found = {it["job"]: it["decided"] for it in as_json("jobs", table.root.url)}
    assert found == {done["committed"]: "commit", done["fenced"]: "abort", done["open"]: None}
    assert "commit " in invoke("jobs", table.root.url).stdout
    assert {it.decided for it in table.open_jobs()} == {None}


def leave(table: DeltaTable) -> str:
    """Write a job that waits; return its id."""
    with table.job(mode="append", publish=False) as job:
        job.write(pa.table({"day": ["3"], "delay": [7]}))
    assert job.unpublished is not None
    return job.unpublished.job


def test_job_that_waits_is_listed_and_published_with_apply_alone(table: DeltaTable) -> None:
    job = leave(table)
    (listed,) = as_json("publish", table.root.url)
    assert (listed["job"], listed["rows"]) == (job, 1)
    assert "unpublished" in invoke("jobs", table.root.url).stdout
    assert "--apply does it" in invoke("publish", table.root.url, job).stderr
    before = table.scan().count()
    found = as_json("publish", table.root.url, job, "--apply")
    assert (found["job"], found["repeated"], table.scan().count()) == (job, False, before + 1)
    assert as_json("publish", table.root.url, job, "--apply")["repeated"]
    assert as_json("publish", table.root.url) == []


def test_job_that_waits_is_aborted_by_its_name(table: DeltaTable) -> None:
    job = leave(table)
    assert invoke("publish", table.root.url, "--abort", "--apply").exit_code == Exit.REFUSED
    assert invoke("publish", table.root.url, job, "--abort", "--apply").exit_code == Exit.DONE
    again = invoke("publish", table.root.url, job, "--apply")
    assert (again.exit_code, "was aborted" in again.stderr) == (Exit.REFUSED, True)


def test_publish_with_apply_and_without_a_job_is_refused(table: DeltaTable) -> None:
    leave(table)
    found = invoke("publish", table.root.url, "--apply")
    assert (found.exit_code, "--apply is given without a job" in found.stderr) == (2, True)
    assert len(table.unpublished()) == 1


def test_publish_refuses_a_table_of_directories(s3_bucket: Bucket) -> None:
    url = f"s3://{s3_bucket.name}/directories"
    with Table(url).job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    found = invoke("publish", url)
    assert (found.exit_code, "no Delta table" in found.stderr) == (Exit.REFUSED, True)


def test_doctor_names_a_job_that_is_not_finished(table: DeltaTable) -> None:
    job = new_job_id()
    record = open_body(job, {"application": "job.py", "max_duration": 0})
    table.driver.perform(Put(table.root.open_key(job), record))
    found = as_json("doctor", table.root.url, code=Exit.LOOK)
    assert [(it["what"], it["subject"]) for it in found] == [("job not finished", job)]


def test_repair_writes_a_report_of_a_run_again(
    table: DeltaTable, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zero_rename.tables.run_reports._LATE", -60_000)  # No run is too young.
    with table.job(ROWS.schema, idempotency_key="run") as job:
        job.write(ROWS)
    reports = f"{table.root.prefix}/_zero_rename/runs/"
    s3_bucket.delete(reports)
    planned = invoke("repair", table.root.url)
    assert "To be written again" in planned.stderr
    assert "1 report of a run." in planned.stderr
    assert (planned.exit_code, s3_bucket.keys(reports)) == (Exit.DONE, [])
    done = invoke("repair", table.root.url, "--apply")
    assert (done.exit_code, "Written again" in done.stderr) == (Exit.DONE, True)
    assert len(s3_bucket.keys(reports)) == 1


def test_verify_names_a_file_that_is_gone(table: DeltaTable) -> None:
    key = table.state().files[0].key
    table.driver.perform(Delete(key))
    (found,) = as_json("verify", table.root.url, code=Exit.LOOK)
    assert (found["key"], found["kind"], found["partition"]) == (key, "missing", "day=1")


def test_compact_and_delete_change_rows_by_the_log(table: DeltaTable) -> None:
    done = as_json("compact", table.root.url, "--partition", "day=1", "--apply")
    assert [(it["partition"], it["files"], it["files_after"]) for it in done] == [("day=1", 2, 1)]
    deleted = as_json("delete", table.root.url, "--where", "delay > 5", "--apply")
    assert deleted["rows"]["deleted"] == 2
    assert table.scan().count() == 2


def test_checkpoint_is_written_with_apply_alone(table: DeltaTable) -> None:
    assert as_json("checkpoint", table.root.url) == {"version": None, "due": False}
    assert as_json("checkpoint", table.root.url, "--apply") == {"version": 1, "due": False}


def test_copy_refuses_a_delta_table_as_the_new_one_too(table: DeltaTable) -> None:
    other = Table(f"{table.root.url}_of_directories")
    with other.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    done = invoke("copy", other.root.url, table.root.url)
    assert done.exit_code == Exit.REFUSED
    assert "layout='delta'" in done.output


def test_a_plain_directory_is_looked_at_as_before(s3_bucket: Bucket) -> None:
    done = invoke("jobs", f"s3://{s3_bucket.name}/nothing")
    assert "there is no zero_rename table here" in done.output


def test_late_run_is_found_and_the_newest_brought_back(table: DeltaTable) -> None:
    url = table.root.url
    for rank in (2, 1):
        run = {"run_rank": rank, "idempotency_key": f"d/{rank}", "owner": Owner("daily", str(rank))}
        with table.job(ROWS.schema, mode="overwrite", replace_partitions=["day=1"], **run) as job:
            job.write(pa.table({"day": ["1"], "delay": [rank]}))
    (found,) = as_json("conflicts", url, "--partition", "day=1", code=1)["conflicts"]
    assert (found["partition"], found["cause"]) == ("day=1", "the older came later")
    dry = invoke("resolve", url, "--policy", "prefer=daily", "--partition", "day=1")
    assert "--apply" in dry.stderr
    resolved = as_json("resolve", url, "--policy", "keep=d/2", "--apply")["conflicts"]
    assert [(it["settled"], it["settlement"]["how"]) for it in resolved] == [(True, "restore")]
    assert table.scan(["day=1"]).to_arrow()["delay"].to_pylist() == [2]
    assert invoke("conflicts", url).exit_code == 0


@pytest.mark.parametrize("given", [("--partition", "day=1"), ("--order", "creation")])
def test_checkpoint_of_a_log_refuses_a_choice_of_files(
    table: DeltaTable, given: tuple[str, str]
) -> None:
    said = invoke("checkpoint", table.root.url, *given, "--apply")
    assert said.exit_code == Exit.REFUSED
    assert "choose files to copy" in " ".join(said.stderr.split())
    assert as_json("checkpoint", table.root.url) == {"version": None, "due": False}


def test_checkpoint_copies_what_lies_in_a_data_root(s3_bucket: Bucket) -> None:
    url, root = f"s3://{s3_bucket.name}/flights", f"s3://{s3_bucket.name}/scratch"
    table = DeltaTable(url)
    with table.job(ROWS.schema, partition_by=["day"], data_root=root) as job:
        job.write(ROWS)
    assert as_json("data-root", url)["before"] == root
    assert all(it["not durable"] == it["bytes"] > 0 for it in as_json("show", url))
    planned = as_json("checkpoint", url)
    assert [it["action"] for it in planned] == ["would copy"] * 2
    copied = as_json("checkpoint", url, "--apply")
    assert [it["action"] for it in copied] == ["copied"] * 2
    assert as_json("data-root", url)["not_durable"] == []
    assert not any(it["not durable"] for it in as_json("show", url))


def test_data_root_of_a_table_is_changed_and_files_stay(s3_bucket: Bucket) -> None:
    url, root = f"s3://{s3_bucket.name}/flights", f"s3://{s3_bucket.name}/scratch"
    table = DeltaTable(url)
    with table.job(ROWS.schema, partition_by=["day"]) as job:
        job.write(ROWS)
    assert as_json("data-root", url, root)["before"] is None
    assert table.data_root is None
    as_json("data-root", url, root, "--apply")
    assert str(table.data_root) == root
    assert as_json("data-root", url, "none", "--apply")["before"] == root
    assert table.data_root is None
