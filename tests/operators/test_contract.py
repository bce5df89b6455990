"""What the operator hands over and what the data source reads are the same variables."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from support.airflow import Connect, Tables, task_context
from zero_rename.committer import OnRepeat
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.orchestration.runs.task_run import TaskRun
from zero_rename.spark.options import WriterOptions, read_writer_options

DATA_ROOT = "s3://fast/lake?endpoint=http://nvme.example:9000&profile=nvme"


@pytest.fixture
def given(tables: Tables, connect: Connect) -> dict[str, str]:
    """All variables there can be."""
    connect(
        "zr",
        extra={
            "table_root": tables.url(""),
            "success_markers": "table",
            "encryption": "SSE-KMS alias/lake",
        },
    )
    task = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application="job.py",
        table="flights",
        partition=["day=1", "day=a;b,c"],
        mode="overwrite",
        on_conflict="last_wins",
        on_superseded="fail",
        distribute="partition",
        code_version="{{ '4' }}",
        zero_rename_conn_id="zr",
    )
    context: Any = task_context(task, try_number=2, map_index=3)
    task.render_template_fields(context)
    said = task._table_load(context).handoff
    return replace(said, on_repeat=OnRepeat.REPLACE_OWN).encode()


def test_every_variable_is_read(given: dict[str, str]) -> None:
    """But for what only Dagster's assets without partitions say, or loads of Delta tables."""
    read = {field.metadata["handed"] for field in fields(WriterOptions)} | {"table"}
    said = read - {None, "replace_table", "publish", "data_root"}
    assert set(given) == {Handoff.variable(name) for name in said}


def test_they_mean_the_same(given: dict[str, str], tables: Tables) -> None:
    options = read_writer_options({"path": tables.url()}, given)
    assert options.idempotency_key == "flights/scheduled__2013-02-02/load/3"
    assert options.on_repeat == "replace_own"
    assert options.success_markers == "table"
    assert options.mode(overwrite=True) == "replace"
    assert options.on_conflict == "last_wins"
    assert options.distribute == "partition"
    assert options.default_encryption == Encryption(Algorithm.SSE_KMS, "alias/lake")
    assert options.code_version == "4"
    assert options.replace_partitions == ("day=1", "day=a;b,c")
    owner = options.owner("app")
    assert TaskRun("flights", "scheduled__2013-02-02", "load", 3, 2, 1).owns(owner)
    assert owner.try_number == 2


def test_a_load_of_a_delta_table_hands_over_the_connections_data_root(
    tables: Tables, connect: Connect
) -> None:
    connect("zr", extra={"data_root": DATA_ROOT})
    load = ZeroRenameSparkSubmitOperator(
        task_id="load",
        application="job.py",
        table=tables.url(),
        partition="*",
        layout="delta",
        zero_rename_conn_id="zr",
    )
    context: Any = task_context(load)
    given = load._table_load(context).handoff.encode()
    options = read_writer_options({"path": tables.url()}, given)
    assert options.data_root == FastRoot.parse(DATA_ROOT)


def test_a_load_that_adds_may_write_its_partitions_only(tables: Tables, connect: Connect) -> None:
    connect("zr", extra={})
    for mode in (None, "append"):
        task = ZeroRenameSparkSubmitOperator(
            task_id="load",
            application="job.py",
            table=tables.url(),
            partition="day=a;b,c",
            mode=mode,
            zero_rename_conn_id="zr",
        )
        context: Any = task_context(task)
        given = task._table_load(context).handoff.encode()
        options = read_writer_options({"path": tables.url()}, given)
        assert options.only_partitions == ("day=a;b,c",)
        assert options.replace_partitions is None


@pytest.mark.parametrize(
    ("across", "said_of_it"),
    [(None, None), (False, None), (True, True), ("{{ 1 < 2 }}", True), ("{{ 'no' }}", None)],
)
def test_a_merge_is_handed_over_with_its_words(
    tables: Tables, across: bool | str | None, said_of_it: bool | None
) -> None:
    words: dict[str, Any] = {"delete_when": "op = '{{ 'D' }}'", "latest_by": "{{ 'at' }}"}
    words["across_partitions"] = across
    merges: dict[str, Any] = {
        **{"table": tables.url(), "partition": "*", "mode": "merge"},
        **{"merge_on": "{{ 'id, day' }}", **words},
    }

    @task.zero_rename(**merges)
    def function() -> None: ...

    with DAG("merges"):
        called: Any = function()
        load = ZeroRenameSparkSubmitOperator(task_id="load", application="job.py", **merges)
    for made in (called.operator, load):
        context: Any = task_context(made)
        made.render_template_fields(context)
        said = made._table_load(context).handoff
        assert (said.mode, said.merge_on) == ("merge", ("id", "day"))
        assert (said.delete_when, said.latest_by) == ("op = 'D'", "at")
        assert said.across_partitions is said_of_it
        assert Handoff.decode(said.encode()) == said


def test_they_do_not_speak_of_another_table(given: dict[str, str], tables: Tables) -> None:
    options = read_writer_options({"path": tables.url("other")}, given)
    assert options.idempotency_key is None
    assert options.replace_partitions is None
