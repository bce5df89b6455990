"""Run a Spark application whose output this package commits, and see that it was committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from ..committer.handoff import Handoff
from ..committer.job_spec import Mode, OnConflict, OnRepeat, SuccessMarkers
from ..orchestration.runs.heartbeat import heartbeats
from ..orchestration.runs.living import wait_for_living
from ..orchestration.runs.outcomes import (
    check_partitions,
    log_what_is_left,
    nothing_committed,
    settle_killed,
    settled,
)
from ..orchestration.runs.partitions import stored_partitions
from ..orchestration.runs.reports import (
    commit_report,
    one_line,
    opening,
    partitions_line,
    summary,
)
from ..orchestration.runs.task_run import TaskRun
from ..orchestration.submit.credentials import refuse_in_settings
from ..orchestration.submit.local_files import check_files
from ..orchestration.submit.private_folder import private_folder
from ..orchestration.submit.submission import Cluster, Submission, prepare
from ..provider.failures import explained, final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.links import TableConsoleLink
from ..provider.load_arguments import check_arguments
from ..provider.masking_hook import MaskingSparkSubmitHook
from ..provider.outlets import default_outlets, tell_outlets
from ..provider.registered import register
from ..provider.spark_connection import find_cluster
from ..provider.task_context import resolve_partitions, task_run
from ..s3a.hadoop.committers import NATIVE, check_committer
from ..s3a.hadoop.settings import Committer

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table
    from ..orchestration.s3a.configuration import Load, SparkCall


class ZeroRenameSparkSubmitOperator(SparkSubmitOperator):
    """Submit a Spark application that writes one table with ``zero_rename.spark.save``.

    Takes every argument of :class:`SparkSubmitOperator`. The application says *what* is
    written, and need not repeat what is said here; natively ``format("zero_rename")`` does too.
    The run's ``once`` key makes a retry report what an earlier try has committed instead
    of loading twice. The task succeeds only if this run's job is committed and listable.

    Credentials of the AWS connection go to the driver by environment and to a cluster by a
    properties file of mode 0600; those found in ``conf``, ``application_args`` and, where they
    would reach a command line, ``env_vars`` are refused.

    Returns (XCom) ``job``, ``table``, ``partitions`` (each with its ``epoch``, ``files``,
    ``rows``, ``bytes``, ``removed``), totals of ``rows``, ``files``, ``bytes``,
    ``decided_at``, ``repeated``, for a single partition its ``partition`` and ``epoch``, and
    ``catalog`` where the table was registered.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
        (templated)
    :param partition: the partition or partitions that the run may write, as
        ``year=2013/month=2/day=1``; with ``mode="overwrite"`` they are replaced even if no row
        arrives. ``"*"`` for whatever partitions the rows have, and for an unpartitioned table.
        Left out, it is the run's partition key where that is such a path, else
        ``partition_format``. (templated)
    :param partition_format: ``strftime`` codes that make the partition from the run's date: its
        ``partition_date``, else the start of its data interval. (templated)
    :param partition_timezone: time zone in which that date is taken.
    :param mode: ``append``, ``overwrite`` (the same as ``replace``) or ``fail-if-exists``;
        ``None`` leaves it to the application. (templated)
    :param on_conflict: ``fail`` or ``last_wins``, when another job changed a partition since
        this one began; ``None`` takes the connection's. (templated)
    :param on_repeat: when this run has committed before. ``auto``: report that commit after a
        retry; replace it after the task was cleared or its run made anew. Or always ``skip``,
        ``replace_own`` or ``append``. (templated)
    :param committer: ``zero_rename``, or one of Hadoop's in the JVM: ``magic``, ``directory``,
        ``partitioned``, ``classic``; ``None`` takes the connection's. (templated)
    :param s3a_options: for Hadoop's committers, members of :class:`~..s3a.settings.S3ASettings`
        such as ``threads``, ``encryption``, ``storage_class``; they win over the connection's,
        and ``conf`` wins over them. (templated)
    :param catalog: where the table is registered once the job is committed: ``glue://database/table``,
        or ``glue://database``; ``None`` takes the connection's, ``""`` is none. (templated)
    :param ship_package: hand this package to the executors with ``--py-files``; not needed
        where it is installed on them. They need boto3 and pyarrow in any case.
    :param pass_credentials: hand over the AWS connection's keys, endpoint and region. ``False``
        where driver and executors have an identity of their own.
    :param asset_partitions: an event for each partition written, under its path as the key, rather
        than one for the load. (Airflow starts DAGs without partitions by events without keys only.)
    :param outlets: assets or aliases, as for any operator. Left out, the load is an event of the
        asset at the table's address, through the alias ``zero_rename:<table>``; ``[]`` for none.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "table",
        "partition",
        "partition_format",
        "mode",
        "on_conflict",
        "on_repeat",
        "committer",
        "s3a_options",
        "catalog",
        "zero_rename_conn_id",
    )
    operator_extra_links = (TableConsoleLink(),)
    ui_color = "#e6f2ec"

    def __init__(
        self,
        *,
        table: str,
        partition: str | Sequence[str] | None = None,
        partition_format: str | None = None,
        partition_timezone: str = "UTC",
        mode: str | None = None,
        on_conflict: str | None = None,
        on_repeat: str = "auto",
        committer: str | None = None,
        s3a_options: Mapping[str, Any] | None = None,
        catalog: str | None = None,
        ship_package: bool = True,
        pass_credentials: bool = True,
        asset_partitions: bool = False,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        if "outlets" not in kwargs and "outlets" not in (kwargs.get("default_args") or {}):
            kwargs["outlets"] = default_outlets(table)
        super().__init__(**kwargs)
        self.table = table
        self.partition = partition
        self.partition_format = partition_format
        self.partition_timezone = partition_timezone
        self.mode = mode
        self.on_conflict = on_conflict
        self.on_repeat = on_repeat
        self.committer = committer
        self.s3a_options = dict(s3a_options or {})
        self.catalog = catalog
        self.ship_package = ship_package
        self.pass_credentials = pass_credentials
        self.asset_partitions = asset_partitions
        self.zero_rename_conn_id = zero_rename_conn_id
        self._submission: Submission | None = None
        self._submitted: tuple[Table, TaskRun] | None = None
        self._console_url = ""
        check_arguments(self, parsing=True)

    def execute(self, context: Context) -> dict[str, Any]:
        """Submit unless this run has committed already; then report its job.

        :raises AirflowFailException: a call that no retry can mend.
        :raises ZeroRenameError: the job is not committed, or not known to be.
        """
        # On use, as below: DAG files are parsed by processes that submit nothing.
        from ..orchestration.s3a.configuration import Load
        from ..orchestration.s3a.load import loaded_by_s3a

        with final_where_refused():
            check_arguments(self)
            run = task_run(context)
            partitions = self._partitions(context)
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            committer = check_committer(self.committer or hook.settings.committer)
            table = hook.get_table(self.table)
            self._console_url = TableConsoleLink.url(table.root.url, hook)
        mode = Mode.parse(self.mode) if self.mode else None
        report = loaded_by_s3a(table, run, mode, self.on_repeat)
        if report is None and committer == NATIVE:
            report = self._load(context, run, hook, table, mode, partitions)
        elif report is None:
            load = Load(Committer(committer), table.root, mode, partitions)
            report = self._load_by_s3a(context, run, hook, table, load)
        registered = register(hook, table, self.catalog)
        if registered is not None:
            report["catalog"] = registered
        events = context["outlet_events"]  # pyright: ignore
        tell_outlets(self.outlets or (), events, report, self.asset_partitions)
        return report

    def on_kill(self) -> None:
        """Kill the application, and abort its job, or finish it if it had decided to commit.

        What one of Hadoop's committers leaves is settled by this run's next try or by
        RecoverS3AJobsOperator.
        """
        if self._hook is None:
            return
        super().on_kill()
        if self._submitted is not None:
            settle_killed(*self._submitted)

    def _load(
        self,
        context: Context,
        run: TaskRun,
        hook: ZeroRenameHook,
        table: Table,
        mode: Mode | None,
        partitions: tuple[str, ...],
    ) -> dict[str, Any]:
        wait_for_living(table, run)
        earlier = table.once_job(run.once)
        committed_by = table.owner_of(earlier) if earlier is not None else None
        on_repeat = run.on_repeat(self.on_repeat, committed_by)
        if earlier is not None and on_repeat == "skip":
            report = commit_report(settled(table, earlier))
            self.log.info("Not submitted: this run has committed %s", one_line(report))
            self.log.info("To load again, clear the task or give on_repeat='replace_own'.")
            return report | {"repeated": True}
        with final_where_refused():
            partitions = stored_partitions(table, partitions)
            handoff = self._handoff(run, hook, table, mode, partitions)
        handoff = replace(handoff, on_repeat=OnRepeat(on_repeat))
        self._log_opening(run, handoff, f"{run.once}, try {run.try_number}")
        self._submit(context, run, hook, table, handoff)
        job = table.once_job(run.once)
        if job is None or job == earlier:
            raise nothing_committed(table, run, earlier)
        committed = settled(table, job)
        report = commit_report(committed)
        report["repeated"] = not run.made(table.owner_of(job))
        self.log.info("Committed %s", summary(report))
        check_partitions(committed, stored_partitions(table, partitions))
        return report

    def _load_by_s3a(
        self,
        context: Context,
        run: TaskRun,
        hook: ZeroRenameHook,
        table: Table,
        wanted: Load,
    ) -> dict[str, Any]:
        """The same with one of Hadoop's committers, which has no ``once`` key, no heads and no
        decision: so its settings are checked before, and what it left after."""
        from ..orchestration.s3a.configuration import check_submission, render
        from ..orchestration.s3a.load import S3ALoad

        load = S3ALoad(table, run, wanted)
        with final_where_refused():
            self._check_files()
            keys = hook.credentials_env() if self.pass_credentials else {}
            options = {**(hook.settings.s3a_options or {}), **self.s3a_options}
            passes_keys = "AWS_ACCESS_KEY_ID" in keys
            settings = render(wanted, options, hook.s3a_store(), load.uuid, passes_keys)
            call = self._spark_call()
            check_submission(wanted, call, settings, table)
            handoff = self._handoff(run, hook, table, wanted.mode, wanted.partitions)
            handoff = replace(handoff, committer=str(wanted.committer), s3a_run=load.uuid)
            variables = handoff.encode()
        self._log_opening(run, handoff, f"{load.uuid} of {run.once}, try {run.try_number}")
        with (
            load.submitted(),
            explained(table, run),
            self._prepared(hook, variables, settings),
        ):
            super().execute(context)
        return load.report()

    def _spark_call(self) -> SparkCall:
        from ..orchestration.s3a.configuration import SparkCall

        limit = self.execution_timeout
        return SparkCall(
            application=self.application,
            cluster=self._cluster(),
            conf=self.conf or {},
            env_vars=self.env_vars or {},
            properties_file=self.properties_file,
            longest_seconds=limit.total_seconds() if isinstance(limit, timedelta) else limit,
        )

    def _submit(
        self,
        context: Context,
        run: TaskRun,
        hook: ZeroRenameHook,
        table: Table,
        handoff: Handoff,
    ) -> None:
        self._submitted = table, run
        try:
            with (
                explained(table, run),
                self._prepared(hook, handoff.encode()),
                heartbeats(table, run),
            ):
                super().execute(context)
        except Exception:
            log_what_is_left(table, run)
            raise

    @contextmanager
    def _prepared(
        self,
        hook: ZeroRenameHook,
        variables: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        self._check_files()
        with private_folder() as folder:
            self._submission = prepare(
                self._cluster(),
                folder,
                conf=self.conf or {},
                env_vars=self.env_vars or {},
                variables=variables,
                credentials=hook.credentials_env() if self.pass_credentials else {},
                py_files=self.py_files,
                properties_file=self.properties_file,
                ship_package=self.ship_package,
                settings=settings,
            )
            self._hook = None  # of an earlier try in this process, with its files
            yield

    def _cluster(self) -> Cluster:
        """Where the Spark connection leads, and whether the arguments may go there.

        :raises InvalidInputError: the connection cannot be used, or ``env_vars`` with credentials
            would reach a command line.
        """
        cluster = find_cluster(self._conn_id, self._deploy_mode, self._spark_binary)
        if cluster.master.startswith(("yarn", "k8s")):
            refuse_in_settings(self.env_vars, "env_vars")
        return cluster

    def _get_hook(self) -> SparkSubmitHook:
        """The base class's hook, made into one that keeps secrets."""
        assert self._submission is not None, "a hook is made within execute"
        made = super()._get_hook()
        return MaskingSparkSubmitHook.adopt(made, self._submission, self.conf or {})

    def _handoff(
        self,
        run: TaskRun,
        hook: ZeroRenameHook,
        table: Table,
        mode: Mode | None,
        partitions: tuple[str, ...],
    ) -> Handoff:
        """What the application is told, whichever committer writes."""
        on_conflict = self.on_conflict or hook.settings.on_conflict
        markers = hook.settings.success_markers
        return replace(
            run.handoff(),
            table=table.root,
            mode=mode,
            partitions=partitions,
            on_conflict=OnConflict(on_conflict) if on_conflict else None,
            success_markers=SuccessMarkers(markers) if markers else None,
        )

    def _check_files(self) -> None:
        check_files(
            application=self.application,
            py_files=self.py_files,
            files=self.files,
            properties_file=self.properties_file,
        )

    def _log_opening(self, run: TaskRun, handoff: Handoff, job: str) -> None:
        """What Spark's lines are about, before them."""
        said = opening(
            table=handoff.table.url if handoff.table else self.table,
            partition=partitions_line(handoff.partitions),
            mode=handoff.mode or "the application's",
            committer=handoff.committer or NATIVE,
            on_conflict=handoff.on_conflict or "the application's",
            job=job,
        )
        self.log.info("Loading\n%s", said)

    def _partitions(self, context: Context) -> tuple[str, ...]:
        return resolve_partitions(
            context, self.partition, self.partition_format, self.partition_timezone
        )
