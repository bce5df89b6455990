"""What is stale is run again by a real Airflow: weeks of days, months of weeks, years."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow_life.deployment import Deployment, deployment
from torture.servers import of_moto

from support import fork_server
from support.airflow import copy_database
from support.moto_server import S3Server
from support.waiting import until
from zero_rename import FileOptions, Table
from zero_rename.committer.format.job_spec import Content

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(900)]
#: Set by `make airflow-life` and `make proof`: each task of a whole Airflow costs seconds.
WHOLE = "AIRFLOW_WHOLE"
of_the_whole = pytest.mark.skipif(
    not os.environ.get(WHOLE), reason="minutes of a whole Airflow: make airflow-life"
)
#: What a table is made from: a week of two days, a month and a year of all there is; a copy of days
#: by one run, each as ten times what the day is; a day by each instance of a mapped task.
_JOB = """
import os
import pyarrow as pa
import pyarrow.compute
from zero_rename import FileOptions, Table
from zero_rename.spark.options import read_writer_options

url = os.environ["ZERO_RENAME_TABLE"]
lake, _, name = url.rpartition("/")
part = int(os.environ["PART"])
source = {"monthly": "weekly", "yearly": "monthly"}.get(name, "daily")
some = [("part", ">=", 2 * part), ("part", "<", 2 * part + 2)] if name == "weekly" else None
some = [("part", "=", part)] if name == "mapped" else some
scan = Table(f"{lake}/{source}").scan(filter=some)
rows = scan.to_arrow()
options = read_writer_options({"path": url, "partitionBy": "part"}, os.environ)
data = pa.table({"value": [sum(rows["value"].to_pylist())], "part": [part]})
if name == "copied":
    data = rows.set_column(0, "value", pa.compute.multiply(rows["value"], 10))
with Table(url).job(
    data.schema,
    mode=options.mode(True),
    partition_by=["part"],
    replace_partitions=options.replace_partitions,
    idempotency_key=options.idempotency_key,
    on_repeat=options.on_repeat,
    owner=options.owner("test"),
    code_version=options.code_version,
    files=FileOptions(content="rows"),
) as job:
    job.write(data)
"""
_DAGS = """
from airflow.sdk import DAG, Asset
from zero_rename.operators.recompute import RecomputeOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.sensors.success_manifest import SuccessManifestSensor

ON = {{"monthly": [Asset("{root}/weekly")]}}
for name in ("weekly", "monthly", "yearly"):
    with DAG(name, schedule=ON.get(name), params={{"part": 0, "on_repeat": "auto"}}):
        ZeroRenameSparkSubmitOperator(
            task_id="load", application="{job}", table=name, mode="overwrite",
            partition="part={{{{ params.part }}}}", env_vars={{"PART": "{{{{ params.part }}}}"}},
            on_repeat="{{{{ params.on_repeat }}}}",
            code_version="1" if name == "weekly" else None,
        )
with DAG("copied", schedule=None):
    ZeroRenameSparkSubmitOperator(
        task_id="load", application="{job}", table="copied", mode="overwrite", partition="*",
        env_vars={{"PART": "0"}},
    )
with DAG("mapped", schedule=None):
    ZeroRenameSparkSubmitOperator.partial(
        task_id="load", application="{job}", table="mapped", mode="overwrite",
        max_active_tis_per_dagrun=1,  # moto is for one writer at a time.
    ).expand_kwargs([
        {{"partition": f"part={{part}}", "env_vars": {{"PART": str(part)}}}} for part in range(4)
    ])
with DAG("recompute_mapped", schedule=None):
    RecomputeOperator(task_id="again", targets=["mapped"], poll_interval=1)
for version in ("1", "2"):
    with DAG(f"recompute_by_{{version}}", schedule=None):
        RecomputeOperator(
            task_id="again", targets=["weekly/part=0"], poll_interval=1,
            code_versions={{"weekly": version}},
        )
with DAG("copied_day", schedule=None, params={{"part": 1}}):
    SuccessManifestSensor(
        task_id="again", table="copied", partition="part={{{{ params.part }}}}", min_rows=1,
        on_stale="recompute", deferrable=True, poke_interval=1,
    )
with DAG("week_of_2", schedule=None):
    SuccessManifestSensor(
        task_id="again", table="weekly", partitions=["part=0"], on_stale="recompute",
        deferrable=True, poke_interval=1, code_versions={{"weekly": "2"}},
    )
with DAG("recompute", schedule=None):
    RecomputeOperator(task_id="again", targets=["yearly"], poll_interval=1, deferrable=True)
"""
#: Stands for Spark's: runs the application, which is the last word, in plain Python.
_SUBMIT = """
import runpy, sys

runpy.run_path(sys.argv[-1], run_name="__main__")
"""


class Lake:
    """Four tables, and the Airflow that loads them."""

    def __init__(self, airflow: Deployment, root: str) -> None:
        self.airflow, self._root = airflow, root

    def load(self, name: str, part: int = 0, **more: Any) -> str:
        """Run a load to its end. Returns its run's id."""
        run = self.airflow.trigger(name, conf={"part": part, **more})
        self.airflow.succeeded(name, run)
        return run

    def day(self, part: int, value: int) -> None:
        """Load a day: what a program outside Airflow does."""
        rows = pa.table({"value": [value], "part": [part]})
        table = self.table("daily")
        by_rows = FileOptions(content=Content.ROWS)
        with table.job(
            rows.schema, partition_by=["part"], mode="overwrite", files=by_rows, inputs=()
        ) as job:
            job.write(rows)

    def value(self, name: str) -> dict[int, int]:
        rows = self.table(name).to_arrow().to_pylist()
        return {row["part"]: row["value"] for row in rows}

    def table(self, name: str) -> Table:
        return Table(f"{self._root}/{name}")

    def waited(self, part: int) -> dict[str, Any]:
        """What a sensor reports of a day of the copies."""
        run = self.airflow.trigger("copied_day", conf={"part": part})
        assert self.airflow.ended("copied_day", run) == "success", self.airflow.said(
            "copied_day", run
        )
        return self.airflow.report("copied_day", run, "again")

    def clear(self, name: str, run: str) -> None:
        """Clear a load by hand, and wait for its end."""
        again = {"dry_run": False, "only_failed": False, "dag_run_id": run}
        self.airflow.call("POST", f"dags/{name}/clearTaskInstances", json=again)
        assert self.airflow.ended(name, run) == "success"

    def recompute(self, dag: str = "recompute") -> list[list[tuple[str, str]]]:
        """The layers that were run again: tables and partitions."""
        return self.airflow.made_again(dag)

    def refused(self, dag: str = "recompute") -> str:
        run = self.airflow.trigger(dag)
        assert self.airflow.ended(dag, run) == "failed"
        return self.airflow.said(dag, run)

    def runs(self, name: str) -> int:
        return len(self.airflow.runs(name))


@pytest.fixture
def lake(
    tmp_path: Path, s3_server: S3Server, s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    root = f"s3://{s3_bucket.name}/lake"
    program, submit = tmp_path / "submit.py", tmp_path / "bin" / "spark-submit"
    program.write_text(_SUBMIT)
    submit.parent.mkdir()
    submit.write_text(fork_server.client(str(program)))
    submit.chmod(0o755)
    monkeypatch.setenv("PATH", f"{submit.parent}{os.pathsep}{os.environ['PATH']}")
    job = tmp_path / "job.py"
    job.write_text(_JOB)

    def dags(folder: Path) -> None:
        folder.mkdir()
        (folder / "lake.py").write_text(_DAGS.format(root=root, job=job))

    home = tmp_path / "airflow"
    home.mkdir()
    copy_database(home / "airflow.db")
    database = f"sqlite:///{home}/airflow.db?timeout=60"
    with deployment(home, database, of_moto(s3_server), root, dags) as airflow:
        yield Lake(airflow, root)


def test_what_is_stale_is_run_again(lake: Lake) -> None:
    for part in range(4):
        lake.day(part, 10**part)
    lake.load("weekly", 0)
    lake.load("weekly", 1)
    until("a month of both weeks", lambda: lake.value("monthly") == {0: 1111})
    lake.airflow.settled("monthly")
    lake.load("yearly")

    # The month is made by a run that the week's asset has started, and not a second time.
    months = lake.runs("monthly")
    lake.day(1, 20)
    assert lake.recompute() == [[("weekly", "part=0")], [("yearly", "part=0")]]
    assert lake.value("yearly") == {0: 1 + 20 + 100 + 1000}
    assert lake.runs("monthly") == months + 1

    # Of a run that has made four days, only what is asked for is made again.
    lake.load("copied")
    lake.day(0, 100)
    report = lake.waited(1)
    assert (report["partitions"][0]["partition"], report["partitions"][0]["version"]) == (
        "part=1",
        2,
    )
    assert lake.value("copied") == {0: 10, 1: 200, 2: 1000, 3: 10000}


@of_the_whole
def test_what_cannot_be_run_again(lake: Lake) -> None:
    for part in range(4):
        lake.day(part, 10**part)
    lake.load("weekly", 0)
    second = lake.load("weekly", 1, on_repeat="skip")
    until("a month of both weeks", lambda: lake.value("monthly") == {0: 1111})
    lake.airflow.settled("monthly")
    lake.load("yearly")

    # A program that was run again and is of the version before is not run a second time.
    before = lake.table("weekly").snapshot().versions["part=0"]
    assert lake.recompute("recompute_by_1") == []
    assert "is made by code version 1, now 2: deploy that" in lake.refused("recompute_by_2")
    assert lake.table("weekly").snapshot().versions["part=0"] == before + 1
    assert "is made by code version 1, now 2: deploy that" in lake.refused("week_of_2")

    lake.day(2, 5)
    weekly = "dags/weekly"
    lake.airflow.call("PATCH", weekly, json={"is_paused": True})
    assert "DAG weekly is paused" in lake.refused()
    lake.airflow.call("PATCH", weekly, json={"is_paused": False})
    assert "on_repeat=" in lake.refused()
    lake.airflow.call("DELETE", f"{weekly}/dagRuns/{second}")
    assert "no more there" in lake.refused()
    assert lake.value("yearly") == {0: 1111}


@of_the_whole
def test_only_what_is_asked_for_of_a_run(lake: Lake) -> None:
    """By a sensor that lets what is stale be made again."""
    for part in range(4):
        lake.day(part, part)
    first = lake.load("copied")
    mended = pa.table({"value": [-3], "part": [3]})
    with lake.table("copied").job(mended.schema, mode="overwrite") as job:
        job.write(mended)
    lake.day(0, 100)
    lake.day(1, 101)
    lake.day(3, 103)
    report = lake.waited(1)
    assert (report["partitions"][0]["partition"], report["partitions"][0]["version"]) == (
        "part=1",
        2,
    )
    assert lake.value("copied") == {0: 0, 1: 1010, 2: 20, 3: -3}
    # Fresh now, so nothing is run again.
    assert lake.waited(1) == report
    assert lake.waited(0)["job"] != report["job"]
    assert lake.value("copied") == {0: 1000, 1: 1010, 2: 20, 3: -3}
    # Who clears the run himself has all of it again.
    lake.day(1, 201)
    lake.clear("copied", first)
    assert lake.value("copied") == {0: 1000, 1: 2010, 2: 20, 3: 1030}


@of_the_whole
def test_instances_of_a_mapped_task_are_run_again_by_themselves(lake: Lake) -> None:
    for part in range(4):
        lake.day(part, 10**part)
    run = lake.load("mapped")
    assert lake.recompute("recompute_mapped") == []
    lake.day(1, 11)
    lake.day(3, 1003)
    (layer,) = lake.recompute("recompute_mapped")
    assert sorted(layer) == [("mapped", "part=1"), ("mapped", "part=3")]
    assert lake.value("mapped") == {0: 1, 1: 11, 2: 100, 3: 1003}
    path = f"dags/mapped/dagRuns/{run}/taskInstances/load/listMapped"
    found = lake.airflow.call("GET", path)["task_instances"]
    tries = {it["map_index"]: it["try_number"] for it in found}
    assert tries == {0: 1, 1: 2, 2: 1, 3: 2}
    assert lake.recompute("recompute_mapped") == []
