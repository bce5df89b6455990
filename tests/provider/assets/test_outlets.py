"""What the outlets of a load are told, in Airflow's own accessors, without a database."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from zero_rename.provider.assets.outlets import (
    MOST_EVENTS,
    asset_uri,
    default_outlets,
    partition_key,
    tell_outlets,
)

URL = "s3://lake/wh/flights"
ASSET = Asset("flights", uri=URL)


def report(*partitions: str, **changes: Any) -> dict[str, Any]:
    entries = [
        {"partition": name, "version": n, "rows": n, "files": 1, "bytes": 10 * n, "removed": 0}
        for n, name in enumerate(partitions, 1)
    ]
    totals = {name: sum(entry[name] for entry in entries) for name in ("rows", "files", "bytes")}
    only = entries[0] if len(entries) == 1 else {"partition": None, "version": None}
    named = {"partition": only["partition"], "version": only["version"]}
    return {"job": "zr1-x", "table": URL, **totals, "partitions": entries, **named, **changes}


def told(
    outlet: Any, said: dict[str, Any], by_partition: bool | None = None, run_key: str | None = None
) -> list[dict[str, Any]]:
    """The events that Airflow is sent, without those of outlets that the task does not have."""
    task: Any = SimpleNamespace(outlets=[outlet], asset_partitions=by_partition)
    events = OutletEventAccessors()
    tell_outlets(task, {"outlet_events": events, "partition_key": run_key}, said)
    sent: list[Any] = list(_serialize_outlet_events(events))
    mine = {it.uri for it in task.outlets if isinstance(it, Asset)}
    kept = [e for e in sent if "source_alias_name" in e or e["dest_asset_key"]["uri"] in mine]
    return sorted(kept, key=lambda event: event.get("partition_key") or "")


def keys(sent: list[dict[str, Any]]) -> list[str | None]:
    return [event.get("partition_key") for event in sent]


@pytest.mark.parametrize(("by_partition", "run_key"), [(False, None), (None, "2013-02-01")])
def test_one_event_carries_the_totals(by_partition: bool | None, run_key: str | None) -> None:
    (event,) = told(ASSET, report("day=1", "day=2"), by_partition, run_key)
    assert "partition_key" not in event
    totals = {"job": "zr1-x", "table": URL, "rows": 3, "files": 2, "bytes": 30}
    assert event["extra"] == totals | {"partitions": 2}


@pytest.mark.parametrize("by_partition", [None, True])
def test_an_event_for_each_partition_carries_its_own(by_partition: bool | None) -> None:
    load, *events = told(ASSET, report("day=1", "day=2"), by_partition)
    assert keys(events) == ["day=1", "day=2"]
    assert [event["extra"]["version"] for event in events] == [1, 2]
    assert [event["extra"]["bytes"] for event in events] == [10, 20]
    assert not any("partitions" in event["extra"] for event in events)
    assert (load.get("partition_key"), load["extra"]["rows"]) == (None, 3)
    assert load["extra"]["partitions"] == 2


def test_a_run_with_a_key_has_no_event_without_one() -> None:
    """Airflow would give it the run's key."""
    events = told(ASSET, report("day=1", "day=2"), True, "2013-02-01")
    assert keys(events) == ["day=1", "day=2"]


def test_an_unpartitioned_table_has_no_key() -> None:
    (event,) = told(ASSET, report("_unpartitioned"))
    assert "partition_key" not in event
    assert event["extra"]["version"] == 1


def test_a_key_that_is_too_long_for_airflow() -> None:
    """Airflow takes 250 characters, and refused after the commit."""
    long = [f"name={'a' * 300}{n}" for n in range(2)]
    _, *events = told(ASSET, report(*long))
    assert [len(key or "") for key in keys(events)] == [250, 250]
    assert set(keys(events)) == {partition_key(name) for name in long}
    assert len(set(keys(events))) == 2
    assert {event["extra"]["partition"] for event in events} == set(long)
    assert partition_key("day=1") == "day=1"


def test_more_partitions_than_a_task_can_tell(caplog: pytest.LogCaptureFixture) -> None:
    (event,) = told(ASSET, report(*(f"day={n}" for n in range(MOST_EVENTS + 1))))
    assert event["extra"]["partitions"] == MOST_EVENTS + 1
    assert "the load is one event" in caplog.text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (URL, URL),
        ("s3://lake/wh/a_b-c.d~e=f,g", "s3://lake/wh/a_b-c.d~e=f,g"),
        ("s3://lake/wh/flüge", "s3://lake/wh/fl%C3%BCge"),
        ("s3://lake/wh/x#y", "s3://lake/wh/x%23y"),
        ("s3://lake/wh/x?y", "s3://lake/wh/x%3Fy"),
        ("s3://lake/wh/a b%20", "s3://lake/wh/a%20b%2520"),
    ],
)
def test_the_uri_of_a_table_is_quoted_as_uris_are(url: str, expected: str) -> None:
    """And it is what Airflow makes of it."""
    assert asset_uri(url) == expected
    assert Asset(asset_uri(url)).uri == expected


def test_a_uri_of_more_characters_than_airflow_takes_ends_with_its_digest() -> None:
    urls = [f"s3://lake/{'ü' * 400}{n}" for n in range(2)]
    assert [len(Asset(asset_uri(url)).uri) for url in urls] == [1500, 1500]
    assert len({asset_uri(url) for url in urls}) == 2
    (alias,) = default_outlets(urls[0])
    assert (len(alias.name), alias.name.isascii()) == (1500, True)


class TestAnAlias:
    @pytest.fixture
    def known(self, monkeypatch: pytest.MonkeyPatch) -> list[Asset]:
        """The assets that Airflow has."""
        assets: list[Asset] = []

        def found(name: str | None = None, uri: str | None = None) -> Asset:
            for asset in assets:
                if uri == asset.uri:
                    return asset
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.ASSET_NOT_FOUND, detail={}))

        mixin = "airflow.sdk.execution_time.context._AssetRefResolutionMixin"
        monkeypatch.setattr(f"{mixin}._get_asset_from_db", staticmethod(found))
        monkeypatch.setattr(f"{mixin}._asset_ref_cache", {})
        return assets

    def test_of_a_table_that_is_no_asset_yet(
        self, known: list[Asset], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        (event,) = told(AssetAlias("flights"), report("day=1", "day=2"))
        assert event["dest_asset_key"]["uri"] == URL
        assert event["extra"]["rows"] == 3
        # Airflow's own client says so as an error.
        assert "'Asset not found', that is what was asked here: nothing is wrong" in caplog.text

    def test_of_a_load_makes_no_asset(
        self, known: list[Asset], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Loads that ended at once made it each, by which Airflow failed them after the commit."""
        caplog.set_level("INFO")
        (outlet,) = default_outlets("flights")
        assert told(outlet, report("day=1", "day=2")) == []
        assert f"No DAG knows an asset at {URL}" in caplog.text

    def test_of_a_load_is_the_asset_that_is_known(self, known: list[Asset]) -> None:
        """Loads that ended at once tied the asset to the alias each, by which Airflow failed them;
        and what came through the alias was twice among a DAG's events."""
        known.append(ASSET)
        (outlet,) = default_outlets("flights")
        load, *events = told(outlet, report("day=1", "day=2"))
        assert not any("source_alias_name" in it for it in (load, *events))
        assert (load.get("partition_key"), load["extra"]["rows"]) == (None, 3)
        assert keys(events) == ["day=1", "day=2"]
        assert {e["dest_asset_key"]["name"] for e in (load, *events)} == {"flights"}
        (load,) = told(outlet, report("day=1"), False)
        assert (load.get("partition_key"), load["extra"]["partition"]) == (None, "day=1")
        assert keys(told(outlet, report("day=1"), True, "2013-02-01")) == ["day=1"]

    def test_of_a_load_where_airflow_does_not_answer(
        self, known: list[Asset], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The event is not lost."""
        silent = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={}))

        def fail(name: str | None = None, uri: str | None = None) -> Asset:
            raise silent

        mixin = "airflow.sdk.execution_time.context._AssetRefResolutionMixin"
        monkeypatch.setattr(f"{mixin}._get_asset_from_db", staticmethod(fail))
        (outlet,) = default_outlets("flights")
        (event,) = told(outlet, report("day=1"))
        assert (event["source_alias_name"], event["extra"]["rows"]) == (outlet.name, 1)

    @pytest.mark.parametrize("name", ["flüge", "flights#2"])
    def test_of_a_table_whose_name_a_uri_does_not_hold(self, known: list[Asset], name: str) -> None:
        """The events of flights#2 were those of the asset of flights."""
        known.append(ASSET)
        said = report("day=1", table=f"s3://lake/wh/{name}")
        (event,) = told(AssetAlias("a"), said)
        assert event["dest_asset_key"]["uri"] == asset_uri(said["table"])
        assert event["extra"]["table"] == said["table"]

    def test_of_an_asset_that_is_known(self, known: list[Asset]) -> None:
        """Whose name is the user's; an alias's own events have no keys."""
        known.append(ASSET)
        load, *events = told(AssetAlias("flights"), report("day=1", "day=2"))
        assert load["source_alias_name"] == "flights"
        assert load["extra"]["rows"] == 3
        assert keys(events) == ["day=1", "day=2"]
        assert {e["dest_asset_key"]["name"] for e in (load, *events)} == {"flights"}

    def test_of_a_run_with_a_key(self, known: list[Asset]) -> None:
        known.append(ASSET)
        (load,) = told(AssetAlias("flights"), report("day=1"), None, "2013-02-01")
        assert load["extra"]["partition"] == "day=1"
        assert keys(told(AssetAlias("flights"), report("day=1"), True, "2013-02-01")) == ["day=1"]


def test_the_outlet_of_a_task_that_names_none() -> None:
    (alias,) = default_outlets("flights")
    assert alias == AssetAlias("zero_rename:flights")
    assert default_outlets("s3a://lake/wh/flights/") == default_outlets(URL)
    assert default_outlets("{{ params.table }}") == []
    (quoted,) = default_outlets("flüge#2")
    assert quoted == AssetAlias("zero_rename:fl%C3%BCge%232")
