"""Events of a load's outlet assets: what was written, a partition each where that is wanted."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow.providers.common.compat.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowRuntimeError

from ..committer.layout import UNPARTITIONED

_log = logging.getLogger(__name__)
#: Characters of a partition key: Airflow's column is no wider (``airflow.models.base.ID_LEN``).
_LONGEST = 250
_OF_PARTITION = ("partition", "epoch", "rows", "files", "bytes")


def default_outlets(table: Any) -> list[AssetAlias]:
    """The outlets of a load that names none: an alias, which becomes the asset at the table's
    address when the load has committed.

    Not that asset itself: a second one at an address that another DAG names otherwise would be
    inactive, and tasks with inactive outlets fail.

    :param table: the operator's argument; none for a template, which is not known in time.
    """
    if not isinstance(table, str) or not table or "{{" in table:
        return []
    name = re.sub(r"^s3[an]://", "s3://", table.strip()).strip("/")
    return [AssetAlias(f"zero_rename:{name}")]


def tell_outlets(
    outlets: Iterable[Any], events: Any, report: Mapping[str, Any], by_partition: bool
) -> None:
    """Put a report into the events of a task's outlet assets.

    :param events: ``outlet_events`` of the task's context.
    :param report: :func:`.reports.commit_report`.
    :param by_partition: an event for each partition, under its key and with its own numbers;
        else one with the totals.
    """
    extras = {p["partition"]: _extra(report, p) for p in report["partitions"]}
    totals = _extra(report, report)
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            event = events[outlet]
            asset = _asset_at(report["table"], event)
            for extra in extras.values() if by_partition and extras else (totals,):
                event.add(asset, extra=extra)
        elif isinstance(outlet, Asset | AssetRef):
            event = events[outlet]
            event.extra = totals
            keyed = {partition_key(n): e for n, e in extras.items() if n != UNPARTITIONED}
            if by_partition and keyed:
                event.add_partitions(list(keyed))
                event.partition_keys = _ExtraByKey(event, keyed)


def partition_key(partition: str) -> str:
    """A partition as a key of Airflow's: its path, or where that is too long its beginning, a
    hyphen and 16 digits of its SHA-256. The event's ``partition`` is whole in any case."""
    if len(partition) <= _LONGEST:
        return partition
    digest = hashlib.sha256(partition.encode()).hexdigest()[:16]
    return f"{partition[: _LONGEST - 17]}-{digest}"


class _ExtraByKey(set[str]):
    """Partition keys of an event. Airflow sends the event's one ``extra`` along with each
    (``airflow.sdk.execution_time.task_runner._serialize_outlet_events``), and takes another one
    for each: so the event has that of the key that is being sent."""

    def __init__(self, event: Any, extras: Mapping[str, dict[str, Any]]) -> None:
        super().__init__({*event.partition_keys, *extras})
        self._event = event
        self._extras = extras

    def __iter__(self) -> Iterator[str]:
        totals = self._event.extra
        for key in sorted(super().__iter__()):
            self._event.extra = self._extras.get(key, totals)
            yield key
        self._event.extra = totals


def _extra(report: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: numbers[name] for name in _OF_PARTITION if name in numbers}
    if numbers.get("partition") is None:
        named = {name: value for name, value in named.items() if name not in _OF_PARTITION[:2]}
    return {"job": report["job"], "table": report["table"], **named}


def _asset_at(url: str, event: Any) -> Any:
    """The asset that is known at a table's address, whatever its name; else one named so."""
    known = Asset.ref(uri=url)
    try:
        event._resolve_asset_ref(known)
    except (AirflowRuntimeError, ImportError, AttributeError) as error:
        _log.debug("No asset is known at %s: %s", url, error)
        return Asset(url)
    return known
