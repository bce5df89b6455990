"""Folders that the driver's pod and all executors' pods mount from the same volume."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SETTING = re.compile(r"spark\.kubernetes\.(driver|executor)\.volumes\.(\w+)\.([^.]+)\.(.+)")
#: Kinds of volumes that belong to one pod or to its machine.
_OWN = {"emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected", "ephemeral"}
#: Name of claims that Spark makes for each pod separately.
_PER_POD = "OnDemand"


def pods_mounts(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the shared folders in Spark's settings of volumes."""
    found: dict[str, dict[str, tuple[str, str]]] = {"driver": {}, "executor": {}}
    members: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, value in settings.items():
        if said := _SETTING.fullmatch(name):
            members.setdefault((said[1], said[2], said[3]), {})[said[4]] = value
    for (role, kind, _), known in members.items():
        path, options = known.pop("mount.path", ""), dict(known)
        claim = options.get("options.claimName", "")
        if path and kind not in _OWN and not claim.startswith(_PER_POD):
            options.pop("mount.readOnly", None)
            if known.get("mount.readOnly") != "true":
                found[role][path] = kind, repr(sorted(options.items()))
    return _common(found["driver"], found["executor"])


def objects_mounts(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shared folders in the volumes of a SparkApplication.

    :param spec: of the application.
    """
    shared = {
        str(volume.get("name"))
        for volume in spec.get("volumes") or ()
        if isinstance(volume, Mapping) and not _OWN & volume.keys()
    }
    driver, executor = (_mounts(spec.get(role), shared) for role in ("driver", "executor"))
    return _common(driver, executor)


def _mounts(pod: Any, shared: set[str]) -> dict[str, tuple[str, str]]:
    mounts = (pod or {}).get("volumeMounts") or () if isinstance(pod, Mapping) else ()
    return {
        str(it.get("mountPath")): (str(it.get("name")), str(it.get("subPath", "")))
        for it in mounts
        if it.get("name") in shared and not it.get("readOnly")
    }


def _common(
    driver: Mapping[str, tuple[str, str]], executor: Mapping[str, tuple[str, str]]
) -> tuple[str, ...]:
    return tuple(sorted(path for path, it in driver.items() if executor.get(path) == it))
