"""One call of spark-submit: where variables, secrets and the package go, by kind of cluster.

============================  ==========================  ================================
                              driver                      executors
============================  ==========================  ================================
``local[…]``                  environment of spark-submit the driver's processes
client mode on a cluster      environment of spark-submit 0600 file, ``spark.executorEnv``
cluster mode, YARN            0600 file, ``appMasterEnv`` 0600 file, ``spark.executorEnv``
cluster mode, Kubernetes      0600 file, ``driverEnv``    0600 file, ``spark.executorEnv``
============================  ==========================  ================================

Never the operator's ``env_vars``: on YARN and Kubernetes the apache-spark provider turns those
into ``--conf`` words of the command line, and Airflow stores them as rendered fields.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from ...committer.errors import InvalidInputError
from ...s3a.hadoop.properties_file import read_properties
from .credentials import mask
from .package_zip import build_zip
from .preflight import check_python, choose_python, find_spark
from .properties import (
    REDACTION,
    cluster_settings,
    default_properties,
    redaction,
    write_properties,
)
from .spark_log import SparkLog


@dataclass(frozen=True)
class Cluster:
    """Where a submission goes.

    :param master: Spark's master URL.
    :param deploy_mode: ``client``, ``cluster``, or ``None`` for Spark's default, client.
    :param binary: the name of spark-submit.
    """

    master: str
    deploy_mode: str | None
    binary: str = "spark-submit"

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")

    @property
    def runs_driver(self) -> bool:
        """Whether the cluster starts the driver, rather than spark-submit."""
        return self.deploy_mode == "cluster"

    def check(self) -> None:
        """:raises InvalidInputError: Spark runs no Python application there."""
        if self.runs_driver and self.master.startswith("spark://"):
            raise InvalidInputError(
                "A standalone Spark cluster runs no Python application in cluster mode; "
                "nothing was submitted.",
                remedy="Use deploy_mode='client' with this master.",
            )


@dataclass(frozen=True)
class Submission:
    """What one call of spark-submit gets besides the operator's own arguments.

    :param process_env: variables of the spark-submit process, on top of the worker's.
    :param py_files: ``--py-files``.
    :param properties_file: ``--properties-file``.
    :param conf: settings that win over the operator's own.
    """

    process_env: Mapping[str, str]
    py_files: str | None
    properties_file: str | None
    conf: Mapping[str, str] = field(default_factory=dict)


class MaskingSparkSubmitHook(SparkSubmitHook):
    """The apache-spark provider's hook, which gives spark-submit variables that are shown
    nowhere, and hides credentials in what it logs and raises. Made by :meth:`adopt`."""

    _process_env: Mapping[str, str]
    _secrets: tuple[str, ...]

    @classmethod
    def adopt(
        cls, made: SparkSubmitHook, submission: Submission, conf: Mapping[str, Any]
    ) -> MaskingSparkSubmitHook:
        """Turn a hook that the base operator made into one of this class.

        The base operator builds its hook from thirty arguments, which grow with its versions:
        so the hook is changed after it was made rather than made here.

        :param conf: copied, since the base operator writes into its hook's settings.
        """
        made.__class__ = cls
        assert isinstance(made, cls)
        made._conf = {**conf, **submission.conf}
        made._py_files = submission.py_files
        made._properties_file = submission.properties_file
        made._process_env = submission.process_env
        made._secrets = secret_values(submission.process_env)
        return made

    def _build_spark_common_args(self) -> list[str]:
        words = super()._build_spark_common_args()
        # After the call, which sets _env to env_vars on some kinds of clusters.
        self._env = {**(self._env or {}), **self._process_env}
        return words

    @property
    def log(self) -> Any:
        """As the base class's, but that Spark's lines keep their levels."""
        return SparkLog(super().log)

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        return mask(super()._mask_cmd(connection_cmd), self._secrets)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(mask(line, self._secrets) for line in itr)


def prepare(
    cluster: Cluster,
    folder: Path,
    *,
    conf: Mapping[str, Any],
    env_vars: Mapping[str, Any],
    variables: Mapping[str, str],
    credentials: Mapping[str, str],
    py_files: str | None,
    properties_file: str | None,
    ship_package: bool,
    settings: Mapping[str, str] | None = None,
) -> Submission:
    """Lay out a submission, and refuse what cannot work before Spark finds out.

    :param folder: a private folder for the zip and the properties file.
    :param variables: what the application is told; no secrets.
    :param credentials: the AWS variables.
    :param settings: Spark's, for the properties file; they win over ``properties_file`` and
        ``spark-defaults.conf``, and ``conf`` wins over them.
    :raises InvalidInputError: no Spark, no Java, an interpreter without the packages.
    """
    cluster.check()
    environ = {**os.environ, **{k: str(v) for k, v in env_vars.items()}}
    process_env = find_spark(environ, cluster.binary)
    here = not cluster.runs_driver
    if here:
        process_env |= {**choose_python(environ, conf), **variables, **credentials}
    interpreter = {**environ, **process_env}.get("PYSPARK_PYTHON", "")
    # A local job runs under an interpreter that has the package already, unless told otherwise.
    shipped = ship_package and not (cluster.is_local and interpreter == sys.executable)
    if cluster.is_local and interpreter:
        check_python(interpreter, shipped)
    if shipped:
        py_files = ",".join(filter(None, (str(build_zip(folder)), py_files)))
    carried = cluster_settings(
        cluster.master,
        driver={} if here else {**variables, **credentials},
        executors={} if cluster.is_local else credentials,
    )
    wins: dict[str, str] = {}
    settings = {**(settings or {}), **carried}
    if settings:
        base = (
            Path(properties_file)
            if properties_file
            else default_properties({**environ, **process_env})
        )
        if carried:
            known = {} if base is None else read_properties(base)
            theirs = {**known, **settings, **conf}.get(REDACTION)
            settings[REDACTION] = redaction(theirs)
            # On the command line theirs would win.
            wins = {REDACTION: settings[REDACTION]} if REDACTION in conf else {}
        properties_file = str(write_properties(folder, settings, base))
    return Submission(process_env, py_files, properties_file, wins)


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values among the AWS variables that may appear nowhere."""
    names: Iterable[str] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return tuple(variables[name] for name in names if variables.get(name))
