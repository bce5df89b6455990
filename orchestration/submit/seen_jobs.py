"""Jobs of services as they can be seen before one of Hadoop's committers writes in them.

Each function looks at a request, or at what the service says of what its job will run on. What
cannot be seen is a sentence; what would start a driver again is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError, SettingsRefusedError
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
from .service_words import options_of, setting_of
from .shared_volumes import pods_mounts


def described(
    client: Any, who: str, what: str, **where: str
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Ask a service to describe what its job will run on.

    :param client: boto3's, of the service.
    :param who: asks, for the sentence.
    :param what: the call, by boto3's name of it.
    :returns: the answer, and why there is none, a sentence; an error of another kind than missing
        rights says itself what is wrong.
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
    """Return what is seen of a job of EMR by the words of its spark-submit.

    :param release: its label; ``""`` where it could not be seen.
    :param behind: configurations of the service, which count where the words say nothing.
    :raises InvalidInputError: a release that cannot run it.
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
    """Return what is seen of a job of EMR by its ``job_driver``.

    :param driver: as :func:`~.service_words.spark_driver` returns it.
    :param overrides: the job's ``configuration_overrides``.
    :param release: and ``behind`` as :func:`seen_by_words` takes them.
    :raises InvalidInputError: as it does; or quotes that are not closed.
    """
    configured = (overrides or {}).get("applicationConfiguration")
    try:
        words = shlex.split(str(driver.get("sparkSubmitParameters", "")))
    except ValueError as error:
        # Without its text, which may hold a secret.
        raise InvalidInputError(
            f"sparkSubmitParameters of job_driver cannot be told apart: {error}. Nothing was "
            "submitted.",
            remedy="Close the quotes in sparkSubmitParameters.",
        ) from None
    own = classified(configured, "configuration_overrides")
    return seen_by_words(words, release, (*own, *behind), *unseen)


def refuse_serverless_repeats(config: Mapping[str, Any]) -> None:
    """Refuse a job of EMR Serverless whose driver is started again.

    :param config: ``retryPolicy`` and ``mode`` of the request.
    :raises SettingsRefusedError: it would be.
    """
    attempts = (config.get("retryPolicy") or {}).get("maxAttempts", 1)
    refuse_repeats("config['retryPolicy']['maxAttempts']", attempts, attempts != 1)
    mode = config.get("mode", "BATCH")
    refuse_repeats("config['mode']", mode, mode != "BATCH")


def seen_glue_job(job: Mapping[str, Any], arguments: Mapping[str, Any], *unseen: str) -> ServiceJob:
    """Return what is seen of a job of Glue.

    :param job: its own definition, empty where it could not be seen.
    :param arguments: those of the run, which win over the job's own.
    :raises SettingsRefusedError: it is run again, or an argument lets Glue's committer write.
    :raises InvalidInputError: a version that cannot run it.
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
