"""Settings of services' jobs, as they can be read before one of Hadoop's committers writes.

Each function reads a request, or the service's description of the job's environment. For a setting
that cannot be read it returns a sentence. It refuses a job whose driver the service would start
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...committer.errors import SettingsRefusedError
from ...committer.upkeep.access_policy import Service
from ...s3a.hadoop.effective_settings import Layer
from ...s3a.services import (
    RULES,
    ServiceJob,
    check_glue_version,
    classified,
    hadoop_of_emr,
    refuse_repeats,
    settings_of,
)
from .service_words import options_of, parameter_words, setting_of
from .shared_volumes import pods_mounts


def described(
    client: Any, who: str, what: str, **where: str
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Ask a service to describe the environment of its job.

    :param client: a boto3 client of the service.
    :param who: the one who asks, for the sentence.
    :param what: boto3's name of the call.
    :param where: the arguments of the call.
    :return: the answer; and, if a right is missing, a sentence that says so. Any other error is
        raised.
    """
    try:
        return getattr(client, what)(**where), ()
    except client.exceptions.ClientError as error:
        if "AccessDenied" not in error.response.get("Error", {}).get("Code", ""):
            raise
        return {}, (f"{who} has no right to {what} ({error}).",)


def seen_by_words(
    words: Sequence[str], release: str, behind: tuple[Layer, ...], *unseen: str
) -> ServiceJob:
    """Read the settings of an EMR job from the words of its spark-submit.

    :param words: the words after ``spark-submit``.
    :param release: the label of the EMR release; ``""`` if it could not be read.
    :param behind: configurations of the service, for settings that the words do not give.
    :param unseen: sentences about what could not be read.
    :raises InvalidInputError: the release cannot run the job.
    """
    said, missing = dict[str, str](), list(unseen)
    for option, value, _ in options_of(words):
        name, value_said = setting_of(option, value)
        if name:
            said[name] = value_said
        elif option == "--properties-file":
            missing.append(f"The settings in {value} cannot be seen from here.")
    hadoop = hadoop_of_emr(release) if release else ""
    if release and not hadoop:
        missing.append(f"{release} is newer than this package, which knows nothing of it.")
    return ServiceJob(said, behind, hadoop, pods_mounts(said), tuple(missing))


def seen_by_driver(
    driver: Mapping[str, Any],
    overrides: Any,
    release: str,
    behind: tuple[Layer, ...] = (),
    *unseen: str,
) -> ServiceJob:
    """Read the settings of an EMR job from its ``job_driver``.

    :param driver: as :func:`~.service_words.spark_driver` returns it.
    :param overrides: the job's ``configuration_overrides``.
    :param release: as for :func:`seen_by_words`.
    :param behind: as for :func:`seen_by_words`.
    :param unseen: sentences about what could not be read.
    :raises InvalidInputError: as :func:`seen_by_words`; or quotes are not closed.
    """
    configured = (overrides or {}).get("applicationConfiguration")
    words = parameter_words(str(driver.get("sparkSubmitParameters") or ""))
    own = classified(configured, "configuration_overrides")
    return seen_by_words(words, release, (*own, *behind), *unseen)


def refuse_serverless_repeats(config: Mapping[str, Any]) -> None:
    """Refuse a job of EMR Serverless whose driver the service would start again.

    :param config: the request's arguments, with ``retryPolicy`` and ``mode``.
    :raises SettingsRefusedError: the service would start the driver again.
    """
    attempts = (config.get("retryPolicy") or {}).get("maxAttempts", 1)
    refuse_repeats("config['retryPolicy']['maxAttempts']", attempts, attempts != 1)
    mode = config.get("mode", "BATCH")
    refuse_repeats("config['mode']", mode, mode != "BATCH")


def seen_glue_job(job: Mapping[str, Any], arguments: Mapping[str, Any], *unseen: str) -> ServiceJob:
    """Read the settings of a Glue job.

    :param job: its definition; empty if it could not be read.
    :param arguments: of the run; they win over the job's own.
    :param unseen: sentences about what could not be read.
    :raises SettingsRefusedError: Glue would run it again, or an argument lets Glue's committer
        write.
    :raises InvalidInputError: the Glue version cannot run the job.
    """
    missing = list(unseen)
    retries = int(job.get("MaxRetries") or 0)
    refuse_repeats("the job's MaxRetries", retries, retries > 0)
    given = {**(job.get("DefaultArguments") or {}), **arguments}
    for name, value in RULES[Service.GLUE].arguments.items():
        if str(given.get(name, value)).lower() != value:
            raise SettingsRefusedError(
                f"[service-committer] The argument {name}={given[name]!r} lets a committer of "
                f"{Service.GLUE} write. Nothing was submitted.",
                remedy=f"Leave it out: it is set to {value}.",
            )
    if job or not unseen:
        check_glue_version(str(job.get("GlueVersion") or ""), missing)
    return ServiceJob(settings_of(str(given.get("--conf", ""))), unseen=tuple(missing))
