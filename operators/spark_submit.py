"""Operator that submits a Spark application by spark-submit and checks that it has committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from ..committer.errors import InvalidInputError
from ..orchestration.runs.arguments import Parser, read_flag, read_settings, read_text, read_words
from ..orchestration.runs.heartbeat import heartbeats
from ..orchestration.runs.outcomes import log_what_is_left, settle_killed
from ..orchestration.submit.credentials import (
    looks_like_credential,
    refuse_in_arguments,
    refuse_in_settings,
)
from ..orchestration.submit.preflight import check_files
from ..orchestration.submit.properties import private_folder
from ..orchestration.submit.submission import Cluster, Submission, prepare, with_hidden
from ..provider.connection import unanswered
from ..provider.failures import ended_for_good, explained, final_where_refused
from ..provider.spark_hook import MaskingSparkSubmitHook, check_tracking, find_cluster
from ..s3a.hadoop.settings import NATIVE, check_options
from .loading.load import LoadOperator, TableLoad
from .loading.s3a_load import (
    asked_of,
    encrypt_records,
    loaded_before,
    read_options,
    s3a_load_of,
    told,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..orchestration.s3a.configuration import SparkCall
    from ..provider.hooks import ZeroRenameHook

#: Arguments of SparkSubmitOperator that are texts.
_TEXTS = (
    *("files", "py_files", "jars", "driver_class_path", "packages", "name"),
    *("exclude_packages", "keytab", "principal", "proxy_user", "properties_file"),
)


class ZeroRenameSparkSubmitOperator(LoadOperator, SparkSubmitOperator):
    """Submit a Spark application that writes one table with ``zero_rename.spark.save``.

    It takes every argument of :class:`SparkSubmitOperator` and of
    :class:`~.loading.load.LoadOperator`. The application decides *which rows* are written, and need
    not repeat the operator's arguments. With the committer ``zero_rename``, it may also write by
    ``format("zero_rename")``. By the run's idempotency key a retry reports the commit of an earlier
    attempt instead of loading twice. The task succeeds only if this run's job is committed and a
    listing shows its files.

    Credentials of the AWS connection are passed to the driver by environment variables, and to a
    cluster by a properties file of mode 0600. Credentials in ``conf``, in ``application_args`` and,
    if they would reach a command line, in ``env_vars`` are refused.

    Returns (XCom) ``job``, ``table``, ``partitions`` (each with its ``version``, ``files``,
    ``rows``, ``bytes``, ``removed``), totals of ``rows``, ``files``, ``bytes``,
    ``decided_at``, ``repeated``, for a single partition its ``partition`` and ``version``, and
    ``catalog`` if the table was registered.

    :param s3a_options: for Hadoop's committers, members of :class:`~.hadoop.settings.S3ASettings`
        such as ``threads``, ``encryption``, ``storage_class``; they win over the connection's,
        and ``conf`` wins over them. (templated)
    :param ship_package: send this package to the executors with ``--py-files``; not needed if it
        is installed on them. They need boto3 and pyarrow in any case. (templated)
    :param pass_credentials: pass on the AWS connection's keys, endpoint and region. ``False`` if
        driver and executors have their own identity. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *LoadOperator.template_fields,
        *("s3a_options", "ship_package", "pass_credentials"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "application": read_text,
        "s3a_options": read_options,
        **dict.fromkeys(("ship_package", "pass_credentials"), read_flag),
    }
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(_TEXTS, read_text),
        **dict.fromkeys(("application_args", "post_submit_commands"), read_words),
        **dict.fromkeys(("conf", "env_vars"), read_settings),
    }

    def __init__(
        self,
        *,
        s3a_options: Mapping[str, Any] | str | None = None,
        ship_package: bool | str = True,
        pass_credentials: bool | str = True,
        **kwargs: Any,
    ) -> None:
        self.s3a_options: Any = s3a_options or {}
        self.ship_package: Any = ship_package
        self.pass_credentials = pass_credentials
        self._submission: Submission | None = None
        self._master, self._in_cluster = "", False
        self._folder: Path | None = None
        super().__init__(**kwargs)
        # SparkSubmitOperator's own search for an application would find that of a cleared task, and
        # submit nothing. Its argument was called reconnect_on_retry in older versions.
        self.durable = self.reconnect_on_retry = False

    def on_kill(self) -> None:
        """Kill the application, and abort its job, or finish it if it had decided to commit.

        Jobs of Hadoop's committers are finished or undone by this run's next attempt or by
        RecoverS3AJobsOperator.
        """
        if self._hook is not None:
            super().on_kill()

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if isinstance(self.application, str) and not self.application.strip():
            raise InvalidInputError(
                "application names no file; nothing was submitted.",
                remedy="Give the path or URL of the Spark application, a .py file or a jar.",
            )
        if isinstance(self.s3a_options, Mapping):
            check_options(self.s3a_options)
        if isinstance(self.conf, Mapping):
            refuse_in_settings(self.conf, "conf")
        if isinstance(self.application_args, list | tuple):
            refuse_in_arguments(self.application_args, "application_args")

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        if load.committer != NATIVE:
            with final_where_refused():
                encrypt_records(load, self.s3a_options)
        report = loaded_before(load, self.on_repeat)
        if report is not None:
            return report
        if load.committer == NATIVE:
            return super()._load(context, load)
        return self._load_by_s3a(context, load)

    def _load_by_s3a(self, context: Context, load: TableLoad) -> dict[str, Any]:
        """Load by one of Hadoop's committers.

        These have no idempotency key, no heads and no decision. So the settings are checked before
        the submission, and the files after it.
        """
        from ..orchestration.s3a.configuration import check_submission, render

        table, run, hook = load.table, load.run, load.hook
        with final_where_refused():
            s3a_load = s3a_load_of(load, self._rival_wait())
            wanted = s3a_load.load
            self._check_files()
            keys = hook.credentials_env() if self.pass_credentials else {}
            options = asked_of(load, self.s3a_options)
            passes_keys = "AWS_ACCESS_KEY_ID" in keys
            settings = render(wanted, options, hook.s3a_store(), s3a_load.uuid, passes_keys)
            in_force = check_submission(wanted, self._spark_call(), settings, load.directories)
            variables = told(load, s3a_load).handoff.encode()
        self._log_opening(
            load, f"{s3a_load.uuid} of {run.idempotency_key}, attempt {run.try_number}"
        )
        with ended_for_good(), final_where_refused():
            with (
                s3a_load.submitted(in_force),
                explained(table, run, self._last_words),
                self._prepared(hook, variables, settings),
            ):
                SparkSubmitOperator.execute(self, context)
            return s3a_load.report()

    def _spark_call(self) -> SparkCall:
        from ..orchestration.s3a.configuration import SparkCall

        return SparkCall(
            application=self.application,
            cluster=self._cluster(),
            conf=self.conf or {},
            env_vars=self.env_vars or {},
            properties_file=self.properties_file,
        )

    def _submit(self, context: Context, load: TableLoad) -> None:
        table, run = load.table, load.run
        try:
            with (
                explained(table, run, self._last_words, bool(self.wait_for_other_runs)),
                self._prepared(load.hook, load.handoff.encode()),
                heartbeats(table, run),
            ):
                SparkSubmitOperator.execute(self, context)
        except Exception:
            if load.is_delta and self._has_ended():
                # Its jobs send no heartbeats: for a day nobody could see that they are dead.
                settle_killed(table, run)
            else:
                log_what_is_left(table, run)
            raise

    def _has_ended(self) -> bool:
        """Return whether the application has certainly ended, with spark-submit."""
        hook = self._hook
        return not self._in_cluster and isinstance(hook, MaskingSparkSubmitHook) and hook.has_ended

    @contextmanager
    def _prepared(
        self,
        hook: ZeroRenameHook,
        variables: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        self._check_files()
        with private_folder() as folder:
            self._folder = folder
            cluster = self._cluster()
            self._master, self._in_cluster = cluster.master, cluster.runs_driver
            self._submission = prepare(
                cluster,
                folder,
                conf=self._named_jars() | (self.conf or {}),
                env_vars=self.env_vars or {},
                variables=variables,
                credentials=hook.credentials_env() if self.pass_credentials else {},
                py_files=self.py_files,
                properties_file=self.properties_file,
                ship_package=self.ship_package,
                settings=settings,
                secrets=hook.secrets(self._conn_id),
            )
            self._hook = None  # The hook of an earlier attempt in this process has its files.
            yield

    def _named_jars(self) -> dict[str, str]:
        """Return the arguments that put jars on the class path, as Spark's settings."""
        given = {"spark.jars": self.jars, "spark.jars.packages": self.packages}
        return {key: value for key, value in given.items() if value}

    def _cluster(self) -> Cluster:
        """Return the cluster of the Spark connection, after checking the arguments for it.

        :raises InvalidInputError: the connection cannot be used, ``env_vars`` with credentials
            would reach a command line, or the application's end would not be waited for.
        """
        cluster = find_cluster(self._conn_id, self._deploy_mode, self._spark_binary)
        check_tracking(SparkSubmitOperator._get_hook(self))
        if cluster.master.startswith(("yarn", "k8s")):
            refuse_in_settings(self.env_vars, "env_vars")
        return cluster

    def _get_hook(self) -> SparkSubmitHook:
        """Return the base class's hook, changed into one that hides secrets.

        It also hides secrets that the base class has put into the settings, such as the key of
        OpenLineage's service.

        :raises StoreUnreachableError: the Spark connection is not found any more.
        """
        assert self._submission is not None, "a hook is made within execute"
        assert self._folder is not None
        made, conf = super()._get_hook(), self.conf or {}
        if made._connection["master"] != self._master:
            # The base class looks the connection up again, and uses YARN if that fails.
            raise unanswered(self._conn_id, "the secrets backend")
        hidden = {name: str(it) for name, it in conf.items() if looks_like_credential(name, it)}
        if hidden:
            conf = {name: it for name, it in conf.items() if name not in hidden}
            folder = Path(mkdtemp(dir=self._folder))
            self._submission = with_hidden(
                self._submission, folder, hidden, conf=conf, env_vars=self.env_vars or {}
            )
        return MaskingSparkSubmitHook.adopt(made, self._submission, conf)

    def _last_words(self) -> str | None:
        hook = self._hook
        return hook.why_it_failed() if isinstance(hook, MaskingSparkSubmitHook) else None

    def _check_files(self) -> None:
        check_files(
            application=self.application,
            py_files=self.py_files,
            files=self.files,
            properties_file=self.properties_file,
        )
