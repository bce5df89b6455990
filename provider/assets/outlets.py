"""Events of a load's outlet assets, for the load or for each partition."""

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
#: The most characters of a partition key: the width of Airflow's column
#: (``airflow.models.base.ID_LEN``).
_LONGEST = 250
#: End of a key that was cut.
_CUT = re.compile(r"-[0-9a-f]{16}", re.ASCII)
#: The most events of one load: Airflow records them one by one in the request that ends the task.
MOST_EVENTS = 1000
#: The most characters of an asset's URI, and of an alias's name
#: (``airflow.sdk.definitions.asset``, _validate_identifier).
_LONGEST_URI = 1500
#: Characters that need no encoding in a URI's path (RFC 3986, pchar, and the slash).
_PLAIN = "/:@!$&'()*+,;=~"
#: Prefix of the name of a load's own alias.
_OF_TABLE = "zero_rename:"
_NOT_KNOWN = (
    "No DAG knows an asset at %s. Where one is to start after loads, let its schedule name that "
    "asset. Where a log says 'Asset not found', that is what was asked here: nothing is wrong"
)
_OF_PARTITION = ("partition", "version", "rows", "files", "bytes")


class UnsaidOutlets(list[Any]):
    """Marker of outlets that a load was not given: the default of an operator's argument.

    With this default, a mapped task has the marker, too. Without it, Airflow would take the outlets
    of a mapped task for given (``airflow.sdk.bases.operator``, _get_operator_defaults).
    """


def default_outlets(table: Any) -> list[AssetAlias]:
    """Return the outlets of a load that names none: an alias.

    The alias stands for the asset that a DAG defines at the table's address, under any name. It is
    not an asset itself: if another DAG has an asset at this address under another name, a second
    asset would be inactive, and tasks with inactive outlets fail.

    :param table: the operator's argument.
    :return: empty for a template, whose value is known too late. Empty on Airflow 2.11, too: its
        ``dag.test()`` fails after a task that makes the first event of a dataset through an alias.
    """
    if not (AIRFLOW_V_3_0_PLUS and isinstance(table, str)) or not table or is_template(table):
        return []
    name = re.sub(f"^{SCHEME}", "s3://", table.strip()).strip("/")
    return [AssetAlias(_fitting(f"{_OF_TABLE}{quote(name, safe=_PLAIN)}"))]


def asset_uri(url: str) -> str:
    """Return the URI of a table's asset: its root, encoded as a URI.

    A plain name stays as it is. Characters that a URI must not contain are percent-encoded in
    UTF-8: ``s3://lake/wh/flüge`` is ``s3://lake/wh/fl%C3%BCge``. Airflow stores ASCII on some
    databases, and does not count the text after a ``#`` or a ``?`` as part of the address.

    :param url: the table's root, ``s3://bucket/prefix``.
    """
    scheme, _, path = url.partition("://")
    return _fitting(f"{scheme}://{quote(path, safe=_PLAIN)}")


def _fitting(text: str) -> str:
    """Shorten a text to :data:`_LONGEST_URI` characters; a shortened text ends with its digest."""
    return text if len(text) <= _LONGEST_URI else _digested(text, _LONGEST_URI)


def _digested(text: str, longest: int) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: longest - 17]}-{digest}"


class _Task(Protocol):
    """Attributes of an operator that this module uses."""

    outlets: Any
    asset_partitions: bool | None


def tell_outlets(task: _Task, context: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    """Put a report into the events of a task's outlet assets.

    With ``asset_partitions=True`` each partition has an event under its key, with its own numbers.
    One more event, without a key, is about the whole load, so that DAGs without partitions start
    too. It is left out in a run that has a partition key, since Airflow would give it that key.

    With ``asset_partitions=None`` a run without a key has both kinds of events. A run with a key
    has one event under that key, as with other operators.

    :param context: of the task; the events are added to its ``outlet_events``.
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
                # An alias's event would make the asset, or connect it with the alias. If several
                # loads end at once, such as the first days of a table, Airflow fails all but one of
                # them, after their commits and without a retry: airflow.assets.manager writes
                # these rows without regard to other processes.
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
    """Put a load into an asset's event, and its partitions into events with keys."""
    event.extra = totals
    if extras:
        _add_keyed(event, extras, with_load)


def _by_key(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the ``extra`` of each partition's event, by partition key.

    :return: empty for an unpartitioned table, and for more than :data:`MOST_EVENTS` partitions.
    """
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
    """Return Airflow's partition key of a partition.

    It is the path. A path that is too long is cut, and ends with a hyphen and 16 digits of its
    SHA-256. The event's ``partition`` always has the whole path.
    """
    return partition if len(partition) <= _LONGEST else _digested(partition, _LONGEST)


def is_cut_key(key: str) -> bool:
    """Return whether :func:`partition_key` has cut a path, so that the key is no partition."""
    return len(key) == _LONGEST and _CUT.fullmatch(key[-17:]) is not None


class _ExtraByKey(set[str]):
    """Partition keys of an event, each with its own ``extra``.

    Airflow iterates over the keys, and sends the event's only ``extra`` with each of them
    (``airflow.sdk.execution_time.task_runner._serialize_outlet_events``); its server accepts a
    different one for each. So the iteration sets the event's ``extra`` to that of the current key.

    :param with_load: send one more event last, without a key and with the event's own ``extra``.
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
            # This event comes last: it queues the DAGs without partitions, and their run takes the
            # events up to its time (airflow.jobs.scheduler_job_runner,
            # _create_dag_runs_asset_triggered).
            yield None


def _extra(report: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``extra`` of an event about a partition or about the whole load.

    :param numbers: the partition's entry in the report, or the report itself for the load. An entry
        may name its own job, if several jobs made the report.
    """
    told = {name: numbers[name] for name in _OF_PARTITION if numbers.get(name) is not None}
    if numbers is report:
        told["partitions"] = len(report["partitions"])
    return {"job": numbers.get("job", report["job"]), "table": report["table"], **told}


def _is_among(outlets: Any, asset: Asset) -> bool:
    named = [(it.name, it.uri) for it in outlets if isinstance(it, Asset)]
    return (asset.name, asset.uri) in named


def _known_asset(url: str, event: Any) -> tuple[Asset | None, bool]:
    """Return the asset that Airflow has at a table's address, with any name.

    :return: the asset, or ``None``; and whether this is certain: Airflow may not answer, or offer
        no way to ask.
    """
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
        # There is no other way to ask, and Airflow's client logs the answer as an error.
        _log.info(_NOT_KNOWN, url)
        return None, True
    return Asset(name=key.name, uri=key.uri), True
