"""Sensor that reports commits of any program to Dagster."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._core.definitions.partitions.utils.multi import get_tags_from_multi_partition_key

from zero_rename.committer.commit.state.job_state import Committed
from zero_rename.committer.errors import InvalidInputError, TableNotFoundError, first_few
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.records.head import HeadState, partition_of_slot_key
from zero_rename.committer.format.records.inputs import content_of
from zero_rename.committer.format.schema.hive_paths import parse_partition, unescape
from zero_rename.committer.scan.partition_state import LastCommit
from zero_rename.committer.table import Table
from zero_rename.orchestration.new_commits import ListingCursor
from zero_rename.orchestration.partitions_query import refuse_without_heads
from zero_rename.tables import DeltaTable, LastChange, Since
from zero_rename.tables.table_at import opened_as_it_is

from ..asset_step import AssetTable
from ..event_metadata import JOB, commit_metadata, partition_metadata, table_metadata, version_of
from .asset_reference import RESOURCE, AssetLike, AssetReference
from .heads import OBSERVE, is_hadoops, last_commits, list_heads, read_heads

#: The most heads that one tick reads; the next tick reads the rest.
LIMIT = 200


def heads_sensor(
    asset: AssetLike,
    *,
    table: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
    name: str | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    resource_key: str = RESOURCE,
) -> dg.SensorDefinition:
    """Make a sensor that reports changes of a table's partitions as materialisations of its asset.

    So assets that depend on it see what Airflow, Spark or a person loaded. Commits that Dagster has
    on record are not reported again, nor are compactions, which bring no rows.

    A tick lists the heads once and reads those that moved; of several changes between two ticks it
    reports the last one. Of a Delta table it reads the entries of the log since the last tick,
    written by any engine. A partition without a key is left out; if its time window is not over
    yet, it is reported once that is over. If the asset has dynamic partitions, the key is added. At
    a destination of Hadoop's committers and in a table of coordination *none*, which have no heads,
    a tick fails.

    :param asset: a definition, which may be an ``AssetSpec`` for a table that Dagster never writes;
        or a key.
    :param table: the table's name, if it is neither in the asset's metadata nor the asset's key.
    :param partitions_def: the asset's, if only its key is given.
    :param name: the sensor's; ``None`` derives it from the asset's key.
    :param minimum_interval_seconds: between two ticks.
    :param default_status: whether the sensor runs before a user turns it on.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    """
    reference = AssetReference.of(asset, table, partitions_def)

    @dg.sensor(
        name=name or f"{reference.identifier}_heads",
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description=f"Reports commits to {reference.name}, by any process.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        resource, cursor = getattr(context.resources, resource_key), context.cursor or ""
        # A cursor of heads shows a table of directories, so only the first tick asks the store.
        of_heads = cursor.startswith("{")
        target = reference.table(resource) if of_heads else reference.read_table(resource)
        try:
            if isinstance(target, DeltaTable):
                return _tick_by_log(reference, target, context)
            return _tick(reference, target, context)
        except TableNotFoundError:
            return dg.SkipReason(f"There is no table at {target.root.url} yet.")

    return sensor


def _tick(
    reference: AssetReference, table: Table, context: dg.SensorEvaluationContext
) -> dg.SensorResult | dg.SkipReason:
    cursor = ListingCursor.decode(context.cursor)
    heads = table.run(list_heads(table.root)).objects
    if not heads:
        if isinstance(now := opened_as_it_is(table), DeltaTable):
            # The table that the cursor is about was deleted, and is a Delta table since.
            return _tick_by_log(reference, now, context)
        refuse_without_heads(table, "reported", OBSERVE)
        _refuse_hadoops(table)
    unread = cursor.unread(heads)
    names = {it.key: str(partition_of_slot_key(table.root, it.key)) for it in unread}
    known = reference.keys(table, context.instance) if unread else {}
    to_come = _to_come(reference, table, names.values(), known, context.instance)
    waiting = [it for it in unread if names[it.key] in to_come]
    unread = [it for it in unread if names[it.key] not in to_come][:LIMIT]
    if not unread:
        return dg.SkipReason(f"Nothing has changed {table.root.url}.")
    states = {it.slot.name: it for it in table.run(read_heads(table.root, unread))}
    moved = [name for name, it in states.items() if it.head.last_job]
    keys, added = _keys(reference, moved, known)
    last = last_commits(table, [states[name] for name in moved if name in keys])
    # One event for each key and job: an asset without partitions may have a partitioned table.
    new = {
        (keys[name], it.job): (states[name], it)
        for name in moved
        if (it := last.get(name)) is not None
        and reference.told(context.instance, keys[name]) != it.job
    }
    jobs = {job: table.result(str(job)) for _, job in new}
    common = table_metadata(table.root, table.schema) if new else {}
    versions = _versions(table, {it.slot.name: key for (key, _), (it, _) in new.items()})
    return dg.SensorResult(
        asset_events=[
            dg.AssetMaterialization(
                reference.key,
                partition=key,
                metadata={**common, **_metadata(table.root, state, commit, key, jobs[job])},
                tags=_tags(key, versions[state.slot.name]),
            )
            for (key, job), (state, commit) in new.items()
        ],
        dynamic_partitions_requests=added,
        cursor=cursor.after(unread, heads, waiting).encode(),
    )


def _refuse_hadoops(table: Table) -> None:
    """Refuse a table without heads if Hadoop's committers write it.

    :raises InvalidInputError: they do.
    """
    if is_hadoops(table):
        raise InvalidInputError(
            "Hadoop's committers write here, and leave no heads by which this sensor could see "
            "what they have loaded. Nothing was told.",
            table=table.root.url,
            remedy="Observe it by observable_table(…), whose versions are made of its files; or "
            "let SparkPipesClient load the asset, which tells Dagster by itself.",
        )


def _to_come(
    reference: AssetReference,
    table: AssetTable,
    names: Collection[str],
    known: Mapping[str, str],
    instance: dg.DagsterInstance,
) -> Collection[str]:
    """Return those of some partitions that will get a key later: they are reported then."""
    if all(name in known for name in names):
        return ()
    return reference.partitions_to_come(table, instance) & {*names}


def _tick_by_log(
    reference: AssetReference, table: DeltaTable, context: dg.SensorEvaluationContext
) -> dg.SensorResult | dg.SkipReason:
    """Report the partitions that entries of a Delta table's log have changed since the last tick.
    The cursor has the version up to which the log was read, and the partitions that wait for their
    keys."""
    seen, waiting = _log_cursor(context.cursor or "")
    newest = table.newest_entry(seen or 0)
    if newest is None and seen is not None:
        seen, newest = None, table.newest_entry()  # The table was deleted and created again.
    if newest is None:
        return dg.SkipReason(f"There is no table at {table.root.url} yet.")
    is_new = newest.version != seen
    with_keys = reference.keys(table, context.instance) if is_new or waiting else {}
    due = [name for name in waiting if name in with_keys]
    if not is_new and not due:
        return dg.SkipReason(f"Nothing has changed {table.root.url}.")
    held = table.state().by_partition().keys()
    state, changes = table.last_changes({*with_keys, *held}, Since(seen))
    # The first tick has read the newest entries alone.
    older = {*due}.union(held - changes.of.keys() if seen is None else ())
    late = table.last_changes(older, Since(version=-1))[1].of if older else {}
    found = {**late, **changes.of}
    cleaned = sorted(older - found.keys())
    if cleaned:
        context.log.warning(
            "%s: the entries that changed %s were cleaned from the log, so it is not known which "
            "jobs they were, and they are not reported.",
            *(table.root.url, first_few(cleaned)),
        )
    moved = _next_changes(found)
    to_come = _to_come(reference, table, [*moved], with_keys, context.instance)
    keys, added = _keys(reference, [it for it in moved if it not in to_come], with_keys)
    # As for heads, one event for each key and entry.
    new = {
        (keys[name], it.version): (name, it)
        for name, it in moved.items()
        if name in keys
        and (not it.done.job or reference.told(context.instance, keys[name]) != it.done.job)
    }
    common = table_metadata(table.root, state.schema) if new else {}
    versions = _versions(table, {name: key for (key, _), (name, _) in new.items()})
    told = max((-1 if seen is None else seen, *(it.version for it in moved.values())))
    told = told if len(moved) < len(found) else state.log_version or 0
    return dg.SensorResult(
        asset_events=[
            dg.AssetMaterialization(
                reference.key,
                partition=key,
                metadata={**common, **_of_entry(table.root, name, key, it)},
                tags=_tags(key, versions[name]),
            )
            for (key, _), (name, it) in new.items()
        ],
        dynamic_partitions_requests=added,
        cursor=_encoded(told, {*waiting} - {*moved, *cleaned} | {*to_come}),
    )


def _log_cursor(text: str) -> tuple[int | None, Sequence[str]]:
    """Read from a cursor the version of the last tick, and the partitions that had no key then."""
    try:
        found = json.loads(text)
    except ValueError:
        return None, ()
    version, waiting = found if isinstance(found, list) else (found, ())
    return (version, waiting) if isinstance(version, int) else (None, ())


def _encoded(version: int, waiting: Collection[str]) -> str:
    return json.dumps([version, sorted(waiting)] if waiting else version)


def _next_changes(changes: Mapping[str, LastChange]) -> dict[str, LastChange]:
    """Return the changes that one tick reports: the oldest ones, and of an entry all or none."""
    found: dict[str, LastChange] = {}
    for name, it in sorted(changes.items(), key=lambda pair: pair[1].version):
        if len(found) >= LIMIT and it.version != [*found.values()][-1].version:
            break
        found[name] = it
    return found


def _of_entry(root: TableRoot, name: str, key: str | None, it: LastChange) -> dict[str, Any]:
    """Return the metadata of a partition that an entry has changed. An entry of another engine has
    no job."""
    metadata = commit_metadata(root, it.done)
    if not it.done.job:
        del metadata[JOB]
    for partition in it.done.partitions if key is not None or name == UNPARTITIONED else ():
        if partition.partition == name:
            metadata |= partition_metadata(root, partition, replaced=False)
    return metadata


def _keys(
    reference: AssetReference, names: Sequence[str], known: Mapping[str, str]
) -> tuple[dict[str, str | None], list[Any]]:
    """Return the keys of partitions, and requests to add the keys that the asset lacks.

    :param known: the keys that it has, by partition.
    """
    if reference.partitions_def is None:
        return dict.fromkeys(names), []
    if not isinstance(reference.partitions_def, dg.DynamicPartitionsDefinition):
        return {**known}, []
    new = {name: _dynamic_key(name) for name in names if name not in known}
    add = reference.partitions_def.build_add_request(sorted(new.values())) if new else None
    return {**known, **new}, [add] if add else []


def _dynamic_key(partition: str) -> str:
    """Return a partition's key: the value of a single column, or the path of several columns."""
    parts = parse_partition(partition)
    return unescape(parts[0][1]) if len(parts) == 1 else partition


def _versions(table: AssetTable, told: Mapping[str, str | None]) -> dict[str, str]:
    """Return the data version for each event, by its partition. If the asset has no partitions, it
    is the version of the whole table.

    :param told: keys by partition.
    """
    named = [name for name, key in told.items() if key is not None]
    files = table.state(named).by_partition() if named else {}
    found = {name: content_of(files.get(name, ())) for name in named}
    if len(named) < len(told):
        whole = version_of(table.state())
        found |= {name: whole for name, key in told.items() if key is None}
    return found


def _tags(key: str | None, version: str) -> dict[str, str]:
    """Return the tags of an event: the data version, and the key of each dimension if there are
    several: Dagster lists the partitions by these."""
    own = isinstance(key, dg.MultiPartitionKey)
    return {DATA_VERSION_TAG: version, **(get_tags_from_multi_partition_key(key) if own else {})}


def _metadata(
    root: TableRoot,
    state: HeadState,
    last: LastCommit,
    key: str | None,
    committed: Committed | None,
) -> dict[str, Any]:
    if committed is None:
        return {}
    metadata = commit_metadata(root, committed)
    # If the asset has no partitions but the table has several, the version and rows of one of them
    # would say nothing about the asset.
    is_whole = key is not None or state.slot.name == UNPARTITIONED
    for partition in committed.partitions if is_whole else ():
        if partition.partition == state.slot.name:
            replaced = state.head.replace_version == last.version
            metadata |= partition_metadata(root, partition, replaced=replaced)
    return metadata
