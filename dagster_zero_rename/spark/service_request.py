"""Requests with which Pipes clients start Spark on services of AWS.

A load completes such a request, and learns before from the service how the job would run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.handoff import HANDOFF, HANDOFF_SETTING
from zero_rename.committer.upkeep.access_policy import Service
from zero_rename.orchestration.submit.seen_jobs import (
    described,
    refuse_serverless_repeats,
    seen_by_driver,
    seen_by_words,
    seen_glue_job,
)
from zero_rename.orchestration.submit.service_words import (
    refuse_in_request,
    spark_driver,
    spark_step,
    with_driver_words,
    with_glue_settings,
    with_step_words,
)
from zero_rename.s3a.services import RULES, ServiceJob, check_word, classified, refuse_repeats

_Request = Mapping[str, Any]
#: A member that lets a service recognise a request that is sent twice.
_NO_SECRET = "clientToken"


@dataclass(frozen=True)
class _Way:
    """Functions for the requests of one service.

    :param see: returns what a client can find out about a request's job.
    :param complete: returns a request with the load's parameters and settings added.
    """

    see: Callable[[_Request, Any], ServiceJob]
    complete: Callable[[_Request, str, Mapping[str, str]], dict[str, Any]]


def service_named(service: Service | str) -> Service:
    """Return the service of a name.

    :raises InvalidInputError: requests to this service are not completed here.
    """
    if service in _WAYS:
        return Service(service)
    if service == Service.DATABRICKS:
        check_word(Service.DATABRICKS, "magic")
    raise InvalidInputError(
        f"Requests to the service {str(service)!r} are not completed here. Nothing was submitted.",
        remedy=f"Give one of {', '.join(_WAYS)}; on Kubernetes a SparkPipesClient submits, whose "
        "master is k8s://….",
    )


def completed(
    service: Service,
    request: _Request,
    handed: str,
    settings: Mapping[str, str],
    secrets: Collection[str],
) -> dict[str, Any]:
    """Return a request with the load's parameters added for its application.

    :param handed: the parameters, encoded as one word.
    :param settings: of one of Hadoop's committers; empty for a native load.
    :param secrets: values that the request may not hold, under any name.
    :raises InvalidInputError: the request runs no Spark application, would split a value, or holds
        a credential.
    """
    shown = {name: value for name, value in request.items() if name != _NO_SECRET}
    refuse_in_request(shown, "request", secrets)
    return _WAYS[service].complete(request, handed, settings)


def seen(service: Service, request: _Request, client: Any) -> ServiceJob:
    """Return what can be found out about a request's job before it is sent.

    :param client: boto3's client of the service; ``None``: the service is not asked.
    :raises InvalidInputError: the service would start the driver again, or its release cannot run
        the job.
    """
    return _WAYS[service].see(request, client)


def check_defaults(service: Service, request: _Request, client: Any) -> None:
    """Check that a completed request leaves the job's own settings at the service in force.

    :param client: boto3's client of the service; ``None``, or one without the right: there is no
        check.
    :raises InvalidInputError: the settings of a job of Glue would no longer count.
    """
    if service is Service.GLUE and client is not None:
        _refuse_hidden_settings(request, _glue_job(request, client)[0])


def _described(client: Any, what: str, **where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    if client is None:
        return {}, (f"{what} was not asked: no client of the service is given.",)
    return described(client, "The process of Dagster", what, **where)


def _see_serverless(request: _Request, client: Any) -> ServiceJob:
    driver = spark_driver(request.get("jobDriver"), "sparkSubmit")
    refuse_serverless_repeats(request)
    application = str(request.get("applicationId"))
    said, unseen = _described(client, "get_application", applicationId=application)
    found = said.get("application") or {}
    runtime = classified(found.get("runtimeConfiguration"), "runtimeConfiguration")
    overrides = request.get("configurationOverrides")
    return seen_by_driver(driver, overrides, found.get("releaseLabel", ""), runtime, *unseen)


def _complete_serverless(
    request: _Request, handed: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    return _with_driver(request, "sparkSubmit", "spark.emr-serverless.driverEnv", handed, settings)


def _see_containers(request: _Request, client: Any) -> ServiceJob:
    driver = spark_driver(request.get("jobDriver"), "sparkSubmitJobDriver")
    attempts = (request.get("retryPolicyConfiguration") or {}).get("maxAttempts") or 1
    refuse_repeats("retryPolicyConfiguration['maxAttempts']", attempts, attempts > 1)
    overrides = request.get("configurationOverrides")
    return seen_by_driver(driver, overrides, str(request.get("releaseLabel") or ""))


def _complete_containers(
    request: _Request, handed: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    member = "sparkSubmitJobDriver"
    return _with_driver(request, member, "spark.kubernetes.driverEnv", handed, settings)


def _with_driver(
    request: _Request, member: str, variables: str, handed: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    told = {f"{variables}.{HANDOFF}": handed, **settings}
    overrides = request.get("configurationOverrides")
    driver = with_driver_words(request.get("jobDriver"), member, told, None, overrides)
    return {**request, "jobDriver": driver}


def _see_steps(request: _Request, client: Any) -> ServiceJob:
    words = [str(word) for word in spark_step(request.get("Steps"))["HadoopJarStep"]["Args"]][1:]
    behind = classified(request.get("Configurations"), "Configurations")
    return seen_by_words(words, str(request.get("ReleaseLabel") or ""), behind)


def _complete_steps(request: _Request, handed: str, settings: Mapping[str, str]) -> dict[str, Any]:
    step = spark_step(request.get("Steps"))
    jar_step = step["HadoopJarStep"]
    words = with_step_words(jar_step["Args"], handed, settings)
    return {**request, "Steps": [{**step, "HadoopJarStep": {**jar_step, "Args": words}}]}


def _glue_job(request: _Request, client: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    said, unseen = _described(client, "get_job", JobName=str(request.get("JobName")))
    return said.get("Job") or {}, unseen


def _see_glue(request: _Request, client: Any) -> ServiceJob:
    job, unseen = _glue_job(request, client)
    _refuse_hidden_settings(request, job)
    return seen_glue_job(job, request.get("Arguments") or {}, *unseen)


def _refuse_hidden_settings(request: _Request, job: Mapping[str, Any]) -> None:
    """Refuse a request that would replace the settings of a job of Glue.

    :raises InvalidInputError: the job's own settings would no longer count.
    """
    default = (job.get("DefaultArguments") or {}).get("--conf")
    if default and "--conf" not in (request.get("Arguments") or {}):
        raise InvalidInputError(
            "The job has a default argument --conf, which the request's own replaces, and the "
            "request has none. Nothing was submitted.",
            remedy="Put these settings into the request's Arguments, too.",
        )


def _complete_glue(request: _Request, handed: str, settings: Mapping[str, str]) -> dict[str, Any]:
    given = dict(request.get("Arguments") or {})
    own = RULES[Service.GLUE].arguments if settings else {}
    conf = with_glue_settings(given.get("--conf"), {HANDOFF_SETTING: handed, **settings})
    return {**request, "Arguments": {**given, **own, "--conf": conf}}


_WAYS: Mapping[Service, _Way] = {
    Service.EMR_SERVERLESS: _Way(_see_serverless, _complete_serverless),
    Service.EMR_STEPS: _Way(_see_steps, _complete_steps),
    Service.EMR_CONTAINERS: _Way(_see_containers, _complete_containers),
    Service.GLUE: _Way(_see_glue, _complete_glue),
}
