"""Trigger of the kubernetes provider that also deletes the application.

It does so when a user ends the deferred task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from kubernetes_asyncio import client

_KEEP = "keep_pod"


class CancellingApplicationTrigger(KubernetesPodTrigger):
    """Trigger that waits for a driver's pod; if the task is ended, it deletes the application.

    The provider's own trigger deletes the pod. Then the Kubernetes operator for Spark starts
    another pod if ``restartPolicy`` says so, and the ``SparkApplication`` stays.

    :param application: ``group``, ``version``, ``namespace``, ``plural`` and ``name``.
    """

    def __init__(self, *, application: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application = dict(application)

    @classmethod
    def of(
        cls, trigger: KubernetesPodTrigger, application: Mapping[str, str]
    ) -> CancellingApplicationTrigger:
        """Return a trigger of this class with the arguments of another one."""
        _, given = trigger.serialize()
        return cls(application=application, **given)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of this class, and its arguments."""
        _, given = super().serialize()
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {**given, "application": self.application}

    async def on_kill(self) -> None:
        """Delete the application, and its pods with it. Airflow calls this from 3.3 on."""
        if self._fired_event or self.on_kill_action.value == _KEEP:
            return
        self.log.info("Deleting the application %s", self.application["name"])
        try:
            async with self.hook.get_conn() as connection:
                objects = client.CustomObjectsApi(connection)
                await objects.delete_namespaced_custom_object(**self.application)
        except Exception as error:
            if getattr(error, "status", None) == 404:
                return
            self.log.warning("The application could not be deleted, but its pod: %s", error)
            await super().on_kill()
