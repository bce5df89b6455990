"""One call of spark-submit: how variables, secrets and the package get to each kind of cluster.

============================  ==========================  ================================
                              driver                      executors
============================  ==========================  ================================
``local[…]``                  environment of spark-submit the driver's processes
client mode on a cluster      environment of spark-submit 0600 file, ``spark.executorEnv``
cluster mode, YARN            0600 file, ``appMasterEnv`` 0600 file, ``spark.executorEnv``
cluster mode, Kubernetes      0600 file, ``driverEnv``    0600 file, ``spark.executorEnv``
============================  ==========================  ================================

The operator's ``env_vars`` are never used for this: on YARN and Kubernetes the apache-spark
provider turns them into ``--conf`` words of the command line, and Airflow stores them as rendered
fields.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...committer.errors import InvalidInputError
from ...s3a.hadoop.effective_settings import read_properties
from ...spark.startup.preflight import warn_of_jars
from .credentials import refuse_in_arguments, refuse_in_settings, refuse_values
from .package_file import build_zip
from .preflight import check_python, choose_python, find_spark
from .properties import (
    PY_FILES,
    REDACTION,
    cluster_settings,
    default_properties,
    redaction,
    write_properties,
)

#: The least characters of a key's id at AWS. A shorter id is a word that a user chose, such as
#: ``minio``. An endpoint may contain it, too, so it does not count as a secret.
SHORTEST_KEY_ID = 16


@dataclass(frozen=True)
class Cluster:
    """The cluster that a submission goes to.

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
        """True if the cluster starts the driver, rather than spark-submit."""
        return self.deploy_mode == "cluster"

    def check(self) -> None:
        """Check that the cluster can run a Python application.

        :raises InvalidInputError: it cannot: a standalone cluster in cluster mode.
        """
        if self.runs_driver and self.master.startswith("spark://"):
            raise InvalidInputError(
                "A standalone Spark cluster runs no Python application in cluster mode; "
                "nothing was submitted.",
                remedy="Use deploy_mode='client' with this master.",
            )


@dataclass(frozen=True)
class Submission:
    """Additions to the operator's own arguments for one call of spark-submit.

    :param process_env: variables of the spark-submit process, on top of the worker's.
    :param py_files: ``--py-files``.
    :param properties_file: ``--properties-file``.
    :param conf: settings that win over the operator's own.
    :param secrets: values that must not be on a command line or in a log.
    """

    process_env: Mapping[str, str]
    py_files: str | None
    properties_file: str | None
    conf: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)


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
    secrets: Iterable[str] = (),
) -> Submission:
    """Prepare a submission, and refuse one that cannot work before Spark starts.

    :param folder: a private folder for the zip and the properties file.
    :param variables: of the application, with its hand-off; no secrets.
    :param credentials: the AWS variables.
    :param settings: of Spark, for the properties file; they win over ``properties_file`` and
        ``spark-defaults.conf``, and ``conf`` wins over them.
    :param secrets: keys of connections in use, besides those in ``credentials``.
    :raises InvalidInputError: there is no Spark or no Java, or the interpreter lacks packages.
    """
    cluster.check()
    environ = {**os.environ, **{k: str(v) for k, v in env_vars.items()}}
    process_env = find_spark(environ, cluster.binary)
    here = not cluster.runs_driver
    if here:
        process_env |= {**choose_python(environ, conf), **variables, **credentials}
    interpreter = {**environ, **process_env}.get("PYSPARK_PYTHON", "")
    # A local job runs in this interpreter, which has the package already, unless another is chosen.
    shipped = ship_package and not (cluster.is_local and interpreter == sys.executable)
    if cluster.is_local and interpreter:
        check_python(interpreter, shipped)
    carried = cluster_settings(
        cluster.master,
        driver={} if here else {**variables, **credentials},
        executors={} if cluster.is_local else credentials,
    )
    base = (
        Path(properties_file) if properties_file else default_properties({**environ, **process_env})
    )
    known = (
        read_properties(base) if base is not None and (shipped or carried or base.is_file()) else {}
    )
    home = {**environ, **process_env}.get("SPARK_HOME")
    warn_of_jars(Path(home) if home else None, {**known, **(settings or {}), **conf})
    if shipped:
        theirs = py_files or {**known, **conf}.get(PY_FILES)
        py_files = ",".join(filter(None, (str(build_zip(folder)), theirs)))
    wins: dict[str, str] = {}
    settings = {**(settings or {}), **carried}
    if settings:
        if carried:
            settings[REDACTION] = redaction({**known, **settings, **conf}.get(REDACTION))
            # A pattern on the command line would win over the one in the file.
            wins = {REDACTION: settings[REDACTION]} if REDACTION in conf else {}
        properties_file = str(write_properties(folder, settings, base))
    kept = (*secret_values(credentials), *secrets)
    return Submission(process_env, py_files, properties_file, wins, kept)


def with_hidden(
    submission: Submission,
    folder: Path,
    settings: Mapping[str, str],
    *,
    conf: Mapping[str, Any],
    env_vars: Mapping[str, Any],
) -> Submission:
    """Return a submission whose properties file has more settings, which are secrets.

    Another package had added these settings to the command line.

    :param folder: a private folder, without a properties file yet.
    :param settings: the secret ones.
    :param conf: the other settings of the command line, which win.
    """
    environ = {**os.environ, **{k: str(v) for k, v in env_vars.items()}, **submission.process_env}
    given = submission.properties_file
    base = Path(given) if given else default_properties(environ)
    known = read_properties(base) if base is not None else {}
    hides = redaction({**known, **conf, **submission.conf}.get(REDACTION))
    file = write_properties(folder, {**settings, REDACTION: hides}, base)
    wins = {REDACTION: hides} if REDACTION in {**conf, **submission.conf} else {}
    return replace(
        submission,
        properties_file=str(file),
        conf={**submission.conf, **wins},
        secrets=(*submission.secrets, *settings.values()),
    )


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets among the AWS variables; a short key id does not count as one."""
    names: Iterable[str] = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
    *secrets, key_id = (variables.get(name) or "" for name in names)
    return tuple(filter(None, (*secrets, key_id if len(key_id) >= SHORTEST_KEY_ID else "")))


def spark_submit(
    cluster: Cluster,
    submission: Submission,
    application: str,
    arguments: Sequence[str] = (),
    *,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
) -> list[str]:
    """Return the command line that starts an application.

    :param arguments: the application's own.
    :param conf: Spark's settings; those of ``submission`` win.
    :param packages: Maven coordinates.
    :raises InvalidInputError: ``conf`` or ``arguments`` hold a credential: every user of the
        machine can read a command line.
    """
    refuse_in_settings(conf, "conf")
    refuse_in_arguments(arguments, "application_args")
    words = [cluster.binary, "--master", cluster.master]
    if cluster.deploy_mode:
        words += ["--deploy-mode", cluster.deploy_mode]
    for key, value in {**(conf or {}), **submission.conf}.items():
        words += ["--conf", f"{key}={value}"]
    given = {
        "--packages": ",".join(packages),
        "--py-files": submission.py_files,
        "--properties-file": submission.properties_file,
        "--name": name,
    }
    for option, value in given.items():
        words += [option, value] if value else []
    words += [application, *map(str, arguments)]
    refuse_values(words, submission.secrets)
    return words
