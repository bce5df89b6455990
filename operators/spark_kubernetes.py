"""Loads by applications of the Kubernetes operator for Apache Spark."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.providers.common.compat.sdk import AirflowException
from kubernetes.client.rest import ApiException

from ..committer.errors import InvalidInputError
from ..committer.format.handoff import HANDOFF
from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, invalid, read_flag, read_mapping, read_text
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.properties import PY_FILES
from ..orchestration.submit.shared_volumes import objects_mounts, pods_mounts
from ..provider.cancelling_application import CancellingApplicationTrigger
from ..provider.hooks import ZeroRenameHook
from ..s3a.hadoop.effective_settings import Layer, settings_of_file
from ..s3a.services import ServiceJob, refuse_repeats
from .loading.load import TableLoad
from .loading.service_load import ServiceLoadOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from kubernetes.client import CustomObjectsApi, V1Pod

#: The label by which a load's applications are listed; the name of each has its attempt.
_LABEL = "zero-rename-load"
#: Prefix of settings that are variables of the driver's pod.
_DRIVER = "spark.kubernetes.driverEnv."
_ENDED = ("COMPLETED", "FAILED")
#: The variables with which an object may set the endpoint of its pods.
_ENDPOINTS = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}
#: The most characters of a name: Spark uses the driver pod's name as the value of a label.
_LONGEST_NAME = 63 - len("-driver")
#: Seconds between two polls of an application that has no driver yet.
_PAUSE = 10.0


def _read_file(name: str, given: object) -> str:
    """Return a path or a YAML text; a native rendering makes a dictionary of a JSON text."""
    return json.dumps(given) if isinstance(given, Mapping) else read_text(name, given)


class ZeroRenameSparkKubernetesOperator(ServiceLoadOperator, SparkKubernetesOperator):
    """Load a table by a ``SparkApplication``, which the Kubernetes operator for Apache Spark runs.

    It takes every argument of :class:`SparkKubernetesOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`; only ``reattach_on_restart`` has no effect,
    since it finds its application by its own mark. ``spec.sparkConf`` gets the application's
    hand-off, as a variable of the driver's pod, and the store's endpoint, addressing and region,
    for all pods. Keys are never written into the object: pods use a service account's role, or a
    Secret by ``envFrom``. The object's name ends with a mark by which the next attempt finds it.
    Returns (XCom) the same as :class:`ZeroRenameSparkSubmitOperator`.

    :param do_xcom_push: push that report. (There is no sidecar for XComs.)
    :param ship_package: add this package to ``spec.deps.pyFiles``, by an ``s3a://`` URL, which an
        image with Hadoop's S3A can load. Otherwise the image must have it. The image must have
        boto3 and pyarrow in any case. (templated)
    :param pass_endpoint: pass on the AWS connection's endpoint, addressing and region; values that
        the object itself gives are kept. (templated)
    """

    service = Service.KUBERNETES
    request_fields = ("template_spec",)
    template_fields: Sequence[str] = (
        *SparkKubernetesOperator.template_fields,
        *ServiceLoadOperator.template_fields,
        "pass_endpoint",
    )
    parsers: ClassVar[Mapping[str, Parser]] = {"pass_endpoint": read_flag}
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("name", "namespace", "kubernetes_conn_id"), read_text),
        "application_file": _read_file,
        "template_spec": read_mapping,
    }
    connection_fields = ("kubernetes_conn_id",)
    completed_by, waits_by = "trigger_reentry", ""

    def __init__(
        self,
        *,
        do_xcom_push: bool = True,
        ship_package: bool | str = False,
        pass_endpoint: bool | str = True,
        **kwargs: Any,
    ) -> None:
        self.pass_endpoint = pass_endpoint
        # SparkKubernetesOperator's own search for a driver would find that of a cleared task.
        kwargs["reattach_on_restart"] = False
        # The two hundred lines of the pod's specification would hide the reason of a failure.
        kwargs.setdefault("log_pod_spec_on_failure", False)
        super().__init__(do_xcom_push=do_xcom_push, ship_package=ship_package, **kwargs)

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        if not parsing or (isinstance(self.template_spec, Mapping) and not self.application_file):
            _spark_application(self._specification())

    def _specification(self) -> dict[str, Any]:
        """Return the object to create.

        :raises InvalidInputError: the arguments hold no object.
        """
        try:
            return self.manage_template_specs()
        except (TypeError, AirflowException) as error:
            raise invalid(
                "application_file",
                self.application_file,
                f"not a SparkApplication ({str(error).strip()})",
                "Give the path of its YAML, the YAML itself, or template_spec.",
            ) from error

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        body = copy.deepcopy(self._specification())
        application = _spark_application(body)
        spec = application["spec"]
        store = {}
        if self.pass_endpoint:
            told = ZeroRenameHook(self.zero_rename_conn_id).endpoint_env()
            store = _variables(spec, "driver", _DRIVER, told)
            store |= _variables(spec, "executor", "spark.executorEnv.", told)
        theirs = spec.get("sparkConf") or {}
        spec["sparkConf"] = {**store, **settings, **theirs, f"{_DRIVER}{HANDOFF}": handed}
        if settings:
            # A second driver would append once more. _seen_job refuses any other policy.
            spec["restartPolicy"] = {"type": "Never"}
        if package:
            deps = spec["deps"] = dict(spec.get("deps") or {})
            url = package.replace("s3://", "s3a://", 1)
            files = deps.get("pyFiles") or list(
                filter(None, str(theirs.get(PY_FILES, "")).split(","))
            )
            deps["pyFiles"] = [*files, url]
        metadata = application["metadata"] = dict(application.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), _LABEL: mark.load}
        name = self.name or metadata.get("name") or self.task_id
        name = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "load"
        self.name = mark.after(name, _LONGEST_NAME, "-")
        self.random_name_suffix = False
        self.application_file, self.template_spec = None, body

    def _seen_job(self) -> ServiceJob:
        spec = _spark_application(self._specification())["spec"]
        restarts = (spec.get("restartPolicy") or {}).get("type") or "Never"
        refuse_repeats("spec.restartPolicy.type", restarts, restarts != "Never")
        said = {str(name): str(value) for name, value in (spec.get("sparkConf") or {}).items()}
        # The operator for Spark passes these settings to spark-submit after those of sparkConf.
        for name, value in (spec.get("hadoopConf") or {}).items():
            said[f"spark.hadoop.{name}"] = str(value)
        behind, unseen = self._config_maps(spec)
        mounts = (*objects_mounts(spec), *pods_mounts(said))
        return ServiceJob(said, behind, "", mounts, unseen)

    def _config_maps(self, spec: Mapping[str, Any]) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
        """Return the settings in the config maps of an object.

        :return: the settings; and sentences about config maps that could not be read.
        """
        layers: list[Layer] = []
        unseen: list[str] = []
        for member, file in (
            ("sparkConfigMap", "spark-defaults.conf"),
            ("hadoopConfigMap", "core-site.xml"),
        ):
            name = spec.get(member)
            if not name:
                continue
            try:
                found = self.client.read_namespaced_config_map(str(name), self.namespace)
            except ApiException as error:
                if error.status not in (401, 403, 404):
                    raise
                unseen.append(
                    f"The config map {name} ({member}) could not be read: {error.reason}."
                )
                continue
            text = (found.data or {}).get(file)
            if text:
                layers.append((f"the config map {name}, {file}", settings_of_file(file, text)))
        return tuple(layers), tuple(unseen)

    def _s3a_store(self, load: TableLoad) -> Mapping[str, Any]:
        return load.hook.s3a_store() if self.pass_endpoint else {}

    def _execute_parent(self, context: Context) -> Any:
        with self._without_sidecar():
            return super()._execute_parent(context)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        assert self._mark is not None, "known as soon as there is something to look for"
        found = self._objects().list_namespaced_custom_object(
            **self._kind(), label_selector=f"{_LABEL}={self._mark.load}"
        )["items"]
        found.sort(key=lambda it: it["metadata"].get("creationTimestamp", ""), reverse=True)
        for application in found:
            if _state(application)[0] not in _ENDED:
                yield application["metadata"]["name"], application["metadata"]["name"]

    def _wait_for(self, context: Context, job_id: str) -> None:
        driver = self._driver(job_id)
        if driver is None:
            return
        self.pod = self.pod_request_obj = driver
        with self._without_sidecar():
            KubernetesPodOperator.execute(self, context)

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """Defer with a trigger that deletes the application if the task is ended."""
        if method_name == self.completed_by:
            name = trigger.pod_name.removesuffix("-driver")
            trigger = CancellingApplicationTrigger.of(trigger, {**self._kind(), "name": name})
        super().defer(trigger=trigger, method_name=method_name, **more)

    def _driver(self, name: str) -> V1Pod | None:
        """Wait for the pod of an application's driver, and return it.

        :return: ``None``: the application has completed.
        :raises AirflowException: the application has failed, or was deleted.
        """
        while True:
            try:
                found = self._objects().get_namespaced_custom_object(**self._kind(), name=name)
            except ApiException as error:
                if error.status != 404:
                    raise
                raise AirflowException(f"Somebody has deleted the application {name}.") from error
            state, said = _state(found)
            if state == "COMPLETED":
                return None
            if state == "FAILED":
                raise AirflowException(f"The application {name} has failed: {said}")
            pod = found.get("status", {}).get("driverInfo", {}).get("podName")
            if pod:
                try:
                    return self.hook.get_pod(pod, self.namespace)
                except ApiException as error:
                    if error.status != 404:
                        raise
            self.log.info("The application %s has no driver yet: %s", name, state or "new")
            time.sleep(_PAUSE)

    def process_pod_deletion(self, pod: Any, *, reraise: bool = True) -> None:
        """Delete the application of a driver's pod.

        The base class does this, too, but it removes every ``-driver`` from the name and changes
        ``template_spec``.
        """
        if pod is not None and self.delete_on_termination:
            self._cancel(pod.metadata.name.removesuffix("-driver"))

    def _check_event(self, context: Context, event: dict[str, Any] | None) -> None:
        with self._without_sidecar():
            SparkKubernetesOperator.trigger_reentry(self, context, event or {})

    def _cancel(self, job_id: str) -> None:
        try:
            self._objects().delete_namespaced_custom_object(**self._kind(), name=job_id)
        except ApiException as error:
            if error.status != 404:
                raise

    def _objects(self) -> CustomObjectsApi:
        assert self.client is not None, "whose making configures all of Kubernetes' clients"
        return self.custom_obj_api

    def _kind(self) -> dict[str, str]:
        version = _spark_application(self._specification())["apiVersion"]
        group, _, version = version.partition("/")
        where = {"group": group, "version": version, "plural": "sparkapplications"}
        return {**where, "namespace": self.namespace}

    @contextmanager
    def _without_sidecar(self) -> Iterator[None]:
        """Keep the base class from waiting for an XCom of the pod; the task pushes its own."""
        pushes, self.do_xcom_push = self.do_xcom_push, False
        try:
            yield
        finally:
            self.do_xcom_push = pushes


def _spark_application(body: Any) -> dict[str, Any]:
    """Return the ``SparkApplication`` in the arguments' content.

    :raises InvalidInputError: there is no ``SparkApplication`` with an ``apiVersion`` and a
        ``spec``.
    """
    found = body.get("spark", body) if isinstance(body, Mapping) else None
    if (
        not isinstance(found, dict)
        or found.get("kind") != "SparkApplication"
        or not all(isinstance(found.get(name), kind) for name, kind in _MEMBERS.items())
    ):
        raise InvalidInputError(
            "template_spec (or application_file) is no SparkApplication with an apiVersion and a "
            "spec; nothing was submitted.",
            remedy="Give {'apiVersion': 'sparkoperator.k8s.io/v1beta2', 'kind': "
            "'SparkApplication', 'spec': {…}}; what runs it on a schedule is Airflow.",
        )
    return found


_MEMBERS = {"apiVersion": str, "spec": dict}


def _variables(
    spec: Mapping[str, Any], role: str, prefix: str, store: Mapping[str, str]
) -> dict[str, str]:
    """Return settings for variables of a role's pods, without those that the object itself sets.

    The object may set another endpoint of the same store.
    """
    from ..committer.store.client_settings import S3_CLIENT  # Lazy: it loads boto3.

    pod = spec.get(role) or {}
    named = {it.get("name") for it in pod.get("env") or ()}
    named |= {*(pod.get("envVars") or ()), *(pod.get("envSecretKeyRefs") or ())}
    conf = spec.get("sparkConf") or {}
    named |= {it.removeprefix(prefix) for it in conf if it.startswith(prefix)}
    if named & _ENDPOINTS:
        # The connection's endpoint of STS belongs to its store, not to the one of the object.
        named |= {*_ENDPOINTS, "AWS_ENDPOINT_URL_STS", S3_CLIENT}
    return {f"{prefix}{name}": value for name, value in store.items() if name not in named}


def _state(application: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of an application, and its error message."""
    found = application.get("status", {}).get("applicationState", {})
    return found.get("state", ""), found.get("errorMessage", "")
