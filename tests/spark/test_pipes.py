"""Commits reported to Dagster by the application that it launched."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from support.pipes import PipesRun, pipes
from zero_rename.committer import Table
from zero_rename.committer.format.handoff import Handoff
from zero_rename.spark import pipes as pipes_module
from zero_rename.spark import save
from zero_rename.spark.pipes import pipes_session, report_commit

__all__ = ["pipes"]

DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


@pytest.fixture
def table(s3_bucket: Any) -> Table:
    return Table(f"s3://{s3_bucket.name}/flights")


def commit(table: Table, data: pa.Table = DATA) -> Any:
    with table.job(data.schema, partition_by=("day",), idempotency_key="a") as job:
        job.write(data)
    return job.committed


def opened() -> Any:
    session = pipes_session()
    assert session is not None
    return session


def one_day(table: Table) -> Any:
    with table.job(DATA.schema, partition_by=("day",)) as job:
        job.write(DATA.slice(2))
    return job.committed


def test_a_commit_is_told_whole_and_as_the_assets_materialisation(
    table: Table, pipes: PipesRun
) -> None:
    committed = commit(table)
    report_commit(opened(), committed, is_asset=True)
    [message] = pipes.params("report_custom_message")
    told = message["payload"]["zero_rename"]
    assert (told["job"], [p["rows"] for p in told["partitions"]]) == (committed.job, [2, 1])
    [asset] = pipes.params("report_asset_materialization")
    assert (asset["asset_key"], asset["data_version"]) == ("flights", "1")
    partitions = asset["metadata"]["zero_rename/partitions"]["raw_value"]
    assert [(p["partition"], p["version"], p["rows"]) for p in partitions] == [
        ("day=1", 1, 2),
        ("day=2", 1, 1),
    ]
    assert "zero_rename/rows" not in asset["metadata"]


def test_commit_whose_report_has_nowhere_to_go_stays_a_commit(
    table: Table, pipes: PipesRun, caplog: pytest.LogCaptureFixture
) -> None:
    session, committed = opened(), commit(table)
    pipes.messages.unlink(missing_ok=True)
    pipes.messages.mkdir()
    report_commit(session, committed, is_asset=True)
    assert f"job {committed.job} is committed, and could not be reported" in caplog.text
    pipes.messages.rmdir()


def test_one_partitions_numbers_are_the_materialisations(table: Table, pipes: PipesRun) -> None:
    commit(table)
    committed = one_day(table)
    report_commit(opened(), committed, is_asset=True)
    metadata = pipes.params("report_asset_materialization")[0]["metadata"]
    found = {name: value["raw_value"] for name, value in metadata.items()}
    assert found["zero_rename/version"] == 2
    assert found["zero_rename/rows"] == 1
    assert found["dagster/uri"] == f"{table.root.url}/day=2"


def test_another_table_is_no_materialisation_of_the_asset(table: Table, pipes: PipesRun) -> None:
    report_commit(opened(), commit(table), is_asset=False)
    assert pipes.params("report_custom_message")
    assert not pipes.params("report_asset_materialization")


def test_a_second_commit_of_the_asset_is_told_in_its_message(
    table: Table, pipes: PipesRun, caplog: pytest.LogCaptureFixture
) -> None:
    report_commit(opened(), commit(table), is_asset=True)
    report_commit(opened(), one_day(table), is_asset=True)
    assert len(pipes.params("report_custom_message")) == 2
    assert len(pipes.params("report_asset_materialization")) == 1
    assert "not reported again" in caplog.text


def test_without_the_library_nothing_is_reported(
    pipes: PipesRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_pipes", None)
    with caplog.at_level(logging.WARNING):
        assert pipes_module.pipes_session() is None
    assert "Install dagster-pipes" in caplog.text


def test_where_nobody_launched_it_the_library_is_not_imported() -> None:
    program = (
        "import sys; from zero_rename.spark.pipes import pipes_session; "
        "assert pipes_session() is None; assert 'dagster_pipes' not in sys.modules"
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DAGSTER")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environ)


@pytest.mark.parametrize("ending", ["", "raise ValueError('of no use')"])
def test_the_session_is_closed_at_the_end_of_the_process(pipes: PipesRun, ending: str) -> None:
    program = f"from zero_rename.spark.pipes import pipes_session\npipes_session()\n{ending}\n"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | pipes.environment, check=False
    )
    assert ended.returncode == (1 if ending else 0)
    [closed] = pipes.params("closed")
    if ending:
        assert closed["exception"]["name"] == "ValueError"
        assert "of no use" in closed["exception"]["message"]
    else:
        assert closed == {}


@pytest.mark.spark
def test_save_reports_what_it_committed(
    spark: Any, table: Table, pipes: PipesRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame([(1, 1), (2, 1), (3, 2)], "value int, day int")
    told = {"table": table.root.url, "mode": "replace", "idempotency_key": "dagster/run/flights"}
    for name, value in told.items():
        monkeypatch.setenv(Handoff.variable(name), value)
    save(frame, partition_by=["day"], options={"idempotency_key": told["idempotency_key"]})
    [message] = pipes.params("report_custom_message")
    reported = message["payload"]["zero_rename"]
    assert reported["job"] == table.job_of_key(told["idempotency_key"])
    assert {p["partition"]: p["rows"] for p in reported["partitions"]} == {"day=1": 2, "day=2": 1}
    assert len(pipes.params("report_asset_materialization")) == 1


@pytest.mark.spark
def test_a_write_without_a_key_is_reported_too(spark: Any, table: Table, pipes: PipesRun) -> None:
    committed = save(spark.createDataFrame([(1, 1)], "value int, day int"), table.root.url)
    [message] = pipes.params("report_custom_message")
    assert committed is not None
    assert message["payload"]["zero_rename"]["job"] == committed.job
