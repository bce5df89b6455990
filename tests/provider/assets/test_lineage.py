"""What the real OpenLineage classes are given; where they are not installed, nothing asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.airflow import JOB_FILE, Tables, task_context
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.orchestration.runs.reports import commit_report

pytest.importorskip("openlineage.client")


def test_a_load(tables: Tables) -> None:
    from openlineage.client.serde import Serde  # pyright: ignore

    committed = tables.load(1, 2, rows=3)
    task: Any = ZeroRenameSparkSubmitOperator(
        task_id="load", application=str(JOB_FILE), table=tables.url(), partition="*"
    )
    assert task.get_openlineage_facets_on_complete(None) is None
    task._published_load = tables.table(), commit_report(committed)
    found = task.get_openlineage_facets_on_complete(task_context(task)["ti"])
    assert (found.inputs, len(found.outputs)) == ([], 1)
    dataset = json.loads(Serde.to_json(found.outputs[0]))
    assert dataset["namespace"] == f"s3://{tables.bucket.name}"
    assert dataset["name"] == "wh/flights"
    written = dataset["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["fileCount"]) == (6, 2)
    assert written["size"] == committed.bytes
    columns = [(it["name"], it["type"]) for it in dataset["facets"]["schema"]["fields"]]
    assert columns == [("day", "int32"), ("flight", "string")]
    assert dataset["facets"]["version"]["datasetVersion"] == committed.job


def test_names_are_those_of_the_amazon_provider(tables: Tables) -> None:
    from airflow.providers.amazon.aws.assets.s3 import convert_asset_to_openlineage
    from airflow.sdk import Asset

    from zero_rename.provider.assets.lineage import load_lineage

    theirs: Any = convert_asset_to_openlineage(Asset(tables.url()), None)  # pyright: ignore
    (ours,) = load_lineage(commit_report(tables.load(1)), None).outputs
    assert (ours.namespace, ours.name) == (theirs.namespace, theirs.name)
