"""OpenLineage's view of a load, where its provider is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore


def load_lineage(report: Mapping[str, Any], schema: pa.Schema | None) -> OperatorLineage:
    """What a load has written: a dataset named as the Amazon provider names those on S3, with the
    job's rows, bytes and files, its id as the version, and the table's columns.

    :param report: :func:`.reports.commit_report`.
    :param schema: the table's; ``None`` where it is not known.
    :raises ImportError: the OpenLineage provider is not installed.
    """
    # On use: it is no dependency, and DAG files are parsed without it.
    from airflow.providers.common.compat.openlineage.facet import OutputDataset  # pyright: ignore
    from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet  # pyright: ignore
    from openlineage.client.generated.output_statistics_output_dataset import (  # pyright: ignore
        OutputStatisticsOutputDatasetFacet,
    )
    from openlineage.client.generated.schema_dataset import (  # pyright: ignore
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    bucket, _, prefix = str(report["table"]).removeprefix("s3://").partition("/")
    facets: dict[str, Any] = {"version": DatasetVersionDatasetFacet(datasetVersion=report["job"])}
    if schema is not None:
        fields = [
            SchemaDatasetFacetFields(name=field.name, type=str(field.type)) for field in schema
        ]
        facets["schema"] = SchemaDatasetFacet(fields=fields)
    written = OutputStatisticsOutputDatasetFacet(
        rowCount=report["rows"], size=report["bytes"], fileCount=report["files"]
    )
    dataset = OutputDataset(
        namespace=f"s3://{bucket}",
        name=prefix,
        facets=facets,
        outputFacets={"outputStatistics": written},
    )
    return OperatorLineage(outputs=[dataset])
