"""I/O manager: writes what asset functions return, and reads what they take."""

from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from pydantic import PrivateAttr, model_validator

from zero_rename.committer.errors import InvalidInputError, TableNotFoundError

from .asset_step import begin_reads, step_of
from .distinct_keys import check_whole_partitions
from .failures import final_failures
from .frames import is_spark, nothing_as, read_as
from .key_paths import key_paths, layout_of
from .op_values import default_io_manager, is_asset_input
from .resource import PARTITION_EXPR, ZeroRenameResource


class ZeroRenameIOManager(dg.ConfigurableIOManager, ZeroRenameResource):
    """I/O manager for assets that are tables.

    An output is written by :meth:`.resource.ZeroRenameResource.write`. For an input, the partitions
    are read that its partition mapping names.

    It has the fields of a :class:`.resource.ZeroRenameResource`, and is one: definitions may have
    it under both keys. Or it takes another resource as ``zero_rename``.

    An asset's metadata may have ``table``, ``partition_expr`` and ``mode``, as the arguments of
    ``write``; an input's metadata may have ``columns``. An input is read as it is annotated: a
    pyarrow Table (also without an annotation) or RecordBatchReader, a pandas, polars or Spark data
    frame, a DuckDB relation. ``Optional`` of one of these is read as that one.

    A value that one op of a graph or a job passes to another is not an asset: Dagster's default I/O
    manager keeps it.
    """

    #: A resource to use instead of the other fields.
    if TYPE_CHECKING:
        zero_rename: ZeroRenameResource | None = None
    else:  # It may be configured at launch, which Dagster knows by this type alone.
        zero_rename: dg.ResourceDependency[ZeroRenameResource | None] = None
    _default: dg.IOManager | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        given = sorted(self.model_fields_set - {"zero_rename"})
        if self.zero_rename is None and self.table_root is None:
            raise InvalidInputError(
                "A ZeroRenameIOManager has no table_root.",
                remedy="Give table_root, s3://bucket/prefix, or zero_rename=ZeroRenameResource(…).",
            )
        if self.zero_rename is not None and given:
            raise InvalidInputError(
                f"A ZeroRenameIOManager has zero_rename=…, and {', '.join(given)} besides.",
                remedy="Give them to the ZeroRenameResource, or leave that out.",
            )
        return self

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write what an asset's function returned; keep what an op passes to another op.

        :raises Failure: and ``ZeroRenameError``, as :meth:`.resource.ZeroRenameResource.write`.
        """
        if context.has_asset_key:
            (self.zero_rename or self).write(context, obj)
            return
        self._between_ops(context).handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of an asset that a run depends on, as one state; or what an earlier
        op passed on.

        :raises TableNotFoundError: nothing has written that asset's table yet.
        :raises Failure: the table cannot have these partitions, or cannot be read as the annotated
            class.
        """
        with final_failures(step_of(context)):
            if is_asset_input(context):
                return self._read(context)
        return self._between_ops(context).load_input(context)

    def _between_ops(self, context: dg.OutputContext | dg.InputContext) -> dg.IOManager:
        """Return Dagster's default I/O manager, the same for all values: it may keep them in
        memory."""
        if self._default is None:
            self._default = default_io_manager(context.step_context.instance)
        return self._default

    def _read(self, context: dg.InputContext) -> Any:
        begin_reads(step_of(context), unread=True)
        asset, kind = context.asset_key, context.dagster_type.typing_type
        metadata = context.step_context.job_def.asset_layer.get(asset).metadata
        tables = self.zero_rename or self
        if is_spark(kind):
            tables.check_spark_session()
        table = tables.read_table(asset, metadata)
        name = asset.to_user_string()
        try:
            layout = layout_of(table)
        except TableNotFoundError as error:
            made = context.step_context.assets_def
            reads_itself = made is not None and asset in made.keys
            nothing = nothing_as(kind)
            if reads_itself and nothing is not None and _names_none(context):
                return nothing  # Of its first partition: there is none before it.
            raise TableNotFoundError(
                f"There is no table of the asset {name!r}; nothing was read.",
                table=table.root.url,
                remedy="Materialise its first partition first: that one reads nothing."
                if reads_itself
                else "Materialise that asset first, or name its table in its metadata.",
            ) from error
        paths = None
        if context.has_asset_partitions:
            definition, expr = context.asset_partitions_def, metadata.get(PARTITION_EXPR)
            keys, instance = context.asset_partition_keys, context.step_context.instance
            found = key_paths(name, keys, definition, expr, layout, may_share=True)
            check_whole_partitions(name, found, definition, expr, layout, instance)
            paths = list(dict.fromkeys(found.values()))
        columns = (context.definition_metadata or {}).get("columns")
        return read_as(kind, table, paths, columns)


def _names_none(context: dg.InputContext) -> bool:
    """Return whether a partition mapping names no partition of an input."""
    return context.has_asset_partitions and not list(context.asset_partition_keys)
