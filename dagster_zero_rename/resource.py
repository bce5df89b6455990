"""Resource that gives assets, checks, sensors and jobs access to tables on S3."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from dagster._config.field_utils import IntEnvVar
from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from zero_rename.catalog.glue import glue_client
from zero_rename.committer.errors import InvalidInputError, names_user, without_secrets
from zero_rename.committer.format.job_spec import (
    Mode,
    OnConflict,
    OnSuperseded,
    SchemaMode,
    SuccessMarkers,
    TableLayout,
    choice,
)
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.read_base import ReadBase
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.store.client_settings import S3_CLIENT, ClientSettings
from zero_rename.committer.store.clients import Keys, client_at
from zero_rename.committer.store.encryption import Encryption
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.committer.table import Table
from zero_rename.committer.upkeep.purging.upload_selection import UploadsPath
from zero_rename.maintenance.destinations import Destination
from zero_rename.orchestration.merge_arguments import OF_MERGES, listed_columns
from zero_rename.orchestration.runs.arguments import read_seconds
from zero_rename.orchestration.submit.submission import secret_values
from zero_rename.orchestration.table_names import all_below, check_catalog, table_url, urls_below
from zero_rename.s3a.hadoop.settings import check_committer
from zero_rename.s3a.policies import check_kept
from zero_rename.tables.table_at import delta_at, opened_as_it_is

from .asset_step import AssetStep, AssetTable, FunctionContext, step_of
from .asset_write import CONTENT, LAYOUT, SCHEMA_MODE, WritePolicy, write_asset
from .failures import final_failures, restore_retries
from .registration import Registration
from .rows import is_spark_frame
from .spark.hadoop_load import HadoopLoad
from .spark.spark_load import NativeLoad, SparkLoad

if TYPE_CHECKING:
    from zero_rename.committer import FileOptions, Snapshot
    from zero_rename.committer.format.parquet.row_filter import Filter
    from zero_rename.committer.scan.table_scan import TableScan

    from .key_paths import PartitionExpr

    #: The types of a duration; Dagster's configuration has it in seconds.
    Duration = timedelta | float
else:
    Duration = float

#: Names in an asset's metadata that say how it is written.
TABLE, PARTITION_EXPR, MODE = "table", "partition_expr", "mode"
CATALOG = "catalog"
MERGE_ON, DELETE_WHEN, LATEST_BY, ACROSS_PARTITIONS = OF_MERGES
#: Environment variables that give boto3 in another process the resource's settings. The endpoint is
#: for S3 only: roles are assumed at another one.
_VARIABLES = {
    "endpoint_url": "AWS_ENDPOINT_URL_S3",
    "region_name": "AWS_REGION",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
_UNDONE = "Nothing was written"
#: How definitions read a field from the environment that is not a string.
_READ_BY = {
    "wait_for_other_runs": "float(os.environ[{!r}])",
    "max_recompute": "float(os.environ[{!r}])",
    "path_style": "os.environ[{!r}] == 'true'",
}


def _check_endpoint(url: str) -> None:
    if names_user(url):
        raise InvalidInputError(
            f"endpoint_url={without_secrets(url)!r} holds a user or a password, which no request "
            "uses and errors would show. Nothing was read or written.",
            remedy="Give access_key_id and secret_access_key, each by EnvVar.",
        )


#: Checks of fields' values.
_CHECKS: dict[str, Callable[[str], object]] = {
    "table_root": UploadsPath.parse,
    "endpoint_url": _check_endpoint,
    "committer": check_committer,
    "on_conflict": partial(choice, "on_conflict", OnConflict),
    "on_superseded": partial(choice, "on_superseded", OnSuperseded),
    "layout": partial(choice, "layout", TableLayout),
    "success_markers": partial(choice, "success_markers", SuccessMarkers),
    "data_root": FastRoot.parse,
    "encryption": Encryption.parse,
    "catalog": check_catalog,
}


def written_metadata(
    mode: str | None, merge_on: Sequence[str] | None, catalog: str | None, **more: Any
) -> dict[str, Any]:
    """Return the part of an asset's metadata that is about its writes, without values that are
    ``None``.

    :raises InvalidInputError: the mode is not one for assets, arguments of a merge are given
        without that mode, or the catalog is invalid.
    """
    on = listed_columns(merge_on or ())
    names = (DELETE_WHEN, LATEST_BY, ACROSS_PARTITIONS, CONTENT)
    words: dict[str, Any] = {name: more.get(name) for name in names}
    words |= {name: more[name] for name in (LAYOUT,) if more.get(name) is not None}
    WritePolicy(mode=mode or WritePolicy.mode, merge_on=on, **words)
    if catalog:
        check_catalog(catalog)
    said = {**more, MODE: mode, MERGE_ON: list(on) or None, CATALOG: catalog}
    return {name: value for name, value in said.items() if value is not None}


class ZeroRenameResource(dg.ConfigurableResource):
    """Access to the tables below one root, and to the store that holds them.

    Fields that are left out are found by boto3's own chain: environment, profile, container,
    instance role. Give keys by ``EnvVar``: Dagster's UI shows other values. Invalid values are
    refused while definitions load.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # The input contains the keys.

    table_root: str | None = Field(
        default=None,
        description="s3://bucket/prefix: the root of tables that are named without s3://.",
    )
    endpoint_url: str | None = Field(
        default=None, description="The store's endpoint, if it is not AWS."
    )
    region_name: str | None = Field(default=None, description="The store's region.")
    path_style: bool = Field(
        default=False, description="Put the bucket into the path, not into the host's name."
    )
    access_key_id: str | None = Field(default=None, repr=False, description="By EnvVar.")
    secret_access_key: str | None = Field(default=None, repr=False, description="By EnvVar.")
    session_token: str | None = Field(default=None, repr=False, description="By EnvVar.")
    committer: str = Field(
        default=NATIVE,
        description="Committer of Spark applications: zero_rename, magic, directory or "
        "partitioned.",
    )
    on_conflict: str = Field(
        default="fail",
        description="What a write does when another job changed a partition meanwhile: fail, "
        "last_wins, or newest_run, which also keeps rows that a newer run has loaded earlier.",
    )
    on_superseded: str | None = Field(
        default=None,
        description="With on_conflict=newest_run, what a write does with partitions that a newer "
        "run has loaded: fail (the default), or skip, which leaves them out and writes the others.",
    )
    wait_for_other_runs: Duration | None = Field(
        default=None,
        ge=0,
        description="How long a write waits while another run is at work on its partitions, before "
        "on_conflict decides: seconds, or a timedelta. If left out, it does not wait.",
    )
    layout: str | None = Field(
        default=None,
        description="Layout of the tables that are written and read: directory (the default), or "
        "delta, a Delta table; an asset's own layout wins.",
    )
    success_markers: str | None = Field(
        default=None,
        description="Where writes by this package's committer put _SUCCESS: partition_and_table "
        "(the default for directories), table, or none (the default for Delta tables, which "
        "also take table).",
    )
    data_root: str | None = Field(
        default=None,
        description="s3://bucket/prefix?endpoint=https://host:port: where the files of new Delta "
        "tables lie first. Writes into tables of directories are refused. Before a checkpoint, "
        "Spark is the only other engine that reads these files.",
    )
    encryption: str | None = Field(
        default=None,
        description="Encryption by the store of all that is written for tables whose records name "
        "none: SSE-S3, or SSE-KMS, a blank and the key's id, ARN or alias.",
    )
    catalog: str | None = Field(
        default=None,
        description="glue://database: the catalog in which tables are registered after a load.",
    )
    max_recompute: float | None = Field(
        default=None,
        gt=0,
        description="Seconds: maintenance reports partitions that are not durable and would take "
        "longer to make again.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any) -> Any:
        """Refuse fields with unknown names: Dagster accepts any name, and a misspelled policy would
        silently be the default one."""
        unknown = sorted(given.keys() - cls.model_fields.keys()) if isinstance(given, dict) else ()
        if unknown:
            raise InvalidInputError(
                f"A {cls.__name__} has no field {unknown[0]!r}.",
                remedy=f"It may have: {', '.join(sorted(cls.model_fields))}.",
            )
        return given

    @field_validator(*_CHECKS, mode="before")
    @classmethod
    def _check_word(cls, value: Any, field: ValidationInfo) -> Any:
        """Check a field's value while definitions load. A value from an ``EnvVar`` is checked when
        a run resolves it."""
        if isinstance(value, str) and not isinstance(value, dg.EnvVar):
            _CHECKS[str(field.field_name)](value)
        return value

    @field_validator("wait_for_other_runs", mode="before")
    @classmethod
    def _read_duration(cls, value: Any) -> Any:
        return None if value is None else read_seconds("wait_for_other_runs", value)

    @field_validator("wait_for_other_runs", "max_recompute", "path_style", mode="before")
    @classmethod
    def _refuse_variable(cls, value: Any, field: ValidationInfo) -> Any:
        """Refuse an ``EnvVar`` in a field that cannot hold one. Of the validators of a field that
        run before its own, the last one is the first to run."""
        if isinstance(value, dg.EnvVar | IntEnvVar):
            raise InvalidInputError(
                f"{field.field_name} is an EnvVar, and only fields that are strings take one. "
                "Nothing was read or written.",
                remedy=f"Read it in the definitions: {field.field_name}="
                f"{_READ_BY[str(field.field_name)].format(value.env_var_name)}.",
            )
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._keys()
        # The value of an ``EnvVar`` is known when a run resolves it.
        known = [it for it in (self.layout, self.committer) if isinstance(it, str)]
        if len(known) == 2 and TableLayout.DELTA in known:
            check_kept(self.committer, {LAYOUT: TableLayout.DELTA}, _UNDONE)
        return self

    def table(self, name: str) -> Table:
        """Open a table; nothing is read or written yet.

        :param name: ``s3://bucket/prefix``, or a name below ``table_root``.
        :raises InvalidInputError: the name is invalid, or the keys are not a pair.
        :raises StoreRefusedError: profile, region or endpoint is invalid.
        """
        root = TableRoot.parse(table_url(name, self.table_root, "the ZeroRenameResource"))
        return self._opened(root.url, self.client())

    def tables(self) -> list[Table]:
        """Open all tables below ``table_root``.

        :raises InvalidInputError: the resource has no ``table_root``.
        """
        client = self.client()
        urls = urls_below(self.table_root, client, "the ZeroRenameResource")
        return [self._opened(url, client) for url in urls]

    def _opened(self, url: str, client: Any) -> Table:
        table = Table(url, client=client)
        # In the whole bucket: the ledger of loads by Hadoop's committers lies beside the table.
        table.driver.encrypt_by_default(self._encryption)
        return table

    @property
    def _encryption(self) -> Encryption | None:
        return None if not self.encryption else Encryption.parse(self.encryption)

    def destinations(self) -> list[Destination]:
        """List all that is to be maintained below ``table_root``: tables, destinations of Hadoop's
        committers, and last the root itself, for uploads in none of these.

        :raises InvalidInputError: the resource has no ``table_root``.
        """
        return all_below(self.table_root, self.client(), "the ZeroRenameResource")

    def client(self) -> Any:
        """Make a boto3 S3 client. ``None``: the resource leaves everything to the standard
        chain."""
        if not (self._given() or self.path_style):
            return None
        return client_at(
            self.endpoint_url, self.region_name, path_style=self.path_style, keys=self._keys()
        )

    def _keys(self) -> Keys | None:
        """Return the keys, if any.

        :raises InvalidInputError: one of a pair is missing, or there is a token without the keys.
        """
        access, secret = self.access_key_id, self.secret_access_key
        if bool(access) is not bool(secret):
            raise InvalidInputError(
                "The ZeroRenameResource has one of access_key_id and secret_access_key; nothing "
                "was read or written.",
                remedy="Give both, each by EnvVar, or neither.",
            )
        if self.session_token and not access:
            raise InvalidInputError(
                "The ZeroRenameResource has a session_token, and neither access_key_id nor "
                "secret_access_key, which it belongs to; nothing was read or written.",
                remedy="Give all three, each by EnvVar; or none of them, and the keys are found by "
                "boto3's own chain.",
            )
        return Keys(access, secret, self.session_token or None) if access and secret else None

    def aws_env(self) -> dict[str, str]:
        """Return environment variables that give another process access to the same store.

        They have all that this resource sets. If it does not name the store, they have the one that
        this process finds.
        """
        client, keys = self.client() or client_at(None, None), self._keys()
        told = self._told() if keys is None else self._told() | keys.environment
        return told | {S3_CLIENT: ClientSettings.of(client).encode()}

    def _told(self) -> dict[str, str]:
        """Return AWS's environment variables for the values that this resource sets."""
        found = {_VARIABLES[name]: value for name, value in self._given().items()}
        if self.access_key_id:
            # Set it even if it is empty: a token in the environment would belong to other keys.
            found.setdefault(_VARIABLES["session_token"], "")
        if self.region_name:
            found["AWS_DEFAULT_REGION"] = self.region_name
        return found

    def _given(self) -> dict[str, str]:
        found = {name: getattr(self, name) for name in _VARIABLES}
        return {name: value for name, value in found.items() if value}

    def asset_table(self, asset: dg.AssetKey, metadata: Any) -> Table:
        """Return the table of an asset: its metadata's ``table``, else its key's path."""
        return self.table(metadata.get(TABLE) or "/".join(asset.path))

    def read_table(self, asset: dg.AssetKey, metadata: Any) -> AssetTable:
        """Open the table of an asset in its layout. Three requests find the layout out."""
        return opened_as_it_is(self.asset_table(asset, metadata))

    def write(
        self,
        context: FunctionContext | dg.OutputContext,
        data: Any,
        *,
        table: str | None = None,
        asset_key: dg.AssetKey | str | None = None,
        mode: str | None = None,
        partition_expr: PartitionExpr | None = None,
        base: Snapshot | ReadBase | None = None,
        files: FileOptions | None = None,
        schema_mode: SchemaMode | str | None = None,
        catalog: str | None = None,
        merge_on: str | Sequence[str] | None = None,
        delete_when: Filter | str | None = None,
        latest_by: str | None = None,
        across_partitions: bool | None = None,
        inputs: Sequence[Snapshot | TableScan | str] | None = None,
    ) -> dg.MaterializeResult:
        """Write an asset's rows into its table by one job, for any number of partitions of the run.

        With mode ``overwrite``, the partitions that the run asks for hold these rows and no others
        afterwards: one without rows is emptied. Rows of other partitions are refused. What this
        chain of retries committed before is reported and not written again.

        :param data: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a
            DuckDB relation, an iterator of these, or a Spark data frame.
        :param table: its name; ``None``: ``table`` in the asset's metadata, else the asset's key.
        :param asset_key: the asset, if the function makes several. A run of some of them writes
            only these.
        :param mode: ``overwrite``, ``append`` or ``merge``; ``None``: ``mode`` in the asset's
            metadata, else ``overwrite``.
        :param partition_expr: the column that holds the partition keys, ``"day"``, or a path of
            columns for the start of each partition, ``"year=%Y/month=%-m/day=%-d"``; for several
            dimensions, a dictionary of these. ``None``: that of the asset's metadata. With mode
            ``overwrite``, no two keys of the asset's definition may become one partition.
        :param base: the state of the table that the rows were computed from: under
            ``on_conflict="fail"`` nothing that has changed since is overwritten.
        :param files: compression, sizes and tags of the files; ``None``: the usual ones.
        :param schema_mode: ``"merge"`` gives the table columns that only the rows have, and wider
            types; ``"keep"`` refuses them. ``None``: that of the asset's metadata, else ``"keep"``.
        :param catalog: where the table is registered once the job is committed:
            ``glue://database/table``, or without the table's name. ``None``: that of the asset's
            metadata, else the resource's; empty: none.
        :param merge_on: with mode ``merge``, the key's columns, as for
            :meth:`zero_rename.Table.merge`. The rows are held in memory, except those of a Spark
            data frame. ``None``: those of the asset's metadata.
        :param delete_when: with mode ``merge``, a condition on the given rows: the match of such a
            row is deleted, and the row is not inserted. It is one comparison, ``"op = 'D'"``; for a
            Spark data frame any condition in its SQL; or a condition of pyarrow's. ``None``: that
            of the asset's metadata.
        :param latest_by: with mode ``merge``, the column whose greatest value counts. ``None``:
            that of the asset's metadata.
        :param across_partitions: with mode ``merge``, ``True``: a row matches those of all
            partitions, and moves; else it matches those of its own. A run of some partitions may
            write only those, so a row that would come from another one is refused. ``None``: that
            of the asset's metadata.
        :param inputs: what the rows are computed from, as for :meth:`zero_rename.Table.job`.
            ``None``: what this step has read of tables, by the I/O manager or by their readers.
        :return: with the rows' data version; metadata of each partition is in its event.
        :raises Failure: not to be retried: the call is invalid, or there is a conflict, which the
            next attempt would hide. Its cause is the error.
        :raises ZeroRenameError: any other, as :meth:`zero_rename.Table.job`.
        """
        with final_failures(step_of(context), bool(self.wait_for_other_runs)):
            given = (merge_on, delete_when, latest_by, across_partitions)
            words = dict(zip(OF_MERGES, given, strict=True))
            said = {name: word for name, word in words.items() if word is not None}
            said |= {"base": base, "files": files, "inputs": inputs}
            step, target, policy = self._asked(
                context, table, asset_key, mode, partition_expr, catalog, **said
            )
            if schema_mode is not None:
                policy = replace(policy, schema_mode=choice(SCHEMA_MODE, SchemaMode, schema_mode))
            self._check_committer(data)
            write_asset(step, target, data, policy)
        version = step.step.get_data_version(step.asset)
        return dg.MaterializeResult(asset_key=step.asset, data_version=version)

    def spark_load(
        self,
        context: FunctionContext,
        *,
        table: str | None = None,
        asset_key: dg.AssetKey | str | None = None,
        mode: str | None = None,
        partition_expr: PartitionExpr | None = None,
        catalog: str | None = None,
    ) -> SparkLoad:
        """Prepare the load of an asset by a Spark application, which any client may submit.

        Waits for an application of this chain of retries that has outlived its worker.

        :param table: and ``asset_key``, ``mode``, ``partition_expr``, ``catalog``: as for
            :meth:`write`.
        :raises Failure: the call is invalid; nothing was submitted.
        """
        with final_failures(step_of(context)):
            step, target, policy = self._asked(
                context, table, asset_key, mode, partition_expr, catalog
            )
            committer = check_committer(self.committer)
            if committer == NATIVE:
                return NativeLoad.of(step, target, policy)
            check_kept(committer, {LAYOUT: TableLayout(policy.layout)}, _UNDONE)
            assert isinstance(target, Table)  # Hadoop's committers write directories.
            return HadoopLoad.of(step, target, policy, committer)

    def spark_env(self, context: FunctionContext, **asked: Any) -> dict[str, str]:
        """Return environment variables for a Spark application that writes an asset by ``save()``.
        They describe the load and give access to the store. The keys among them are secret.

        :param asked: as for :meth:`spark_load`.
        :raises Failure: the call is invalid.
        """
        with final_failures(step_of(context)):
            self._check_native("spark_env() gives no settings, by which alone these are selected")
        return self.spark_load(context, **asked).variables | self.aws_env()

    def _asked(
        self,
        context: FunctionContext | dg.OutputContext,
        table: str | None,
        asset_key: dg.AssetKey | str | None,
        mode: str | None,
        partition_expr: PartitionExpr | None,
        catalog: str | None,
        **more: Any,
    ) -> tuple[AssetStep, AssetTable, WritePolicy]:
        """Return step, table and policy of a call: its arguments, completed from the asset's
        metadata and this resource."""
        key = None if asset_key is None else dg.AssetKey.from_coercible(asset_key)
        step = AssetStep.of(context, key)
        restore_retries(step.step)
        if table is None:
            step.refuse_mapped()
        if step.is_one_of_many:
            step.step.log.warning(
                f"The asset {step.asset.to_user_string()!r} has no backfill_policy: this backfill "
                "makes a run and a commit of each partition. By @zero_rename_asset(…), or with "
                "backfill_policy=BackfillPolicy.single_run(), it is one of each."
            )
        meta = step.metadata
        chosen = str(mode or meta.get(MODE) or "overwrite")
        if Mode.parse(chosen) is Mode.MERGE:
            more = {**{name: meta.get(name) for name in OF_MERGES}, **more}
        more[MERGE_ON] = listed_columns(more.get(MERGE_ON) or ())
        policy = WritePolicy(
            mode=chosen,
            partition_expr=partition_expr or meta.get(PARTITION_EXPR),
            on_conflict=self.on_conflict,
            on_superseded=self.on_superseded,
            wait_for_other_runs=self._seconds_of_waiting,
            data_root=self.data_root,
            success_markers=self.success_markers,
            encryption=self._encryption,
            schema_mode=choice(SCHEMA_MODE, SchemaMode, meta.get(SCHEMA_MODE) or SchemaMode.KEEP),
            registration=self.registration(meta.get(CATALOG) if catalog is None else catalog),
            content=meta.get(CONTENT),
            layout=meta.get(LAYOUT) or self.layout or TableLayout.DIRECTORY,
            secrets=() if (keys := self._keys()) is None else secret_values(keys.environment),
            **more,
        )
        named = self.asset_table(step.asset, meta if table is None else {TABLE: table})
        return step, delta_at(named) if policy.is_delta else named, policy

    @property
    def _seconds_of_waiting(self) -> float | None:
        waits = self.wait_for_other_runs
        return waits.total_seconds() if isinstance(waits, timedelta) else waits

    def registration(self, catalog: str | None = None) -> Registration | None:
        """Return the catalog in which tables are registered; ``None``: they are not registered.

        :param catalog: as for :meth:`write`.
        :raises InvalidInputError: the catalog is invalid.
        """
        chosen = self.catalog if catalog is None else catalog
        if not chosen:
            return None
        return Registration(chosen, partial(glue_client, self.region_name, self._keys()))

    def _check_committer(self, data: Any) -> None:
        check_committer(self.committer)
        self._check_native("this asset's function hands its rows over")
        if is_spark_frame(data):
            self.check_spark_session()

    def _check_native(self, why: str) -> None:
        """Refuse a call that one of Hadoop's committers cannot serve.

        :raises InvalidInputError: the committer is one of Hadoop's.
        """
        if self.committer != NATIVE:
            raise InvalidInputError(
                f"The ZeroRenameResource has committer={self.committer!r}, which Spark "
                f"applications write by, and {why}; nothing was written.",
                remedy="Submit a Spark application by SparkPipesClient, or by the request that "
                "spark_load(context).complete_request(…) completes; or leave committer out.",
            )

    def s3a_store(self) -> dict[str, Any]:
        """Return the store's address as members of
        :class:`~zero_rename.s3a.hadoop.settings.S3ASettings`. Empty if nothing names another store
        than AWS."""
        client = self.client() or client_at(None, None)
        store = ClientSettings.of(client)
        found: dict[str, Any] = {"endpoint": store.endpoint, "region": client.meta.region_name}
        style = store.config.get("s3", {}).get("addressing_style")
        if style in ("path", "virtual"):
            found["path_style"] = style == "path"
        return {name: value for name, value in found.items() if value is not None}

    def check_spark_session(self) -> None:
        """Check that the process's Spark session uses the store of this resource.

        :raises InvalidInputError: it uses another one.
        """
        told = self._told()
        endpoint = told.pop(_VARIABLES["endpoint_url"], None)
        elsewhere = [n for n, value in told.items() if os.environ.get(n, "") != value]
        if endpoint and client_at(None, None).meta.endpoint_url != endpoint:
            elsewhere.append(_VARIABLES["endpoint_url"])
        if elsewhere:
            raise InvalidInputError(
                "The Spark session of this process reaches its store by the environment, which "
                f"differs from the ZeroRenameResource in {', '.join(elsewhere)}; nothing was read "
                "or written.",
                remedy="Set these variables before the session starts, or submit a Spark "
                "application.",
            )
