"""What the real OpenLineage classes are given."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Asset, AssetAlias

from support.airflow import JOB_FILE, Connect, Tables, task_context
from zero_rename.committer import DataFile, Snapshot, TableRoot
from zero_rename.committer.format.records.inputs import TableRead
from zero_rename.committer.scan.reads import read_of
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.orchestration.runs.reports import commit_report

pytestmark = [pytest.mark.usefixtures("optional_providers"), pytest.mark.memory_s3]


def test_a_load(tables: Tables) -> None:
    from openlineage.client.serde import Serde

    committed = tables.load(1, 2, rows=3)
    task: Any = ZeroRenameSparkSubmitOperator(
        task_id="load", application=str(JOB_FILE), table=tables.url(), partition="*"
    )
    assert task.get_openlineage_facets_on_complete(None) is None
    context: Any = task_context(task)
    load = task._table_load(context)
    task._published_load = load, commit_report(committed)
    found = task.get_openlineage_facets_on_complete(context["ti"])
    assert (found.inputs, len(found.outputs)) == ([], 1)
    dataset = json.loads(Serde.to_json(found.outputs[0]))
    assert dataset["namespace"] == f"s3://{tables.bucket.name}"
    assert dataset["name"] == "wh/flights"
    written = dataset["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["fileCount"]) == (6, 2)
    assert written["size"] == committed.bytes
    subset = dataset["outputFacets"]["subset"]["outputCondition"]
    assert [it["dimensions"] for it in subset["partitions"]] == [{"day": "1"}, {"day": "2"}]
    columns = [(it["name"], it["type"]) for it in dataset["facets"]["schema"]["fields"]]
    assert columns == [("day", "int32"), ("flight", "string")]
    assert dataset["facets"]["version"]["datasetVersion"] == committed.job

    # What another job has read is not this one's.
    tables.load(3, inputs=raw(h1=8))
    committed = tables.load(1, 2, rows=3, inputs=raw(h1=7))
    task._published_load = load, commit_report(committed)
    found = task.get_openlineage_facets_on_complete(context["ti"])
    (read,) = [json.loads(Serde.to_json(it)) for it in found.inputs]
    assert (read["namespace"], read["name"]) == ("s3://lake", "raw")
    assert read["facets"]["version"]["datasetVersion"] == "hour=1@7"
    (partition,) = read["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert (partition["identifier"], partition["dimensions"]) == ("hour=1", {"hour": "1"})


class TestWhatIsNotCommitted:
    """START, and a task that failed: by Airflow's own extractor."""

    def asked(self, task: Any, state: str) -> Any:
        from airflow.providers.openlineage.extractors.manager import ExtractorManager
        from airflow.utils.state import TaskInstanceState

        return ExtractorManager().extract_metadata(
            SimpleNamespace(run_id="r"), task, TaskInstanceState(state), SimpleNamespace(task=task)
        )

    def task(self, table: str, **given: Any) -> Any:
        return ZeroRenameSparkSubmitOperator(
            task_id="load", application=str(JOB_FILE), table=table, partition="*", **given
        )

    @pytest.mark.parametrize("state", ["running", "failed"])
    @pytest.mark.parametrize("table", ["flights", "s3a://lake/wh/flights/"])
    def test_the_table_is_named(self, connect: Connect, state: str, table: str) -> None:
        connect("lake", extra={"table_root": "s3://lake/wh"})
        inlets = [Asset("s3://lake/raw"), AssetAlias("nothing")]
        task = self.task(table, zero_rename_conn_id="lake", inlets=inlets)
        found = self.asked(task, state)
        assert [(it.namespace, it.name) for it in found.outputs] == [("s3://lake", "wh/flights")]
        assert [(it.namespace, it.name) for it in found.inputs] == [("s3://lake", "raw")]

    def test_not_one_that_is_no_table(self) -> None:
        assert self.asked(self.task("flights"), "running").outputs == []

    def test_a_task_that_failed_after_its_commit(self, tables: Tables) -> None:
        task = self.task(tables.url())
        committed = tables.load(1)
        load = task._table_load(task_context(task))
        task._published_load = load, commit_report(committed)
        (output,) = self.asked(task, "failed").outputs
        assert output.facets["version"].datasetVersion == committed.job


def test_inlets_beside_what_was_read(tables: Tables) -> None:
    from zero_rename.provider.assets.lineage import load_lineage

    inlets = [Asset("s3://lake/raw"), Asset("s3://lake/other")]
    made = load_lineage(commit_report(tables.load(1)), None, [read(h1=7)], inlets).inputs
    assert [it.name for it in made] == ["raw", "other"]
    assert made[0].facets["version"].datasetVersion == "hour=1@7"


def test_nested_columns_are_fields(tables: Tables) -> None:
    from zero_rename.provider.assets.lineage import load_lineage

    stop = pa.struct([("airport", pa.string()), ("minutes", pa.int32())])
    columns = {"day": pa.int32(), "by": stop, "stops": pa.list_(stop)}
    schema = pa.schema([*columns.items(), ("fares", pa.map_(pa.string(), pa.float64()))])
    (made,) = load_lineage(commit_report(tables.load(1)), schema).outputs

    def told(fields: Any) -> dict[str, Any]:
        return {it.name: (it.type, told(it.fields)) if it.fields else it.type for it in fields}

    within = ("struct", {"airport": "string", "minutes": "int32"})
    assert told(made.facets["schema"].fields) == {
        "day": "int32",
        "by": within,
        "stops": ("array", {"_element": within}),
        "fares": ("map", {"key": "string", "value": "double"}),
    }


def raw(**hours: int) -> list[Snapshot]:
    """A state of another table: partitions by hour, and their versions."""
    versions = {f"hour={hour.removeprefix('h')}": version for hour, version in hours.items()}
    files = tuple(DataFile(f"raw/{name}/f", name, 1, 1, "sha256:1", "") for name in versions)
    schema = pa.schema([("hour", pa.int32())])
    return [Snapshot(TableRoot("lake", "raw"), schema, ("hour",), files, versions)]


def read(**hours: int) -> TableRead:
    (state,) = raw(**hours)
    return read_of(state).stated()


def test_many_partitions_are_a_digest_and_a_number(tables: Tables) -> None:
    from zero_rename.provider.assets.lineage import load_lineage

    def version(last: int) -> str:
        reads = [read(**{f"h{n}": 1 for n in range(last)})]
        (made,) = load_lineage(commit_report(committed), None, reads).inputs
        assert ("subset" in made.inputFacets) == (last <= 1_000)
        return made.facets["version"].datasetVersion

    committed = tables.load(1)
    assert version(1_001).startswith("1001 partitions ")
    assert version(1_001) != version(1_002)
    assert version(20).endswith("hour=9@1")


def test_names_are_those_of_the_amazon_provider(tables: Tables) -> None:
    from airflow.providers.amazon.aws.assets.s3 import convert_asset_to_openlineage

    from zero_rename.provider.assets.lineage import load_lineage

    theirs: Any = convert_asset_to_openlineage(Asset(tables.url()), None)
    (ours,) = load_lineage(commit_report(tables.load(1)), None).outputs
    assert (ours.namespace, ours.name) == (theirs.namespace, theirs.name)
