"""What the outlets of a load are told, in Airflow's own accessors, without a database."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from zero_rename.provider.outlets import default_outlets, partition_key, tell_outlets

URL = "s3://lake/wh/flights"
ASSET = Asset("flights", uri=URL)


def report(*partitions: str, **changes: Any) -> dict[str, Any]:
    entries = [
        {"partition": name, "epoch": n, "rows": n, "files": 1, "bytes": 10 * n, "removed": 0}
        for n, name in enumerate(partitions, 1)
    ]
    totals = {name: sum(entry[name] for entry in entries) for name in ("rows", "files", "bytes")}
    only = entries[0] if len(entries) == 1 else {"partition": None, "epoch": None}
    named = {"partition": only["partition"], "epoch": only["epoch"]}
    return {"job": "zr1-x", "table": URL, **totals, "partitions": entries, **named, **changes}


def told(outlet: Any, said: dict[str, Any], by_partition: bool = True) -> list[dict[str, Any]]:
    events = OutletEventAccessors()
    tell_outlets([outlet], events, said, by_partition)
    return sorted(_serialize_outlet_events(events), key=lambda event: event["extra"]["rows"])


def test_one_event_carries_the_totals() -> None:
    (event,) = told(ASSET, report("day=1", "day=2"), by_partition=False)
    assert "partition_key" not in event
    assert event["extra"] == {"job": "zr1-x", "table": URL, "rows": 3, "files": 2, "bytes": 30}


def test_an_event_for_each_partition_carries_its_own() -> None:
    events = told(ASSET, report("day=1", "day=2"))
    assert [event["partition_key"] for event in events] == ["day=1", "day=2"]
    assert [event["extra"]["epoch"] for event in events] == [1, 2]
    assert [event["extra"]["bytes"] for event in events] == [10, 20]


def test_an_unpartitioned_table_has_no_key() -> None:
    (event,) = told(ASSET, report("_unpartitioned"))
    assert "partition_key" not in event
    assert event["extra"]["epoch"] == 1


def test_a_key_that_is_too_long_for_airflow() -> None:
    """Airflow takes 250 characters, and refused after the commit."""
    long = [f"name={'a' * 300}{n}" for n in range(2)]
    events = told(ASSET, report(*long))
    keys = [event["partition_key"] for event in events]
    assert [len(key) for key in keys] == [250, 250]
    assert keys == [partition_key(name) for name in long]
    assert len(set(keys)) == 2
    assert [event["extra"]["partition"] for event in events] == long
    assert partition_key("day=1") == "day=1"


class TestAnAlias:
    def test_of_a_table_that_is_no_asset_yet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*_: Any, **__: Any) -> Any:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.ASSET_NOT_FOUND, detail={}))

        monkeypatch.setattr(OutletEventAccessors, "_get_asset_from_db", staticmethod(unknown))
        monkeypatch.setattr(
            "airflow.sdk.execution_time.context._AssetRefResolutionMixin._get_asset_from_db",
            staticmethod(unknown),
        )
        events = told(AssetAlias("flights"), report("day=1", "day=2"))
        assert [event["dest_asset_key"]["uri"] for event in events] == [URL, URL]
        assert [event["extra"]["partition"] for event in events] == ["day=1", "day=2"]
        (event,) = told(AssetAlias("flights"), report("day=1", "day=2"), by_partition=False)
        assert event["extra"]["rows"] == 3


def test_the_outlet_of_a_task_that_names_none() -> None:
    (alias,) = default_outlets("flights")
    assert alias == AssetAlias("zero_rename:flights")
    assert default_outlets("s3a://lake/wh/flights/") == default_outlets(URL)
    assert default_outlets("{{ params.table }}") == []
