"""Command lines of spark-submit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .credentials import refuse_in_arguments, refuse_in_settings, refuse_values
from .submission import Cluster, Submission


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
    """The words that start an application.

    :param arguments: the application's own.
    :param conf: Spark's settings; those of ``submission`` win.
    :param packages: Maven coordinates.
    :raises InvalidInputError: ``conf`` or ``arguments`` hold a credential: the words of a command
        are every user's to read.
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
