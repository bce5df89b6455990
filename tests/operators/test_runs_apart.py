"""Loads whose partition_format makes one partition of two runs of their DAG's schedule."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from airflow.sdk import DAG

from support.airflow import Tables
from support.fake_spark import FakeSpark
from support.spark_loads import operator, refused, run
from zero_rename.committer import InvalidInputError

DAY = "day=%Y-%m-%d"


def hourly() -> DAG:
    return DAG("flights", schedule="@hourly", start_date=datetime(2013, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("mode", ["overwrite", "replace"])
def test_a_load_of_runs_that_replace_one_partition_breaks_its_dag_file(mode: str) -> None:
    with hourly(), pytest.raises(InvalidInputError, match="of two runs of the DAG"):
        operator(partition=None, partition_format=DAY, mode=mode)


def test_a_load_of_runs_that_append_to_one_partition_is_taken() -> None:
    with hourly():
        operator(partition=None, partition_format=DAY, mode="append")


def test_a_load_of_a_partition_named_by_a_template_is_taken() -> None:
    with hourly():
        operator(partition="day={{ ds }}", partition_format=DAY, mode="overwrite")


@pytest.mark.memory_s3
def test_a_load_whose_template_makes_such_a_format_is_refused_before_spark(
    tables: Tables, spark: FakeSpark
) -> None:
    with hourly():
        given = {"partition": None, "partition_format": "{{ 'day=%Y-%m-%d' }}"}
        task = operator(tables, mode="overwrite", **given)
    refused(spark, "of two runs of the DAG 'flights'", task)


@pytest.mark.memory_s3
@pytest.mark.usefixtures("s3_server")
def test_a_load_whose_application_decides_the_mode_warns_of_such_a_format(
    tables: Tables, spark: FakeSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    with hourly():
        task = operator(tables, partition=None, partition_format="day=%-d")
    run(task)
    assert "of two runs of the DAG 'flights'" in capsys.readouterr().out
