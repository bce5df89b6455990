"""OpenLineage's datasets of a load. Imported only if OpenLineage's provider asks for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from airflow.providers.common.compat.openlineage.facet import InputDataset, OutputDataset
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from openlineage.client.generated import base_subset_dataset as subset
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.output_statistics_output_dataset import (
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

from ...committer.errors import ZeroRenameError
from ...committer.format.schema.hive_paths import parse_partition

if TYPE_CHECKING:
    from ...committer.format.records.inputs import TableRead
    from ...orchestration.runs.loaded_table import LoadedTable

_log = logging.getLogger(__name__)
#: The most partitions that a dataset's version names; for more it has a digest.
_NAMED = 20


def named_lineage(table: str, inlets: Iterable[Any] = ()) -> OperatorLineage:
    """Return the lineage of a load that has not committed: only its table and inlets.

    :param table: the URL of the table that it should write.
    :param inlets: of the task.
    """
    return OperatorLineage(inputs=_inlets(inlets), outputs=[OutputDataset(**_name(table))])


def job_lineage(
    table: LoadedTable, report: Mapping[str, Any], inlets: Iterable[Any]
) -> OperatorLineage:
    """Return the datasets that a committed job has written and read.

    If the table cannot be read now, its columns and the job's inputs are left out.

    :param report: :func:`.reports.commit_report`.
    :param inlets: of the task.
    """
    schema, reads = None, ()
    try:
        schema = table.schema
        reads = table.inputs_of(report["job"]).tables
    except ZeroRenameError as error:
        _log.warning("OpenLineage is not told all of the load: %s", error)
    return load_lineage(report, schema, reads, inlets)


def load_lineage(
    report: Mapping[str, Any],
    schema: pa.Schema | None,
    reads: Iterable[TableRead] = (),
    inlets: Iterable[Any] = (),
) -> OperatorLineage:
    """Return the datasets that a load has written and read.

    They have the names that the Amazon provider gives to datasets on S3. The output has the job's
    rows, bytes and files, its id as the version, its partitions and the table's columns. An input
    has the partitions that were read, and its version has their versions.

    :param report: :func:`.reports.commit_report`.
    :param schema: of the table; ``None`` if it is not known.
    :param reads: the tables that the application read before it committed.
    :param inlets: of the task; they are inputs, too.
    """
    facets: dict[str, Any] = {"version": DatasetVersionDatasetFacet(datasetVersion=report["job"])}
    if schema is not None:
        facets["schema"] = SchemaDatasetFacet(fields=[_column(it.name, it.type) for it in schema])
    written = {
        "outputStatistics": OutputStatisticsOutputDatasetFacet(
            rowCount=report["rows"], size=report["bytes"], fileCount=report["files"]
        )
    }
    paths = [it["partition"] for it in report["partitions"]]
    if any(paths):
        written["subset"] = subset.OutputSubsetOutputDatasetFacet(_condition(paths))
    dataset = OutputDataset(**_name(str(report["table"])), facets=facets, outputFacets=written)
    inputs = [_input(read) for read in reads]
    return OperatorLineage(inputs=[*inputs, *_inlets(inlets, inputs)], outputs=[dataset])


def _column(name: str, kind: pa.DataType) -> Any:
    """Return a column as a field with its nested fields.

    These are a struct's members, a list's element, a map's keys and values.
    """
    within: dict[str, pa.DataType] = {}
    said = str(kind)
    if isinstance(kind, pa.StructType):
        said, within = "struct", {it.name: it.type for it in kind}
    elif isinstance(kind, pa.MapType):
        said, within = "map", {"key": kind.key_type, "value": kind.item_type}
    elif isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        said, within = "array", {"_element": kind.value_type}
    fields = [_column(*it) for it in within.items()]
    return SchemaDatasetFacetFields(name=name, type=said, fields=fields)


def _inlets(inlets: Iterable[Any], read: Iterable[Any] = ()) -> list[Any]:
    """Return the inlets that are datasets, without those in ``read``, which have more details."""
    known = {(it.namespace, it.name) for it in read}
    found = map(ExtractorManager.convert_to_ol_dataset, inlets)
    return [it for it in found if it is not None and (it.namespace, it.name) not in known]


def _input(read: TableRead) -> Any:
    version = DatasetVersionDatasetFacet(datasetVersion=_version(read))
    paths = [it.partition for it in read.partitions]
    facets = {}
    if any(paths):
        facets["subset"] = subset.InputSubsetInputDatasetFacet(_condition(paths))
    return InputDataset(**_name(read.table), facets={"version": version}, inputFacets=facets)


def _condition(paths: Sequence[str]) -> Any:
    """Return the condition that selects partitions of a dataset, by their columns' values."""
    named = [(path, dict(parse_partition(path))) for path in paths]
    return subset.PartitionSubsetCondition([subset.Partition(it, path) for path, it in named])


def _name(table: str) -> dict[str, str]:
    bucket, _, prefix = table.partition("://")[2].strip("/").partition("/")
    return {"namespace": f"s3://{bucket}", "name": prefix}


def _version(read: TableRead) -> str:
    """Return the version of a table that was read: its partitions' versions, or a digest.

    Versions identify the state of each partition; a digest identifies the contents of many.
    """
    if read.digest:
        return f"{read.more} partitions {read.digest}"
    versions = ";".join(f"{it.partition}@{it.version}" for it in read.partitions)
    if len(read.partitions) <= _NAMED:
        return versions
    return f"{len(read.partitions)} partitions {sha256(versions.encode()).hexdigest()}"
