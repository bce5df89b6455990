"""Events of a load's outlet assets: what was written, a partition each where that is wanted."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from ...committer.format.layout import UNPARTITIONED
from ...committer.store.s3_urls import SCHEME
from ...orchestration.templates import is_template
from ..compat import AIRFLOW_V_3_0_PLUS, AirflowRuntimeError, AssetRef

_log = logging.getLogger(__name__)
#: Characters of a partition key: Airflow's column is no wider (``airflow.models.base.ID_LEN``).
_LONGEST = 250
#: Events of one load: Airflow records them one by one in the request that ends the task.
MOST_EVENTS = 1000
#: Characters of an asset's URI, and of an alias's name
#: (``airflow.sdk.definitions.asset``, _validate_identifier).
_LONGEST_URI = 1500
#: Characters that stand in a URI's path as they are (RFC 3986, pchar, and the slash).
_PLAIN = "/:@!$&'()*+,;=~"
#: What the name of a load's own alias begins with.
_OF_TABLE = "zero_rename:"
_NOT_KNOWN = (
    "No DAG knows an asset at %s. Where one is to start after loads, let its schedule name that "
    "asset. Where a log says 'Asset not found', that is what was asked here: nothing is wrong"
)
_OF_PARTITION = ("partition", "version", "rows", "files", "bytes")


class UnsaidOutlets(list[Any]):
    """Outlets that a load was not given. As the default of an operator's own argument a mapped task
    has them, too, whose outlets Airflow takes for given otherwise
    (``airflow.sdk.bases.operator``, _get_operator_defaults)."""


def default_outlets(table: Any) -> list[AssetAlias]:
    """The outlets of a load that names none: an alias, which stands for the asset that a DAG
    defines at the table's address, under whatever name.

    Not an asset: a second one at an address that another DAG names otherwise would be inactive, and
    tasks with inactive outlets fail. None on Airflow 2.11, whose ``dag.test()`` fails after a task
    that tells a dataset through an alias for the first time.

    :param table: the operator's argument; none for a template, which is not known in time.
    """
    if not (AIRFLOW_V_3_0_PLUS and isinstance(table, str)) or not table or is_template(table):
        return []
    name = re.sub(f"^{SCHEME}", "s3://", table.strip()).strip("/")
    return [AssetAlias(_fitting(f"{_OF_TABLE}{quote(name, safe=_PLAIN)}"))]


def asset_uri(url: str) -> str:
    """Return the URI of a table's asset: its root, quoted as URIs are.

    A plain name stays as it is. Anything else that a URI does not hold is percent-encoded in UTF-8:
    ``s3://lake/wh/flüge`` is ``s3://lake/wh/fl%C3%BCge``. Airflow stores ASCII on some databases,
    and takes what follows a ``#`` or a ``?`` for no part of the address.

    :param url: the table's root, ``s3://bucket/prefix``.
    """
    scheme, _, path = url.partition("://")
    return _fitting(f"{scheme}://{quote(path, safe=_PLAIN)}")


def _fitting(text: str) -> str:
    """A text of at most :data:`_LONGEST_URI` characters; a longer one ends with its digest."""
    return text if len(text) <= _LONGEST_URI else _digested(text, _LONGEST_URI)


def _digested(text: str, longest: int) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: longest - 17]}-{digest}"


class _Task(Protocol):
    """What of an operator this module knows."""

    outlets: Any
    asset_partitions: bool | None


def tell_outlets(task: _Task, context: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Put a report into the events of a task's outlet assets.

    With ``asset_partitions`` each partition is an event under its key, with its own numbers. So
    that DAGs without partitions start too, the load as a whole is one more event, without a key:
    not in a run that has a partition key, which Airflow would give to it. Left open, a run without
    a key has both, and one with a key tells the load under that key alone, as other operators do.

    :param context: the task's; its ``outlet_events`` are added to.
    :param report: :func:`.reports.commit_report`.
    """
    events, run_key = context["outlet_events"], context.get("partition_key")
    by_partition = not run_key if task.asset_partitions is None else task.asset_partitions
    extras = _by_key(report) if by_partition else {}
    totals = _extra(report, report)
    for outlet in list(task.outlets or ()):
        if isinstance(outlet, AssetAlias):
            asset, is_sure = _known_asset(asset_uri(report["table"]), events[outlet])
            is_listed = asset is not None and _is_among(task.outlets, asset)
            if is_sure and outlet.name.startswith(_OF_TABLE):
                # An alias's event would make the asset, or tie it to the alias. Of loads that end
                # at once, as the first days of a table, Airflow fails all but one for that, after
                # their commits and without a retry: airflow.assets.manager writes both with no
                # regard to others.
                if asset is not None and not is_listed:
                    task.outlets = [*task.outlets, asset]
                    _tell(events[asset], totals, extras, with_load=not run_key)
                continue
            if asset is not None and extras and not is_listed and _takes_keys(events[outlet]):
                # An alias's events have no keys (airflow.models.taskinstance,
                # register_asset_changes_in_db), so the asset itself is an outlet of this run.
                task.outlets = [*task.outlets, asset]
                _add_keyed(events[asset], extras, with_load=False)
            if asset is None or not (extras and run_key):
                events[outlet].add(asset or Asset(asset_uri(report["table"])), extra=totals)
        elif isinstance(outlet, Asset | AssetRef):
            _tell(events[outlet], totals, extras, with_load=not run_key)


def _tell(
    event: Any, totals: dict[str, Any], extras: Mapping[str, dict[str, Any]], with_load: bool
) -> None:
    """Tell an asset of a load."""
    event.extra = totals
    if extras:
        _add_keyed(event, extras, with_load)


def _by_key(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """An ``extra`` for each partition's key; none for an unpartitioned table, and none for more
    partitions than Airflow can be told while the task ends."""
    partitions = [p for p in report["partitions"] if p["partition"] != UNPARTITIONED]
    if len(partitions) > MOST_EVENTS:
        _log.warning(
            "%s partitions are more than %s: the load is one event, without keys.",
            len(partitions),
            MOST_EVENTS,
        )
        return {}
    return {partition_key(p["partition"]): _extra(report, p) for p in partitions}


def _takes_keys(event: Any) -> bool:
    return hasattr(event, "add_partitions")  # From Airflow 3.3 on.


def _add_keyed(event: Any, extras: Mapping[str, dict[str, Any]], with_load: bool) -> None:
    if not _takes_keys(event):
        return
    event.add_partitions(list(extras))
    event.partition_keys = _ExtraByKey(event, extras, with_load)


def partition_key(partition: str) -> str:
    """A partition as a key of Airflow's: its path, or where that is too long its beginning, a
    hyphen and 16 digits of its SHA-256. The event's ``partition`` is whole in any case."""
    return partition if len(partition) <= _LONGEST else _digested(partition, _LONGEST)


class _ExtraByKey(set[str]):
    """Partition keys of an event. Airflow sends the event's one ``extra`` along with each
    (``airflow.sdk.execution_time.task_runner._serialize_outlet_events``), and takes another one
    for each: so the event has that of the key that is being sent.

    :param with_load: one more event, without a key, has the event's own ``extra``.
    """

    def __init__(self, event: Any, extras: Mapping[str, dict[str, Any]], with_load: bool) -> None:
        super().__init__({*event.partition_keys, *extras})
        self._event = event
        self._extras = extras
        self._with_load = with_load

    def __iter__(self) -> Iterator[Any]:
        before = self._event.extra
        for key in sorted(super().__iter__()):
            self._event.extra = self._extras.get(key, before)
            yield key
        self._event.extra = before
        if self._with_load:
            # Last: a DAG without partitions is queued at its time, and its run takes the events
            # until then (airflow.jobs.scheduler_job_runner, _create_dag_runs_asset_triggered).
            yield None


def _extra(report: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says of a partition or, with the report itself as ``numbers``, of the load."""
    told = {name: numbers[name] for name in _OF_PARTITION if numbers.get(name) is not None}
    if numbers is report:
        told["partitions"] = len(report["partitions"])
    return {"job": report["job"], "table": report["table"], **told}


def _is_among(outlets: Any, asset: Asset) -> bool:
    named = [(it.name, it.uri) for it in outlets if isinstance(it, Asset)]
    return (asset.name, asset.uri) in named


def _known_asset(url: str, event: Any) -> tuple[Asset | None, bool]:
    """The asset that Airflow has at a table's address, whatever its name, and whether that is
    sure: Airflow may not answer, or offer no way to ask."""
    try:
        key, _ = event._resolve_asset_ref(Asset.ref(uri=url))
    except (ImportError, AttributeError) as error:
        _log.debug("No asset is known at %s: %s", url, error)
        return None, False
    except AirflowRuntimeError as error:
        _log.debug("%s", error)
        if error.error.error.value != "ASSET_NOT_FOUND":
            _log.info("Airflow did not say which asset is at %s.", url)
            return None, False
        # Airflow's client knows no other way to ask, and logs its answer as an error of the worker.
        _log.info(_NOT_KNOWN, url)
        return None, True
    return Asset(name=key.name, uri=key.uri), True
