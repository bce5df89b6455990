"""I/O manager: what asset functions return is written, and what they take is read."""

from typing import Any

import dagster as dg

from zero_rename.committer.errors import TableNotFoundError

from .asset_step import step_of
from .failures import final_failures
from .frames import read_as
from .key_paths import Layout, key_paths
from .resource import PARTITION_EXPR, ZeroRenameResource


class ZeroRenameIOManager(dg.ConfigurableIOManager):
    """Tables by the names of assets: :meth:`.resource.ZeroRenameResource.write` for what a
    function returns, and for an input the partitions that its partition mapping names.

    An asset's metadata may have ``table``, ``partition_expr`` and ``mode``, as the arguments of
    ``write``; an input's, ``columns``. Inputs are read as they are annotated: a pyarrow Table (also
    where there is no annotation) or RecordBatchReader, a pandas, polars or Spark data frame.
    """

    zero_rename: dg.ResourceDependency[ZeroRenameResource]

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write what an asset's function returned.

        :raises Failure: and ``ZeroRenameError``, as :meth:`.resource.ZeroRenameResource.write`.
        """
        self.zero_rename.write(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the partitions of an asset that a run depends on, as one state.

        :raises TableNotFoundError: nothing has written that asset's table yet.
        :raises Failure: its partitions are none of the table's, or nobody reads a table as that.
        """
        with final_failures(step_of(context)):
            return self._read(context)

    def _read(self, context: dg.InputContext) -> Any:
        asset = context.asset_key
        metadata = context.step_context.job_def.asset_layer.get(asset).metadata
        table = self.zero_rename.asset_table(asset, metadata)
        name = asset.to_user_string()
        try:
            layout = Layout(table.schema, table.partition_by)
        except TableNotFoundError as error:
            raise TableNotFoundError(
                f"There is no table of the asset {name!r}; nothing was read.",
                table=table.root.url,
                remedy="Materialise that asset first, or name its table in its metadata.",
            ) from error
        paths = None
        if context.has_asset_partitions:
            keys = context.asset_partition_keys
            found = key_paths(
                name, keys, context.asset_partitions_def, metadata.get(PARTITION_EXPR), layout
            )
            paths = list(found.values())
        columns = (context.definition_metadata or {}).get("columns")
        return read_as(context.dagster_type.typing_type, table, paths, columns)
