"""Client of Dagster Pipes for Spark applications that write assets by ``save()``."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import dagster as dg
from dagster_pipes import PipesExtras
from pydantic import ConfigDict, Field, model_validator

from zero_rename.committer.errors import InvalidInputError
from zero_rename.orchestration.s3a.configuration import SparkCall
from zero_rename.orchestration.submit.preflight import check_files
from zero_rename.orchestration.submit.properties import private_folder
from zero_rename.orchestration.submit.submission import Cluster, Submission, prepare, spark_submit
from zero_rename.s3a.hadoop.settings import check_options

from ..asset_step import FunctionContext, step_of
from ..failures import final_failures
from ..key_paths import PartitionExpr
from ..resource import ZeroRenameResource
from .hadoop_load import HadoopLoad
from .spark_load import SparkLoad


class SparkPipesClient(dg.ConfigurableResource):
    """Client that submits Spark applications by spark-submit, each for one asset, under Dagster
    Pipes.

    The application says *what* is written, by :func:`zero_rename.spark.save`. It gets table,
    partitions, mode and the run's idempotency key from this client. Keys of the resource are passed
    to the driver in its environment, and to a cluster in a properties file of mode 0600; never on a
    command line.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    zero_rename: ZeroRenameResource
    master: str = Field(default="local[*]", description="Spark's master URL.")
    deploy_mode: str | None = Field(
        default=None,
        description="Only client: the driver runs on this machine, where Pipes reads its reports.",
    )
    binary: str = Field(default="spark-submit", description="The name of spark-submit.")
    conf: dict[str, str] = Field(default={}, description="Spark's settings; no credentials.")
    packages: list[str] = Field(default=[], description="Maven coordinates of packages to load.")
    py_files: str | None = Field(default=None, description="As spark-submit's --py-files.")
    properties_file: str | None = Field(
        default=None, description="As spark-submit's --properties-file."
    )
    s3a_options: dict[str, Any] = Field(
        default={}, description="Options of Hadoop's committers: threads, staging_dir and so on."
    )
    ship_package: bool = Field(
        default=True,
        description="Send this package to the executors. They need boto3 and pyarrow in any case.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_resource(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if given.get("zero_rename") is None:  # Dagster's default for a resource that was left out.
            raise InvalidInputError(
                "A SparkPipesClient has no zero_rename.",
                remedy="Give zero_rename=ZeroRenameResource(…).",
            )
        return given

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        check_options(self.s3a_options)
        return self

    def run(
        self,
        context: FunctionContext,
        *,
        application: str,
        application_args: Sequence[str] = (),
        conf: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        extras: PipesExtras | None = None,
        table: str | None = None,
        asset_key: dg.AssetKey | str | None = None,
        mode: str | None = None,
        partition_expr: PartitionExpr | None = None,
        catalog: str | None = None,
    ) -> dg.MaterializeResult:
        """Submit an application, unless this chain of retries has committed the asset already.

        :param application: a ``.py`` file or a jar; a path or URL.
        :param conf: Spark's settings in addition to the client's; these win.
        :param env: the application's environment variables in addition to this process's.
        :param extras: for the application's own use of Pipes.
        :param table: and ``asset_key``, ``mode``, ``partition_expr``, ``catalog``: as for
            :meth:`.resource.ZeroRenameResource.write`.
        :return: with the rows' data version; metadata of each partition is in its event.
        :raises Failure: the call is invalid, and nothing was submitted; or the application failed,
            and said why.
        :raises RefusedError: the application ended well, but has committed nothing.
        """
        settings = {**self.conf, **(conf or {})}
        with ExitStack() as stack:
            stack.enter_context(final_failures(step_of(context)))
            cluster = self._cluster()
            check_files(
                application=application,
                py_files=self.py_files,
                properties_file=self.properties_file,
            )
            load = self.zero_rename.spark_load(
                context,
                table=table,
                asset_key=asset_key,
                mode=mode,
                partition_expr=partition_expr,
                catalog=catalog,
            )
            if load.is_done:
                return load.result()
            call = SparkCall(application, cluster, settings, env or {}, self.properties_file)
            made = self._prepared(stack, call, load, self._committer_settings(call, load))
            command = spark_submit(
                cluster,
                made,
                application,
                application_args,
                name=f"{load.step.asset.to_user_string()} {load.step.run}",
                conf=settings,
                packages=self.packages,
            )
            stack.enter_context(load.submitted())
            invocation = dg.PipesSubprocessClient().run(
                context=context,
                command=command,
                env={**(env or {}), **made.process_env},
                extras=extras,
            )
        return load.result(invocation.get_results(implicit_materializations=False))

    def _committer_settings(self, call: SparkCall, load: SparkLoad) -> dict[str, str]:
        """Return the settings for one of Hadoop's committers; empty for a native load.

        :raises InvalidInputError: the settings in force would lose or double rows.
        """
        if not isinstance(load, HadoopLoad):
            return {}
        keys = self.zero_rename.aws_env()
        passes_keys = "AWS_ACCESS_KEY_ID" in keys
        store = self.zero_rename.s3a_store()
        return load.check_call(call, self.s3a_options, store, passes_keys)

    def _cluster(self) -> Cluster:
        cluster = Cluster(self.master, self.deploy_mode, self.binary)
        cluster.check()
        if cluster.runs_driver:
            raise InvalidInputError(
                "With deploy_mode='cluster' the driver runs where this host's files are not, by "
                "which Pipes tells it of the run; nothing was submitted.",
                remedy="Use deploy_mode='client'; or a Pipes client of that cluster's kind with "
                "ZeroRenameResource.spark_load, as docs/dagster.md shows for EMR and Glue.",
            )
        return cluster

    def _prepared(
        self, stack: ExitStack, call: SparkCall, load: SparkLoad, settings: Mapping[str, str]
    ) -> Submission:
        return prepare(
            call.cluster,
            stack.enter_context(private_folder()),
            conf=call.conf,
            env_vars=call.env_vars,
            variables=load.variables,
            credentials=self.zero_rename.aws_env(),
            py_files=self.py_files,
            properties_file=self.properties_file,
            ship_package=self.ship_package,
            settings=settings,
        )
