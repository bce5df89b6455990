"""Empty lists of partitions at Spark's doors: all rows are refused, and none change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from support.spark_tables import held, write
from zero_rename.committer import InvalidInputError, Table
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.layout import TableRoot
from zero_rename.spark import load, merge, save

pytestmark = pytest.mark.spark

BEFORE = [(1, "x"), (2, "y"), (3, "x")]


def test_save_that_names_no_partition_refuses_rows_and_changes_nothing_without_rows(
    frame: Any, url: str
) -> None:
    save(frame, url, partition_by=["p"])
    before, none = Table(url).snapshot().versions, frame.where("false")
    for committer in ("zero_rename", "magic"):
        for mode in ("overwrite", "append"):
            names_none: dict[str, Any] = {"mode": mode, "partitions": [], "committer": committer}
            with pytest.raises(InvalidInputError, match="names no"):
                save(frame, url, partition_by=["p"], **names_none)
            save(none, url, partition_by=["p"], **names_none)
            assert (held(url), Table(url).snapshot().versions) == (BEFORE, before)


@pytest.mark.parametrize("mode", [Mode.REPLACE, Mode.APPEND])
def test_save_refuses_rows_where_the_submitter_names_no_partition(
    frame: Any, url: str, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    save(frame, url, partition_by=["p"])
    said = Handoff(table=TableRoot.parse(url), mode=mode, partitions=())
    for name, value in said.encode().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInputError, match="it names none"):
        save(frame)
    with pytest.raises(InvalidInputError, match="its task is about none"):
        save(frame, partitions=["p=x"])
    assert held(url) == BEFORE


@pytest.mark.parametrize(
    ("mode", "option"), [("overwrite", "replacePartitions"), ("append", "onlyPartitions")]
)
def test_an_option_that_names_no_partition_is_refused_with_and_without_rows(
    frame: Any, url: str, mode: str, option: str
) -> None:
    save(frame, url, partition_by=["p"])
    for rows in (frame, frame.where("false")):
        with pytest.raises(Exception, match=f"{option} names none"):
            write(rows, url, mode, **{option: "[]"})
        with pytest.raises(InvalidInputError, match="onlyPartitions names none"):
            merge(rows, url, on=["n"], options={"onlyPartitions": "[]"})
    assert held(url) == BEFORE


def test_a_merge_refuses_partitions_to_replace_and_does_not_pass_over_them(
    frame: Any, url: str
) -> None:
    save(frame, url, partition_by=["p"])
    for option in ("replacePartitions", "replace_partitions"):
        with pytest.raises(InvalidInputError, match="says nothing to a change of rows"):
            merge(frame, url, on=["n"], options={option: "p=x"})
    with pytest.raises(InvalidInputError, match="distribute=none says nothing to a change of rows"):
        merge(frame, url, on=["n"], options={"distribute": "none"})


def test_load_of_no_partition_reads_no_row(spark: Any, frame: Any, url: str) -> None:
    save(frame, url, partition_by=["p"])
    assert load(spark, url, partitions=[]).collect() == []
