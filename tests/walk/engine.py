"""Another engine at work on a Delta table: what it writes is conditional, and tells no job."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from walk.delta_world import LOG, DeltaWorld
from walk.oracle import Row
from walk.world import ROOT, Process, value_of

from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.store import requests as s

#: Seconds for which it keeps entries.
_KEEPS = 24 * 3600.0
#: Seconds for which it keeps files.
_A_WEEK = 7 * 24 * 3600.0
_TYPES = {"int32": pa.int32(), "int64": pa.int64()}


def append(
    world: DeltaWorld, process: Process, job: str, partition: str, rows: Iterable[Row]
) -> None:
    """Add a file, by one entry; or none, where somebody else has written that one."""
    version = len(world.oracle.commits) - world.careless
    added = _file(world, process, job, partition, rows)
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
    _commit(world, process, job, info, [{"add": added}], version)


def append_over(
    world: DeltaWorld, process: Process, job: str, partition: str, rows: Iterable[Row]
) -> None:
    """Add a file by an entry in the place of the last one, without a condition."""
    world.careless = True
    try:
        append(world, process, job, partition, rows)
    finally:
        world.careless = False


def rewrite(
    world: DeltaWorld,
    process: Process,
    job: str,
    partition: str,
    rows: tuple[Row, ...],
    operation: str,
    says_partition: bool,
) -> None:
    """Write a partition's files again as one, unless some lie where it cannot read.

    :param says_partition: whether tombstones say theirs.
    """
    version = len(world.oracle.commits)
    paths = [path for path, it in world.oracle.live.items() if it == partition]
    if any("/fast/" in path for path in paths):
        return
    changes = operation == "DELETE"
    more: dict[str, Any] = {"partitionValues": _values(partition), "size": 1}
    removed = [
        {
            "path": path,
            "deletionTimestamp": int(world.clock.now * 1000),
            "dataChange": changes,
            **({"extendedFileMetadata": True, **more} if says_partition else {}),
        }
        for path in paths
    ]
    actions: list[dict[str, Any]] = [{"remove": it} for it in removed]
    if rows:
        added = _file(world, process, job, partition, rows)
        actions.append({"add": {**added, "dataChange": changes}})
    parameters = {"predicate": '["(id = 1)"]'} if changes else {}
    info = {"operation": operation, "operationParameters": parameters}
    _commit(world, process, job, info, actions, version)


def clean(world: DeltaWorld, process: Process) -> None:
    """Delete entries of more than a day that a checkpoint stands for."""
    names = [key.removeprefix(LOG) for key in world.objects(LOG)]
    checkpoints = [int(it[:20]) for it in names if it.endswith(".checkpoint.parquet")]
    if not checkpoints:
        return
    for name in names:
        key = f"{LOG}{name}"
        if name[:20].isdecimal() and int(name[:20]) < max(checkpoints):
            found = world.store.objects.get(key)
            if found is not None and found.last_modified < world.clock.now - _KEEPS:
                world.cleaned = True
                process.driver.perform(s.Delete(key))
                world.oracle.cleaned(int(name[:20]))


def vacuum(world: DeltaWorld, process: Process) -> None:
    """Delete the files of more than a week that no version of this week names.

    As Delta Lake's VACUUM does, it leaves alone what lies below a name with an underscore.
    """
    oracle, before = world.oracle, world.clock.now - _A_WEEK
    for key in world.objects(f"{ROOT.prefix}/"):
        path = key.removeprefix(f"{ROOT.prefix}/")
        if (found := world.store.objects.get(key)) is None:
            continue  # Another one was quicker.
        hidden = any(part[0] in "_." for part in path.split("/"))
        young = max(found.last_modified, oracle.gone.get(path, 0.0)) >= before
        if not (hidden or young or path in oracle.live):
            oracle.swept(path)
            process.driver.perform(s.Delete(key))


def _file(
    world: DeltaWorld, process: Process, job: str, partition: str, rows: Iterable[Row]
) -> dict[str, Any]:
    """Write a file; return what an entry says of it."""
    columns: dict[str, Any] = {"id": []}
    oracle, numbered = world.oracle, [(number, dict(had)) for number, had in rows]
    columns["id"] = pa.array([number for number, _ in numbered], pa.int64())
    for name, kind in (oracle.columns or {}).items():
        values = [value_of(it, name, had[name]) if name in had else None for it, had in numbered]
        columns[name] = pa.array(values, _TYPES[kind])
    body = io.BytesIO()
    pq.write_table(pa.table(columns), body)
    folder = "" if partition == UNPARTITIONED else f"{partition}/"
    path = f"{folder}{job}.parquet"
    process.driver.perform(s.PutFile(f"{ROOT.prefix}/{path}", body.getvalue()))
    return {
        "path": path,
        "partitionValues": _values(partition),
        "size": len(body.getvalue()),
        "modificationTime": int(world.clock.now * 1000),
        "dataChange": True,
        "stats": json.dumps({"numRecords": len(numbered)}),
    }


def _values(partition: str) -> dict[str, str]:
    return {} if partition == UNPARTITIONED else dict([partition.split("=")])


def _commit(
    world: DeltaWorld,
    process: Process,
    job: str,
    info: dict[str, Any],
    actions: list[dict[str, Any]],
    version: int,
) -> None:
    """Write the entry of a version, unless somebody else has; a careless engine does not look."""
    at = int(world.clock.now * 1000)
    said = {"timestamp": at, "engineInfo": "Apache-Spark/4.1", "txnId": job, **info}
    lines = [{"commitInfo": said}, *actions]
    body = "\n".join(map(json.dumps, lines)).encode()
    process.driver.perform(
        s.Put(f"{LOG}{version:020d}.json", body, if_none_match=not world.careless)
    )
