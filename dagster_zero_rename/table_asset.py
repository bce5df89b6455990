"""Decorator for an asset that is a table: a backfill is one run and one commit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from zero_rename.committer.format.job_spec import Content, SchemaMode, TableLayout

from .distinct_keys import check_formats, check_has_partitions
from .key_paths import PartitionExpr
from .resource import MODE, PARTITION_EXPR, written_metadata


def zero_rename_asset(
    *,
    table: str | None = None,
    partition_expr: PartitionExpr | None = None,
    mode: str | None = None,
    schema_mode: SchemaMode | str | None = None,
    catalog: str | None = None,
    merge_on: Sequence[str] | None = None,
    delete_when: str | None = None,
    latest_by: str | None = None,
    across_partitions: bool | None = None,
    content: Content | str | None = None,
    layout: TableLayout | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **given: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Define an asset like ``dagster.asset``, for a table of this package. A backfill of a range of
    partitions is one run, and so one commit, unless ``backfill_policy`` says otherwise.

    ::

        @zero_rename_asset(partitions_def=days, partition_expr="day")
        def flights(context: dg.AssetExecutionContext, zero_rename: ZeroRenameResource):
            return zero_rename.write(context, …)

    :param table: the table's name, as :meth:`.resource.ZeroRenameResource.write` takes it.
    :param partition_expr: how a key becomes a partition, as for ``write``.
    :param mode: ``overwrite``, ``append`` or ``merge``.
    :param schema_mode: ``"merge"``: columns that only the rows have become the table's.
    :param catalog: where the table is registered, as for ``write``.
    :param merge_on: with mode ``merge``, the key's columns; with ``delete_when``, ``latest_by`` and
        ``across_partitions``, as for ``write``. All these become the asset's metadata.
    :param delete_when: a condition on the given rows, whose matches are deleted: ``op = 'D'``.
    :param latest_by: the column whose greatest value counts.
    :param across_partitions: whether rows match those of all partitions, and move.
    :param content: ``"rows"``: the same rows have the same data version in any order and files.
    :param layout: ``"delta"``: a Delta table; ``None``: the resource's.
    :param metadata: more metadata of the asset.
    :param given: further arguments of ``dagster.asset``.
    :raises InvalidInputError: the mode is not one for assets, the catalog is invalid,
        ``partition_expr`` is given without ``partitions_def``; or, in mode ``overwrite``, the
        format makes two partition keys one partition.
    """
    said = written_metadata(
        mode,
        merge_on,
        catalog,
        table=table,
        partition_expr=partition_expr,
        schema_mode=schema_mode,
        delete_when=delete_when,
        latest_by=latest_by,
        across_partitions=across_partitions,
        content=content,
        layout=layout,
    )
    if given.get("partitions_def") is not None:
        given.setdefault("backfill_policy", dg.BackfillPolicy.single_run())
    else:
        check_has_partitions(None, partition_expr)

    def decorated(function: Callable[..., Any]) -> dg.AssetsDefinition:
        made = dg.asset(metadata={**(metadata or {}), **said}, **given)(function)
        spec = made.specs_by_key[made.key]
        check_formats(spec, spec.metadata.get(PARTITION_EXPR), spec.metadata.get(MODE))
        return made

    return decorated
