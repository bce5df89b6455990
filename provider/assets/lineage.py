"""OpenLineage's view of a load: imported where it is asked for, by OpenLineage's provider."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from airflow.providers.common.compat.openlineage.facet import InputDataset, OutputDataset  # pyright: ignore
from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore
from airflow.providers.openlineage.extractors.manager import ExtractorManager  # pyright: ignore
from openlineage.client.generated import base_subset_dataset as subset  # pyright: ignore
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet  # pyright: ignore
from openlineage.client.generated.output_statistics_output_dataset import (  # pyright: ignore
    OutputStatisticsOutputDatasetFacet,
)
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields  # pyright: ignore

from ...committer.errors import ZeroRenameError
from ...committer.format.schema.hive_paths import parse_partition

if TYPE_CHECKING:
    from ...committer.format.records.inputs import TableRead
    from ...orchestration.runs.loaded_table import LoadedTable

_log = logging.getLogger(__name__)
#: Partitions whose versions are in a version by name; of more it is a digest.
_NAMED = 20


def named_lineage(table: str, inlets: Iterable[Any] = ()) -> OperatorLineage:
    """Which table a load is to write, before it has, or where it has failed.

    :param table: its URL.
    :param inlets: the task's.
    """
    return OperatorLineage(inputs=_inlets(inlets), outputs=[OutputDataset(**_name(table))])


def job_lineage(
    table: LoadedTable, report: Mapping[str, Any], inlets: Iterable[Any]
) -> OperatorLineage:
    """What the job of a report has written and read, as far as its table can be asked now.

    :param report: :func:`.reports.commit_report`.
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
    """What a load has written and read: datasets named as the Amazon provider names those on S3.

    The output has the job's rows, bytes and files, its id as the version, its partitions and the
    table's columns. An input has the partitions that were read, and their versions as the version.

    :param report: :func:`.reports.commit_report`.
    :param schema: the table's; ``None`` where it is not known.
    :param reads: what the application has read before it committed.
    :param inlets: the task's, which are inputs too, beside what was read.
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
    """A column with what is nested in it, as fields: a list's element, a map's keys and values."""
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
    """The inlets that are datasets, but for what was read: of that more is known."""
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
    """Which partitions of a dataset, by what their paths say."""
    named = [(path, dict(parse_partition(path))) for path in paths]
    return subset.PartitionSubsetCondition([subset.Partition(it, path) for path, it in named])


def _name(table: str) -> dict[str, str]:
    bucket, _, prefix = table.partition("://")[2].strip("/").partition("/")
    return {"namespace": f"s3://{bucket}", "name": prefix}


def _version(read: TableRead) -> str:
    """The state that was read: a version tells one state of a partition from any other, and a
    digest the contents of many."""
    if read.digest:
        return f"{read.more} partitions {read.digest}"
    versions = ";".join(f"{it.partition}@{it.version}" for it in read.partitions)
    if len(read.partitions) <= _NAMED:
        return versions
    return f"{len(read.partitions)} partitions {sha256(versions.encode()).hexdigest()}"
