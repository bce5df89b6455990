"""OpenLineage's view of a load, where its provider is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore

    from ...committer.scan.job_inputs import TableRead

#: Partitions whose epochs are in a version by name; of more it is a digest.
_NAMED = 20


def load_lineage(
    report: Mapping[str, Any], schema: pa.Schema | None, reads: Iterable[TableRead] = ()
) -> OperatorLineage:
    """What a load has written and read: datasets named as the Amazon provider names those on S3.

    The output has the job's rows, bytes and files, its id as the version, its partitions and the
    table's columns. An input has the partitions that were read, and their epochs as the version.

    :param report: :func:`.reports.commit_report`.
    :param schema: the table's; ``None`` where it is not known.
    :param reads: what the application has read before it committed.
    :raises ImportError: the OpenLineage provider is not installed.
    """
    # On use: it is no dependency, and DAG files are parsed without it.
    from airflow.providers.common.compat.openlineage.facet import OutputDataset  # pyright: ignore
    from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore
    from openlineage.client.generated import base_subset_dataset as subset  # pyright: ignore
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet  # pyright: ignore
    from openlineage.client.generated.output_statistics_output_dataset import (  # pyright: ignore
        OutputStatisticsOutputDatasetFacet,
    )
    from openlineage.client.generated.schema_dataset import (  # pyright: ignore
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    facets: dict[str, Any] = {"version": DatasetVersionDatasetFacet(datasetVersion=report["job"])}
    if schema is not None:
        fields = [
            SchemaDatasetFacetFields(name=field.name, type=str(field.type)) for field in schema
        ]
        facets["schema"] = SchemaDatasetFacet(fields=fields)
    written = {
        "outputStatistics": OutputStatisticsOutputDatasetFacet(
            rowCount=report["rows"], size=report["bytes"], fileCount=report["files"]
        )
    }
    paths = [it["partition"] for it in report["partitions"]]
    if any(paths):
        written["subset"] = subset.OutputSubsetOutputDatasetFacet(_condition(paths))
    dataset = OutputDataset(**_name(str(report["table"])), facets=facets, outputFacets=written)
    return OperatorLineage(inputs=[_input(read) for read in reads], outputs=[dataset])


def _input(read: TableRead) -> Any:
    from airflow.providers.common.compat.openlineage.facet import InputDataset  # pyright: ignore
    from openlineage.client.generated import base_subset_dataset as subset  # pyright: ignore
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet  # pyright: ignore

    version = DatasetVersionDatasetFacet(datasetVersion=_version(read))
    paths = [it.partition for it in read.partitions]
    facets = {}
    if any(paths) and not read.more:
        facets["subset"] = subset.InputSubsetInputDatasetFacet(_condition(paths))
    return InputDataset(**_name(read.table), facets={"version": version}, inputFacets=facets)


def _condition(paths: Sequence[str]) -> Any:
    """Which partitions of a dataset, by what their paths say."""
    from openlineage.client.generated import base_subset_dataset as subset  # pyright: ignore

    from ...committer.schema.hive_paths import parse_partition

    named = [(path, dict(parse_partition(path))) for path in paths]
    return subset.PartitionSubsetCondition([subset.Partition(it, path) for path, it in named])


def _name(table: str) -> dict[str, str]:
    bucket, _, prefix = table.removeprefix("s3://").partition("/")
    return {"namespace": f"s3://{bucket}", "name": prefix}


def _version(read: TableRead) -> str:
    """The state that was read: an epoch tells one state of a partition from any other."""
    epochs = ";".join(f"{it.partition}@{it.epoch}" for it in read.partitions)
    if len(read.partitions) <= _NAMED:
        return epochs
    return f"{len(read.partitions) + read.more} partitions {sha256(epochs.encode()).hexdigest()}"
