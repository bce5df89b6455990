"""Three stages in a data root that is gone for good amid one of them: the plan heals all, and the
rows are those of a run without a data root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from support.memory_s3 import MemoryS3, answering
from support.moto_server import S3Server
from zero_rename.committer import FastRootGoneError, Owner
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.lineage import look_up, plan
from zero_rename.tables import DeltaTable

DAYS, WEEKS = range(4), range(2)
TABLES = ("daily", "weekly", "monthly")


class Stages:
    """Daily, weekly of that and monthly of that, each partition a program's run.

    :param data_root: where the tables' files lie first.
    """

    def __init__(self, client: Any, data_root: str | None, prefix: str) -> None:
        self.client, self.data_root, self.prefix = client, data_root, prefix
        self.end = contextlib.ExitStack()
        self.ends_while_it_writes: str | None = None
        client.put_object(Bucket="lake", Key="raw/days.csv", Body=b"raw")

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"s3://lake/{self.prefix}/{name}", self.client)

    def run(self, name: str, partition: str) -> None:
        """The program that makes a partition."""
        key, _, number = partition.partition("=")
        if name == "daily":
            value, inputs = int(number) + 1, ["s3://lake/raw/days.csv"]
        else:
            above = TABLES[TABLES.index(name) - 1]
            part = [f"day={2 * int(number) + it}" for it in (0, 1)] if name == "weekly" else None
            scan = self.table(above).scan(part)
            value, inputs = sum(scan.to_arrow()["x"].to_pylist()), [scan]
        rows = pa.table({"x": [value], key: [int(number)]})
        table = self.table(name)
        policy: dict[str, Any] = {"partition_by": [key], "inputs": inputs}
        if not table.exists():
            policy["data_root"] = self.data_root
        owner = Owner(dag_id="stages", run_id=partition, task_id=name)
        with table.job(rows.schema, mode="overwrite", owner=owner, **policy) as job:
            if name == self.ends_while_it_writes:
                self.end.close()
            job.write(rows)

    def all_runs(self) -> list[tuple[str, str]]:
        daily = [("daily", f"day={day}") for day in DAYS]
        weekly = [("weekly", f"week={week}") for week in WEEKS]
        return [*daily, *weekly, ("monthly", "month=0")]

    def heal(self) -> list[list[str]]:
        """Go on without the data root, and do what the plan says until it says nothing."""
        there = [self.table(name) for name in TABLES if self.table(name).exists()]
        for table in there:
            table.set_data_root(None, apply=True)
        layers: list[list[str]] = []
        while True:
            found = plan(look_up([table.root.url for table in there], self.client, lost=True))
            assert found.refused == ()
            if not found.layers:
                return layers
            layers.append([])
            for step in found.layers[0]:
                name = step.table.rpartition("/")[2]
                for partition in step.partitions:
                    self.run(name, partition)
                    layers[-1].append(f"{name}/{partition}")

    def rows(self) -> dict[str, list[tuple[int, int]]]:
        forget_reads()
        return {name: sorted(self._rows(name)) for name in TABLES}

    def _rows(self, name: str) -> Iterator[tuple[int, int]]:
        found = self.table(name).scan().to_arrow()
        return zip(*(found[column].to_pylist() for column in found.column_names), strict=True)


@pytest.fixture
def durable() -> Iterator[S3Server]:
    server = MemoryS3("http://durable.invalid")
    with answering(server):
        server.client().create_bucket(Bucket="lake")
        yield server


@pytest.mark.parametrize(
    ("amid", "layers"),
    [
        ("daily", [["daily/day=2"]]),
        ("weekly", [["daily/day=2", "daily/day=3", "weekly/week=0"]]),
        ("monthly", [["daily/day=2", "daily/day=3", "weekly/week=0"], ["weekly/week=1"]]),
    ],
)
def test_the_root_gone_amid_a_stage(
    durable: S3Server, amid: str, layers: list[list[str]], impatient: None
) -> None:
    """Two days are durable by then: they are not made again."""
    stages, told = Stages(durable.client(), None, "fast"), list[str]()
    with stages.end:
        server = MemoryS3("http://127.0.0.1:1")  # Where nothing listens: it ends with the stage.
        stages.end.enter_context(answering(server))
        server.client().create_bucket(Bucket="scratch")
        stages.data_root = f"s3://scratch/lake?endpoint={server.endpoint}"
        for name, partition in stages.all_runs():
            last = partition in ("day=3", "week=1", "month=0")
            stages.ends_while_it_writes = amid if last else None
            if partition == "day=2":
                stages.table("daily").checkpoint(apply=True)
            try:
                stages.run(name, partition)
            except FastRootGoneError as error:
                told.append(str(error))
                stages.ends_while_it_writes = stages.data_root = None
                assert stages.heal() == layers
                stages.run(name, partition)
    assert ["zero-rename lineage plan" in text for text in told] == [True]
    whole = Stages(durable.client(), None, "durable")
    for name, partition in whole.all_runs():
        whole.run(name, partition)
    assert stages.rows() == whole.rows()
    assert all(stages.table(name).not_durable() == [] for name in TABLES)
