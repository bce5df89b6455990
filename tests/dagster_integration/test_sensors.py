"""Commits that others made, told to Dagster."""

import datetime as dt
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.observe import observe
from dagster._core.storage.partition_status_cache import get_materialized_multipartitions
from dagster._core.test_utils import freeze_time

from dagster_zero_rename import ZeroRenameResource, heads_sensor, observable_table
from dagster_zero_rename.event_metadata import version_of
from dagster_zero_rename.watch import asset_reference
from dagster_zero_rename.watch.freshness import last_commit
from support.dagster_loads import DAYS, SCHEMA, Load, days, flights
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.records.inputs import content_of
from zero_rename.committer.store.requests import ListedObject
from zero_rename.orchestration.new_commits import OVERLAP, ListingCursor
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

SPEC = dg.AssetSpec("flights", partitions_def=DAYS, metadata={"partition_expr": "day"})


#: The layouts of tables that others write.
LAYOUTS = pytest.mark.parametrize("layout", ["directory", "delta"])


def opened(zero: ZeroRenameResource, layout: str = "directory") -> Any:
    table = zero.table("flights")
    return table if layout == "directory" else DeltaTable(table.root.url)


def commit(
    zero: ZeroRenameResource, *wanted: int, mode: str = "append", layout: str = "directory"
) -> str:
    """A job of somebody else's with rows of some days of January."""
    dates = [dt.date(2013, 1, day) for day in wanted]
    with opened(zero, layout).job(SCHEMA, partition_by=["day"], mode=mode) as job:
        job.write(pa.table({"day": dates, "number": list(wanted)}, SCHEMA))
    assert job.committed is not None
    return job.committed.job


class Ticks:
    """A sensor's ticks, whose events and cursors are kept as the daemon keeps them."""

    def __init__(
        self, sensor: dg.SensorDefinition, zero: ZeroRenameResource, instance: dg.DagsterInstance
    ) -> None:
        self.sensor, self.zero, self.instance = sensor, zero, instance
        self.cursor: str | None = None

    def __call__(self) -> Any:
        with dg.build_sensor_context(
            self.instance, cursor=self.cursor, resources={"zero_rename": self.zero}
        ) as context:
            found = self.sensor.evaluate_tick(context)
        self.cursor = found.cursor
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in found.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(
                request.partitions_def_name, request.partition_keys
            )
        return found


@pytest.fixture
def ticks(zero: ZeroRenameResource, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(heads_sensor(SPEC), zero, instance)


def content(zero: ZeroRenameResource, day: int) -> str:
    return content_of(zero.table("flights").files(f"day=2013-01-{day:02}"))


def versions(zero: ZeroRenameResource, job: str, *wanted: int) -> dict[str, tuple[str, str]]:
    """What is to be told of days of January: the job, and the content of what is there."""
    return {f"2013-01-{day:02}": (job, content(zero, day)) for day in wanted}


def told(found: Any) -> dict[str | None, tuple[str, str]]:
    """Job and data version of each event, by partition."""
    return {
        event.partition: (
            event.metadata["zero_rename/job"].value,
            event.tags["dagster/data_version"],
        )
        for event in found.asset_events
    }


def test_commits_of_others_are_told_once(ticks: Ticks, zero: ZeroRenameResource) -> None:
    assert ticks().skip_message
    first = commit(zero, 1, 2)
    assert told(ticks()) == versions(zero, first, 1, 2)
    assert ticks().skip_message
    second = commit(zero, 2, 3, mode="overwrite")
    found = ticks()
    assert told(found) == versions(zero, second, 2, 3)
    rows = {
        e.partition: e.metadata["dagster/partition_row_count"].value for e in found.asset_events
    }
    assert rows == {"2013-01-02": 1, "2013-01-03": 1}


def test_what_dagster_has_on_record_is_not_told_again(
    ticks: Ticks, load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    load.numbers = {"2013-01-01": [1], "2013-01-02": [2]}
    tags = days("2013-01-01", "2013-01-02")
    dg.materialize([flights], resources={"zero": zero}, instance=instance, tags=tags)
    job = commit(zero, 2)
    assert told(ticks()) == versions(zero, job, 2)


def test_a_tick_that_finds_nothing_lists_once(
    ticks: Ticks, zero: ZeroRenameResource, s3_bucket: Any
) -> None:
    commit(zero, *range(1, 6))
    s3_bucket.counter.reset()
    ticks()
    # The table's layout by two, the heads, and of the state that is told heads and index.
    assert s3_bucket.counter.counts()["ListObjects"] == 5
    s3_bucket.counter.reset()
    ticks()
    assert dict(s3_bucket.counter.counts()) == {"ListObjects": 1}


def test_a_large_backfill_is_told_in_several_ticks(
    ticks: Ticks, zero: ZeroRenameResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_zero_rename.watch.heads_sensor.LIMIT", 2)
    job = commit(zero, *range(1, 6))
    found = [told(ticks()) for _ in range(3)]
    assert [len(events) for events in found] == [2, 2, 1]
    everything = {day: by for events in found for day, by in events.items()}
    assert everything == versions(zero, job, *range(1, 6))
    assert ticks().skip_message


def test_partitions_without_a_key_are_left_out(ticks: Ticks, zero: ZeroRenameResource) -> None:
    with zero.table("flights").job(SCHEMA, partition_by=["day"]) as job:
        job.write(pa.table({"day": [dt.date(2020, 5, 5)], "number": [1]}, SCHEMA))
    assert ticks().asset_events == []
    assert ticks().skip_message


def at(day: int, hour: int) -> Any:
    """A clock of Dagster that stands still, in January."""
    return freeze_time(dt.datetime(2013, 1, day, hour, tzinfo=dt.UTC))


def jobs_told(found: Any) -> dict[str | None, str]:
    return {
        event.partition: event.metadata["zero_rename/job"].value for event in found.asset_events
    }


@LAYOUTS
def test_partition_whose_window_is_not_over_is_told_once_that_is(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, layout: str
) -> None:
    """Dagster has no key before; others load a day as it goes on, or by another time zone."""
    days_on_end = dg.DailyPartitionsDefinition(start_date="2013-01-01")
    spec = dg.AssetSpec("flights", partitions_def=days_on_end, metadata={"partition_expr": "day"})
    ticks = Ticks(heads_sensor(spec), zero, instance)
    with at(3, 20):
        commit(zero, 3, 4, layout=layout)
        other = commit(zero, 2, layout=layout)
        assert jobs_told(ticks()) == {"2013-01-02": other}
        third = commit(zero, 3, layout=layout)
        assert jobs_told(ticks()) == {}
    with at(4, 1):
        assert jobs_told(ticks()) == {"2013-01-03": third}
        fourth = commit(zero, 4, layout=layout)
        assert jobs_told(ticks()) == {}
    with at(5, 1):
        assert jobs_told(ticks()) == {"2013-01-04": fourth}
        assert ticks().skip_message


def test_month_that_goes_on_is_told_at_its_end_for_each_of_another_dimension(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    months = dg.MonthlyPartitionsDefinition(start_date="2013-01-01")
    of_both = dg.MultiPartitionsDefinition(
        {"month": months, "carrier": dg.StaticPartitionsDefinition(["AA", "UA"])}
    )
    spec = dg.AssetSpec(
        "flights",
        partitions_def=of_both,
        metadata={"partition_expr": {"month": "month=%Y-%m", "carrier": "carrier"}},
    )
    columns = pa.schema([("month", pa.string()), ("carrier", pa.string()), ("number", pa.int64())])
    ticks = Ticks(heads_sensor(spec), zero, instance)
    with at(3, 20):
        with zero.table("flights").job(columns, partition_by=["month", "carrier"]) as job:
            rows = {"month": ["2013-01"], "carrier": ["UA"], "number": [1]}
            job.write(pa.table(rows, columns))
        assert job.committed is not None
        assert ticks().asset_events == []
    with freeze_time(dt.datetime(2013, 2, 1, 1, tzinfo=dt.UTC)):
        assert jobs_told(ticks()) == {"UA|2013-01-01": job.committed.job}


@LAYOUTS
def test_partition_of_several_dimensions_has_the_tags_of_each(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, layout: str
) -> None:
    carriers = dg.StaticPartitionsDefinition(["AA", "UA"])
    of_both = dg.MultiPartitionsDefinition({"day": DAYS, "carrier": carriers})
    ticks = Ticks(heads_sensor(dg.AssetSpec("flights", partitions_def=of_both)), zero, instance)
    columns = SCHEMA.append(pa.field("carrier", pa.string()))
    with opened(zero, layout).job(columns, partition_by=["day", "carrier"]) as job:
        rows = {"day": [dt.date(2013, 1, 1)], "number": [1], "carrier": ["AA"]}
        job.write(pa.table(rows, columns))
    ticks()
    # Dagster's own way to list such partitions.
    [key] = get_materialized_multipartitions(instance, dg.AssetKey("flights"), of_both)
    assert key == "AA|2013-01-01"


def test_table_that_is_a_delta_table_since_is_told(
    ticks: Ticks, zero: ZeroRenameResource, s3_bucket: Any
) -> None:
    commit(zero, 1)
    assert len(ticks().asset_events) == 1
    client = s3_bucket.client
    for it in client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]:
        client.delete_object(Bucket=s3_bucket.name, Key=it["Key"])
    job = commit(zero, 1, 2, layout="delta")
    assert jobs_told(ticks()) == {"2013-01-01": job, "2013-01-02": job}
    assert ticks().skip_message
    later = commit(zero, 2, layout="delta")
    assert jobs_told(ticks()) == {"2013-01-02": later}


def test_table_of_coordination_none_is_refused(ticks: Ticks, zero: ZeroRenameResource) -> None:
    with zero.table("flights").job(SCHEMA, partition_by=["day"], coordination="none") as job:
        job.write(pa.table({"day": [dt.date(2013, 1, 1)], "number": [1]}, SCHEMA))
    with pytest.raises(InvalidInputError, match=r"coordination is none.*observable_table"):
        ticks()
    with pytest.raises(InvalidInputError, match="coordination is none"):
        last_commit(zero.table("flights"))


@LAYOUTS
def test_compaction_is_not_told_and_hides_no_load(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, layout: str
) -> None:
    ticks = Ticks(heads_sensor(SPEC), zero, instance)
    commit(zero, 1, 2, layout=layout)
    first = commit(zero, 1, layout=layout)
    ticks()
    second = commit(zero, 2, layout=layout)
    done = opened(zero, layout).compact(apply=True)
    assert [str(it.action) for it in done] == ["compacted", "compacted"]
    assert jobs_told(ticks()) == {"2013-01-02": second} != {"2013-01-01": first}


def test_an_asset_without_partitions_has_one_event_a_commit(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    ticks = Ticks(heads_sensor(dg.AssetSpec("flights")), zero, instance)
    # The last load brings the same rows: a commit is told, and its version says that.
    for days_loaded in ((1, 2), (3,), (3,)):
        job = commit(zero, *days_loaded, mode="overwrite")
        whole = version_of(zero.table("flights").snapshot())
        assert told(ticks()) == {None: (job, whole)}


def test_a_key_is_looked_up_once(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    paths = asset_reference.key_paths

    def counted(name: str, keys: Any, *of: Any, **words: Any) -> dict[str, str]:
        asked.append(len(keys))
        return paths(name, keys, *of, **words)

    monkeypatch.setattr(asset_reference, "key_paths", counted)
    ticks = Ticks(heads_sensor(SPEC), zero, instance)
    for day in (1, 2):
        job = commit(zero, day)
        assert told(ticks()) == versions(zero, job, day)
    assert asked == [31, 0]


def test_keys_of_dynamic_partitions_are_added(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    spec = dg.AssetSpec(
        "flights",
        partitions_def=dg.DynamicPartitionsDefinition(name="flown"),
        metadata={"partition_expr": "day"},
    )
    ticks = Ticks(heads_sensor(spec), zero, instance)
    job = commit(zero, 4)
    assert told(ticks()) == versions(zero, job, 4)
    assert instance.get_dynamic_partitions("flown") == ["2013-01-04"]


def listed(*heads: tuple[str, float]) -> list[ListedObject]:
    return [ListedObject(name, f"etag of {name}", 1, at) for name, at in heads]


def test_a_cursor_that_is_cut_off_goes_on_where_it_was() -> None:
    heads = listed(("c", 2.0), ("a", 1.0), ("b", 1.0))
    first = ListingCursor().unread(heads)
    assert [head.key for head in first] == ["a", "b", "c"]
    cursor = ListingCursor.decode(ListingCursor().after(first[:2], heads).encode())
    assert [head.key for head in cursor.unread(heads)] == ["c"]


def test_a_head_that_a_listing_shows_late_is_not_missed() -> None:
    heads = listed(("a", 1000.0))
    cursor = ListingCursor().after(heads, heads)
    late = listed(("b", 1000.0 - OVERLAP + 1))
    assert cursor.unread([*heads, *late]) == late


def test_a_cursor_forgets_what_is_old() -> None:
    old, new = listed(("a", 1.0)), listed(("b", 2.0 + OVERLAP))
    cursor = ListingCursor().after(old, old).after(new, [*old, *new])
    assert (cursor.at, len(cursor.seen)) == (2.0 + OVERLAP, 1)
    assert cursor.unread([*old, *new]) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "5", "no JSON", '{"at": "x"}', '{"seen": 5}'])
def test_a_cursor_that_cannot_be_read_is_the_beginning(text: str) -> None:
    assert ListingCursor.decode(text) == ListingCursor()


def observed(asset: Any, zero: ZeroRenameResource, instance: dg.DagsterInstance) -> dict[Any, str]:
    result = observe([asset], resources={"zero_rename": zero}, instance=instance)
    events = result.asset_observations_for_node(asset.op.name)
    return {event.partition: event.tags["dagster/data_version"] for event in events}


def test_versions_of_partitions_that_others_write(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    asset = observable_table("flights", partitions_def=DAYS, partition_expr="day")
    commit(zero, 1, 2)
    first = {f"2013-01-0{day}": content(zero, day) for day in (1, 2)}
    assert observed(asset, zero, instance) == first
    commit(zero, 1, 2, mode="overwrite")
    assert observed(asset, zero, instance) == first
    commit(zero, 2)
    second = {**first, "2013-01-02": content(zero, 2)}
    assert observed(asset, zero, instance) == second != first
    zero.table("flights").delete([("number", "==", 1)])
    assert observed(asset, zero, instance) == {**second, "2013-01-01": content_of(())}


def test_the_version_of_a_whole_table_changes_with_any_partition(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    asset = observable_table("their/flights", table="flights")
    commit(zero, 1, 2)
    [first] = observed(asset, zero, instance).values()
    assert observed(asset, zero, instance) == {None: first}
    commit(zero, 2)
    assert observed(asset, zero, instance) != {None: first}


def test_keys_that_share_a_partition_are_refused_as_such(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    hours = dg.HourlyPartitionsDefinition("2013-01-01-00:00", end_date="2013-01-02-00:00")
    spec = dg.AssetSpec("flights", partitions_def=hours, metadata={"partition_expr": "day"})
    commit(zero, 1)
    with pytest.raises(Exception, match=r"Error occurred|cannot be told") as raised:
        Ticks(heads_sensor(spec), zero, instance)()
    said = str(raised.value.__cause__ or raised.value)
    assert "change of that partition cannot be told from a change of another key" in said
