"""The kubernetes provider's trigger, with an application that is deleted when a user ends the
deferred task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger  # pyright: ignore
from kubernetes_asyncio import client  # pyright: ignore

_KEEP = "keep_pod"


class CancellingApplicationTrigger(KubernetesPodTrigger):
    """Waits for the pod of a driver, and deletes its ``SparkApplication`` with the task.

    The provider's own deletes the pod. The operator for Spark starts another one then where
    ``restartPolicy`` says so, and the application stays.

    :param application: ``group``, ``version``, ``namespace``, ``plural`` and ``name``.
    """

    def __init__(self, *, application: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.application = dict(application)

    @classmethod
    def of(
        cls, trigger: KubernetesPodTrigger, application: Mapping[str, str]
    ) -> CancellingApplicationTrigger:
        """Return a trigger that waits as another one does."""
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
