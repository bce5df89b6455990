"""Component for a table that a Spark application loads, defined in YAML only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from zero_rename.committer.errors import InvalidInputError

from ..asset_step import step_of
from ..asset_write import LAYOUT
from ..distinct_keys import check_formats
from ..failures import final_failures
from ..resource import (
    ACROSS_PARTITIONS,
    DELETE_WHEN,
    LATEST_BY,
    MODE,
    PARTITION_EXPR,
    TABLE,
    written_metadata,
)
from .pipes import SparkPipesClient

_KEYS = ("{first_key}", "{last_key}")


class SparkTableComponent(dg.Component, dg.Model, dg.Resolvable):
    """An asset stored as a table on S3, loaded by a Spark application with ``save()``.

    The project needs a resource :class:`.pipes.SparkPipesClient`, under the key that ``resource``
    names. A backfill over a range of partitions is one run, one application and one commit.
    """

    asset: dg.ResolvedAssetSpec = Field(
        description="The asset: key, partitions_def, description, group_name, deps and so on."
    )
    application: str = Field(
        description="The Spark application: a path from this component's folder, or a URL."
    )
    application_args: Sequence[str] = Field(
        default=(),
        description="The application's arguments; {first_key} and {last_key} are the ends of the "
        "run's range of partition keys.",
    )
    table: str | None = Field(
        default=None,
        description="The table, s3://bucket/prefix or a name below the resource's table_root. If "
        "left out: the asset's key.",
    )
    partition_expr: str | Mapping[str, str] | None = Field(
        default=None,
        description="The column that holds the partition keys, or a path of columns with strftime "
        "codes, year=%Y/month=%-m/day=%-d; one for each dimension if there are several.",
    )
    mode: str | None = Field(default=None, description="overwrite (the default), append or merge.")
    layout: str | None = Field(
        default=None, description="directory or delta, a Delta table. If left out: the resource's."
    )
    merge_on: Sequence[str] = Field(
        default=(), description="With mode merge: the columns of the key."
    )
    delete_when: str | None = Field(
        default=None,
        description="With mode merge: a condition such as op = 'D'; rows that meet it delete their "
        "match.",
    )
    latest_by: str | None = Field(
        default=None,
        description="With mode merge: of rows with one key, the one with the greatest value in "
        "this column counts.",
    )
    across_partitions: bool | None = Field(
        default=None,
        description="With mode merge: rows match those of all partitions, and may move to another.",
    )
    catalog: str | None = Field(
        default=None,
        description="Where the table is registered after a load, glue://database or "
        "glue://database/table. If left out: the resource's.",
    )
    conf: Mapping[str, Any] = Field(default={}, description="Spark's settings; no credentials.")
    schedule: str | None = Field(
        default=None,
        description="A cron expression. With partitions by time, a run loads the last partition "
        "that has ended, once.",
    )
    schedule_timezone: str = Field(default="UTC", description="The time zone of the schedule.")
    resource: str = Field(default="spark", description="The key of the SparkPipesClient.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the asset and its schedule.

        :raises InvalidInputError: a value is invalid.
        """
        asset = self._asset(self._application(context.path))
        schedule = self._schedule()
        return dg.Definitions(assets=[asset], schedules=[] if schedule is None else [schedule])

    def _application(self, folder: Path) -> str:
        path = self.application
        return path if "://" in path or Path(path).is_absolute() else str(folder / path)

    def _asset(self, application: str) -> dg.AssetsDefinition:
        names = (TABLE, PARTITION_EXPR, DELETE_WHEN, LATEST_BY, ACROSS_PARTITIONS, LAYOUT)
        more = {name: getattr(self, name) for name in names}
        given = written_metadata(self.mode, self.merge_on, self.catalog, **more)
        spec = self.asset.merge_attributes(metadata=given, kinds={"spark", "s3"})
        # The asset's own metadata may have these words, too.
        check_formats(spec, spec.metadata.get(PARTITION_EXPR), spec.metadata.get(MODE))

        @dg.multi_asset(
            specs=[spec],
            name=spec.key.to_python_identifier(),
            backfill_policy=dg.BackfillPolicy.single_run() if spec.partitions_def else None,
            required_resource_keys={self.resource},
        )
        def load(context: dg.AssetExecutionContext):
            with final_failures(step_of(context)):
                client = self._client(context)
                arguments = _filled(self.application_args, context)
            return client.run(
                context, application=application, application_args=arguments, conf=self.conf
            )

        return load

    def _client(self, context: dg.AssetExecutionContext) -> SparkPipesClient:
        client = getattr(context.resources, self.resource)
        if not isinstance(client, SparkPipesClient):
            raise InvalidInputError(
                f"The resource {self.resource!r} is a {type(client).__name__}; nothing was "
                "submitted.",
                remedy="Give the project a SparkPipesClient under that key.",
            )
        return client

    def _schedule(self) -> dg.ScheduleDefinition | None:
        if self.schedule is None:
            return None
        partitions, name = self.asset.partitions_def, self.asset.key.to_python_identifier()
        if partitions is not None and not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
            raise InvalidInputError(
                f"The asset {self.asset.key.to_user_string()!r} has a schedule, and partitions "
                "that are not by time: nothing says which one a run is to load.",
                remedy="Leave schedule out, and start its runs by a sensor.",
            )

        def request(context: dg.ScheduleEvaluationContext) -> Any:
            if partitions is None:
                return dg.RunRequest()
            with dg.partition_loading_context(context.scheduled_execution_time):
                key = partitions.get_last_partition_key()
            if key is None:
                return dg.SkipReason("No partition has ended yet.")
            return dg.RunRequest(run_key=key, partition_key=key)

        return dg.ScheduleDefinition(
            name=f"{name}_schedule",
            cron_schedule=self.schedule,
            execution_timezone=self.schedule_timezone,
            target=dg.AssetSelection.assets(self.asset.key),
            execution_fn=request,
        )


def _filled(arguments: Sequence[str], context: dg.AssetExecutionContext) -> list[str]:
    """Return arguments with the ends of the run's range of partition keys filled in.

    :raises InvalidInputError: an argument needs them, and the run has no partitions.
    """
    if not any(key in argument for argument in arguments for key in _KEYS):
        return list(arguments)
    # A backfill's run has a range, and no partition key of its own.
    if not step_of(context).has_partitions:
        raise InvalidInputError(
            "application_args has {first_key} or {last_key}, and the asset has no partitions; "
            "nothing was submitted.",
            remedy="Leave them out, or give the asset partitions_def.",
        )
    ends = context.partition_key_range
    filled = (argument.replace(_KEYS[0], ends.start) for argument in arguments)
    return [argument.replace(_KEYS[1], ends.end) for argument in filled]
