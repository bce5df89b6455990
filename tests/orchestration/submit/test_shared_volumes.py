"""Folders that all pods of an application mount from one volume."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.orchestration.submit.shared_volumes import objects_mounts, pods_mounts

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "staging"}}
MOUNT = {"name": "v", "mountPath": "/mnt"}


def spec(
    volume: dict[str, Any] = CLAIM,
    driver: dict[str, Any] = MOUNT,
    executor: dict[str, Any] | None = MOUNT,
) -> dict[str, Any]:
    executors = {} if executor is None else {"volumeMounts": [executor]}
    return {"volumes": [volume], "driver": {"volumeMounts": [driver]}, "executor": executors}


@pytest.mark.parametrize(
    ("object_", "shared"),
    [
        (spec(), ("/mnt",)),
        (spec({"name": "v", "nfs": {"server": "s", "path": "/"}}), ("/mnt",)),
        (spec({"name": "v", "emptyDir": {}}), ()),
        (spec({"name": "v", "hostPath": {"path": "/mnt"}}), ()),
        (spec(executor=None), ()),
        (spec(executor={"name": "v", "mountPath": "/other"}), ()),
        (spec(executor={**MOUNT, "readOnly": True}), ()),
        (spec(executor={**MOUNT, "subPath": "mine"}), ()),
        (spec(driver={"name": "unknown", "mountPath": "/mnt"}), ()),
        ({}, ()),
        ({"volumes": None, "driver": None, "executor": None}, ()),
    ],
)
def test_volumes_of_an_object(object_: dict[str, Any], shared: tuple[str, ...]) -> None:
    assert objects_mounts(object_) == shared


def volumes(kind: str, executor: bool = True, **options: str) -> dict[str, str]:
    roles = ("driver", "executor") if executor else ("driver",)
    members = {"mount.path": "/mnt"} | {f"options.{name}": it for name, it in options.items()}
    return {
        f"spark.kubernetes.{role}.volumes.{kind}.v.{member}": value
        for role in roles
        for member, value in members.items()
    }


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        (volumes("persistentVolumeClaim", claimName="staging"), ("/mnt",)),
        (volumes("nfs", server="s", path="/"), ("/mnt",)),
        (volumes("persistentVolumeClaim", claimName="OnDemand"), ()),
        (volumes("emptyDir"), ()),
        (volumes("hostPath", path="/mnt"), ()),
        (volumes("nfs", executor=False), ()),
        (
            volumes("persistentVolumeClaim", claimName="a")
            | {"spark.kubernetes.executor.volumes.persistentVolumeClaim.v.options.claimName": "b"},
            (),
        ),
        (volumes("nfs") | {"spark.kubernetes.executor.volumes.nfs.v.mount.readOnly": "true"}, ()),
    ],
)
def test_volumes_of_settings(settings: dict[str, str], shared: tuple[str, ...]) -> None:
    assert pods_mounts(settings) == shared
