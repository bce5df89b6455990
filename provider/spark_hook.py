"""Hook of the apache-spark provider without secrets in its logs; clusters of its connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from ..committer.errors import InvalidInputError
from ..orchestration.submit.credentials import mask, refuse_values
from ..orchestration.submit.spark_log import LastWords, SparkLog
from ..orchestration.submit.submission import Cluster, Submission
from .connection import check_answered

#: Types of a connection to a master; all but the first come from URIs such as ``yarn://``.
_TYPES = ("spark", "yarn", "k8s", "local", "mesos")
#: For each kind of cluster: the prefix of its master's URL, the setting with which spark-submit
#: waits for an application whose driver is in the cluster, and the argument with which the hook
#: waits.
_TRACKING = (
    ("yarn", "spark.yarn.submit.waitAppCompletion", "yarn_track_via_rm_api"),
    ("k8s", "spark.kubernetes.submission.waitAppCompletion", "track_driver_via_k8s_api"),
)


class MaskingSparkSubmitHook(SparkSubmitHook):
    """The apache-spark provider's hook, with secret variables and masked logs.

    It gives spark-submit environment variables that are shown nowhere, and masks credentials in its
    logs and errors. :meth:`adopt` makes it.
    """

    _process_env: Mapping[str, str]
    _secrets: tuple[str, ...]
    _last_words: LastWords

    @classmethod
    def adopt(
        cls, made: SparkSubmitHook, submission: Submission, conf: Mapping[str, Any]
    ) -> MaskingSparkSubmitHook:
        """Turn a hook that the base operator made into one of this class.

        The base operator builds its hook from thirty arguments, and more with each version. So the
        hook is changed after it was made, rather than made here.

        :param conf: the operator's settings. They are copied, since the base operator writes into
            its hook's settings.
        """
        made.__class__ = cls
        assert isinstance(made, cls)
        made._conf = {**conf, **submission.conf}
        made._py_files = submission.py_files
        made._properties_file = submission.properties_file
        made._process_env = submission.process_env
        made._secrets = submission.secrets
        made._last_words = LastWords()
        return made

    def _build_spark_common_args(self) -> list[str]:
        words = super()._build_spark_common_args()
        # Set after the call, which sets _env to env_vars for some kinds of clusters.
        self._env = {**(self._env or {}), **self._process_env}
        return words

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """Build the command line, and refuse it if it contains a secret.

        :raises InvalidInputError: a word is or contains a secret.
        """
        words = super()._build_spark_submit_command(application)
        refuse_values(words, self._secrets)
        return words

    @property
    def log(self) -> Any:
        """The base class's logger, but Spark's lines keep their levels."""
        return SparkLog(super().log)

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        return mask(super()._mask_cmd(connection_cmd), self._secrets)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        masked = (mask(line, self._secrets) for line in itr)
        super()._process_spark_submit_log(self._last_words.noted(masked))

    @property
    def has_ended(self) -> bool:
        """True if spark-submit was started and has ended."""
        return self._submit_sp is not None and self._submit_sp.poll() is not None

    def why_it_failed(self) -> str | None:
        """Return the application's error, from its output; ``None`` if it did not fail."""
        code = self._submit_sp.returncode if self._submit_sp is not None else None
        return self._last_words.told(code) if code else None


def find_cluster(conn_id: str, deploy_mode: str | None, binary: str | None) -> Cluster:
    """Return the cluster of a Spark connection.

    :param deploy_mode: wins over the connection's.
    :param binary: name of spark-submit; wins over the connection's.
    :raises StoreUnreachableError: it is not known whether there is such a connection.
    :raises InvalidInputError: there is no such connection (the apache-spark provider would use
        YARN), it has another type (its host would be the master), or that provider refuses it.
    """
    try:
        found = SparkSubmitHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        check_answered(conn_id)
        raise InvalidInputError(
            f"There is no Spark connection {conn_id!r}; nothing was submitted.",
            remedy=f"Add it: airflow connections add {conn_id} --conn-type spark "
            "--conn-host 'local[*]', or name another one as conn_id.",
        ) from error
    if found.conn_type not in _TYPES:
        raise InvalidInputError(
            f"The connection {conn_id!r} has the type {found.conn_type!r}, not 'spark'; "
            "nothing was submitted.",
            remedy="Name a Spark connection as conn_id; its host is the master.",
        )
    try:
        hook = SparkSubmitHook(conn_id=conn_id, deploy_mode=deploy_mode, spark_binary=binary)
    except (ValueError, RuntimeError, NameError) as error:
        # NameError: a connection to Kubernetes, without the provider that it needs.
        raise InvalidInputError(
            f"The Spark connection {conn_id!r} cannot be used: {error}",
            remedy="Mend the connection or the task's arguments, or install what is missing; for "
            "Kubernetes that is apache-airflow-providers-cncf-kubernetes.",
        ) from error
    known = hook._connection
    return Cluster(known["master"], known["deploy_mode"], known["spark_binary"])


def check_tracking(hook: SparkSubmitHook) -> None:
    """Check that an application in a cluster is waited for, by spark-submit or by the hook.

    The hook polls the cluster's API, so spark-submit must end before.

    :param hook: as the base operator makes it; nothing is submitted yet.
    :raises InvalidInputError: neither waits, both wait, or the API cannot be used.
    """
    known: Any = hook
    for kind, setting, argument in _TRACKING:
        tracked = bool(getattr(known, f"_{argument}", False))
        if tracked:
            _check_api(known, argument)
        said = str(known._conf.get(setting, "")).strip().lower()
        where = known._connection
        if not where["master"].startswith(kind) or where["deploy_mode"] != "cluster":
            continue
        if (said, tracked) in (("true", True), ("false", False)):
            why = (
                "spark-submit would wait for the application, and its id would be known too late"
                if tracked
                else "nobody would wait for the application, whose rows come later"
            )
            raise InvalidInputError(
                f"conf has {setting}={said}, and {argument} is {tracked}: {why}. Nothing was "
                "submitted.",
                remedy=f"Remove {setting} from conf, or give {argument}={not tracked}.",
            )


def _check_api(known: Any, argument: str) -> None:
    try:
        getattr(known, f"_validate_{argument}_config")()
    except (ValueError, RuntimeError, AirflowException) as error:
        raise InvalidInputError(
            f"{argument}=True cannot be honoured: {error} Nothing was submitted.",
            remedy=f"Mend the Spark connection or the task's arguments, or leave {argument} out: "
            "spark-submit then waits for the application.",
        ) from error
