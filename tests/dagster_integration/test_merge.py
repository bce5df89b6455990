"""Assets whose rows are merged by key: what one run leaves, others leave, too."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource, zero_rename_asset
from support import dagster_loads
from support.dagster_loads import DAYS, days
from zero_rename import Table
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.handoff import Handoff

pytestmark = pytest.mark.memory_s3

DAY, NEXT = "2013-01-01", "2013-01-02"
FIELDS = [("day", pa.date32()), ("k", pa.int64()), ("v", pa.string()), ("at", pa.int64())]
SCHEMA = pa.schema(FIELDS)
RULE: dict[str, Any] = {"merge_on": ["k"], "delete_when": "op = 'D'", "latest_by": "at"}


def rows(*found: Sequence[Any]) -> pa.Table:
    """Of a day, a key, a value, when it came, and what becomes of it."""
    schema = SCHEMA.append(pa.field("op", pa.string()))
    columns = list(zip(*found, strict=True)) or [[] for _ in schema]
    columns = [[dt.date.fromisoformat(day) for day in columns[0]], *columns[1:]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


@pytest.fixture
def table(zero: ZeroRenameResource) -> Table:
    """With two rows in each of two days."""
    made = zero.table("orders")
    keys = ((DAY, 1), (DAY, 2), (NEXT, 11), (NEXT, 12))
    there = rows(*[(*key, "a", 1, "") for key in keys]).drop(["op"])
    with made.job(there.schema, partition_by=["day"]) as job:
        job.write(there)
    return made


def held(table: Table) -> list[tuple[str, int | None, str, int]]:
    found = table.to_arrow().to_pylist()
    texts = [(str(it["day"]), it["k"], it["v"], it["at"]) for it in found]
    return sorted(texts, key=lambda row: (row[0], row[1] is None, row[1]))


def asset_of(given: dict[str, pa.Table], **rule: Any) -> dg.AssetsDefinition:
    """Merges the rows of the days that a run asks for."""

    @zero_rename_asset(partitions_def=DAYS, partition_expr="day", mode="merge", **(RULE | rule))
    def orders(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        tables = [given[key] for key in context.partition_keys if key in given]
        return zero.write(context, pa.concat_tables(tables) if tables else rows())

    return orders


def told(result: Any) -> dict[str, dict[str, Any]]:
    """What the event of each partition says."""
    return {
        str(partition): {name.removeprefix("zero_rename/"): it for name, it in said.items()}
        for partition, said in dagster_loads.told(result).items()
    }


def test_rows_are_merged_and_the_event_says_what_became_of_them(
    zero: ZeroRenameResource, table: Table
) -> None:
    given = {
        DAY: rows((DAY, 1, "A", 2, "U"), (DAY, 2, "", 2, "D"), (DAY, 3, "n", 2, "I")),
        NEXT: rows((NEXT, 11, "a", 1, "U"), (NEXT, 12, "late", 0, "U")),
    }
    size = sum(file.size for file in table.files())
    run = dg.materialize([asset_of(given)], resources={"zero": zero}, tags=days(DAY, NEXT))
    after = [(DAY, 1, "A", 2), (DAY, 3, "n", 2), (NEXT, 11, "a", 1), (NEXT, 12, "a", 1)]
    assert held(table) == after
    events = told(run)
    counts = ("rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged", "version")
    assert [events[DAY][name] for name in counts] == [1, 1, 1, 0, 2]
    assert events[DAY]["dagster/partition_row_count"] == 2
    # What did not change is as it was, and nothing is said of its rows.
    assert "version" not in events[NEXT]
    assert "dagster/partition_row_count" not in events[NEXT]
    assert table.snapshot().versions["day=2013-01-02"] == 1
    for event in events.values():
        assert (event["partitions_replaced"], event["partitions_left"]) == (1, 1)
        assert event["rows_in_all_unchanged"] == 2
        assert event["bytes_read"] == size
        assert event["bytes_written"] == events[DAY]["bytes"]


def test_re_execution_and_backfill_leave_what_one_run_leaves(
    zero: ZeroRenameResource, table: Table, instance: dg.DagsterInstance
) -> None:
    """Also where a later run has changed the same rows."""
    given = {DAY: rows((DAY, 1, "first", 2, "U"), (DAY, 3, "n", 2, "I"))}
    resources = {"zero": zero}

    def run(rows_of: dict[str, pa.Table], **asked: Any) -> Any:
        made = asset_of(rows_of)
        return dg.materialize([made], resources=resources, instance=instance, **asked)

    first = run(given, partition_key=DAY)
    idempotency_key, before = held(table), table.snapshot().versions
    again = {"dagster/parent_run_id": first.run_id, "dagster/root_run_id": first.run_id}
    run(given, partition_key=DAY, tags=again)
    run(given, tags=days(DAY, "2013-01-04"))
    assert (held(table), table.snapshot().versions) == (idempotency_key, before)
    run({DAY: rows((DAY, 1, "later", 3, "U"))}, partition_key=DAY)
    after = held(table)
    run(given, partition_key=DAY)
    assert held(table) == after
    assert after == [(DAY, 1, "later", 3), *idempotency_key[1:]]


def test_a_step_that_is_retried_after_its_commit_reports_it(
    zero: ZeroRenameResource, table: Table
) -> None:
    calls: list[int] = []

    @zero_rename_asset(partitions_def=DAYS, partition_expr="day", mode="merge", merge_on=["k"])
    def orders(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        calls.append(1)
        # A null key is inserted each time that it is merged.
        done = zero.write(context, rows((DAY, None, "n", 1, "")).drop(["op"]))
        if len(calls) == 1:
            raise dg.RetryRequested(max_retries=1)
        return done

    run = dg.materialize([orders], resources={"zero": zero}, partition_key=DAY)
    assert len(calls) == 2
    assert [k for day, k, *_ in held(table) if day == DAY] == [1, 2, None]
    event = told(run)[DAY]
    assert (event["repeated"], event["rows_inserted"], event["rows_unchanged"]) == (True, 1, 2)


@pytest.mark.parametrize("across", [None, False, True])
def test_a_key_that_came_to_another_day_moves_with_across_partitions_alone(
    zero: ZeroRenameResource, table: Table, across: bool | None
) -> None:
    given = {NEXT: rows((NEXT, 1, "moved", 2, "U"))}
    made = asset_of(given, across_partitions=across)
    run = dg.materialize([made], resources={"zero": zero}, tags=days(DAY, NEXT))
    here = [] if across else [(DAY, 1, "a", 1)]
    there = [(NEXT, 1, "moved", 2), (NEXT, 11, "a", 1), (NEXT, 12, "a", 1)]
    assert held(table) == [*here, (DAY, 2, "a", 1), *there]
    assert told(run)[NEXT]["rows_inserted"] == (0 if across else 1)


def test_a_key_that_would_come_from_a_day_that_the_run_may_not_write_is_refused(
    zero: ZeroRenameResource, table: Table
) -> None:
    before = held(table)
    made = asset_of({NEXT: rows((NEXT, 1, "moved", 2, "U"))}, across_partitions=True)
    with pytest.raises(dg.Failure, match="replaces day=2013-01-01, and may write day=2013-01-02"):
        dg.materialize([made], resources={"zero": zero}, partition_key=NEXT)
    assert held(table) == before


def test_the_io_manager_moves_rows_where_the_asset_says_so(
    zero: ZeroRenameResource, table: Table
) -> None:
    words = {"partition_expr": "day", "mode": "merge", **RULE, "across_partitions": True}

    @dg.asset(partitions_def=DAYS, metadata=words, backfill_policy=dg.BackfillPolicy.single_run())
    def orders() -> pa.Table:
        return rows((NEXT, 1, "moved", 5, "U"))

    manager = ZeroRenameIOManager(table_root=zero.table_root)
    dg.materialize([orders], resources={"io_manager": manager}, tags=days(DAY, NEXT))
    assert [row for row in held(table) if row[1] == 1] == [(NEXT, 1, "moved", 5)]


def test_the_io_manager_takes_the_words_of_the_asset(
    zero: ZeroRenameResource, table: Table
) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": "merge", **RULE})
    def orders() -> pa.Table:
        return rows((DAY, 2, "", 5, "D"), (DAY, 1, "A", 5, "U"))

    manager = ZeroRenameIOManager(table_root=zero.table_root)
    run = dg.materialize([orders], resources={"io_manager": manager}, partition_key=DAY)
    assert held(table)[0] == (DAY, 1, "A", 5)
    assert len(held(table)) == 3
    assert told(run)[DAY]["rows_deleted"] == 1


@pytest.mark.parametrize("across", [False, True])
def test_an_application_that_is_submitted_is_told(
    zero: ZeroRenameResource, table: Table, across: bool
) -> None:
    said: list[Handoff] = []
    words = {"partition_expr": "day", "mode": "merge", **RULE, "across_partitions": across}

    @dg.asset(partitions_def=DAYS, metadata=words)
    def orders(context: dg.AssetExecutionContext) -> None:
        said.append(Handoff.decode(zero.spark_env(context)))

    dg.materialize([orders], partition_key=DAY)
    assert (said[0].mode, said[0].merge_on) == ("merge", ("k",))
    assert (said[0].delete_when, said[0].latest_by) == ("op = 'D'", "at")
    assert said[0].across_partitions is (across or None)
    zero = ZeroRenameResource(table_root=zero.table_root, committer="magic")
    with pytest.raises(dg.Failure, match="committer='magic'"):
        dg.materialize([orders], partition_key=DAY)


def test_rows_of_other_partitions_are_refused(zero: ZeroRenameResource, table: Table) -> None:
    before = held(table)
    given = {DAY: rows((NEXT, 11, "A", 5, "U"))}
    with pytest.raises(dg.Failure, match="may write day=2013-01-01 only"):
        dg.materialize([asset_of(given)], resources={"zero": zero}, partition_key=DAY)
    assert held(table) == before


def test_a_table_that_a_merge_makes_and_a_run_without_rows(zero: ZeroRenameResource) -> None:
    given = {DAY: rows((DAY, 1, "a", 1, ""))}
    for key in (DAY, NEXT):
        made = asset_of({key: given[key]} if key in given else {})
        assert dg.materialize([made], resources={"zero": zero}, partition_key=key).success
    assert held(zero.table("orders")) == [(DAY, 1, "a", 1)]
    assert zero.table("orders").partition_by == ("day",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "merge"}, "merge_on names no column"),
        ({"merge_on": ["k"]}, "mode is not merge"),
        ({"mode": "append", "latest_by": "at"}, "latest_by is given, and mode is not merge"),
        ({"across_partitions": True}, "across_partitions is given, and mode is not merge"),
        (
            {**RULE, "mode": "merge", "across_partitions": "x"},
            "across_partitions='x': neither true nor false",
        ),
    ],
)
def test_what_cannot_be_right_breaks_the_definitions(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        zero_rename_asset(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delete_when": "op = 'D' or op = 'X'"}, "delete_when .* is no comparison"),
        ({"delete_when": pc.field("nope") == 1}, "nope"),
        ({"merge_on": ["nope"]}, "'nope' is no column"),
        ({"base": "state"}, "A merge is given a base"),
    ],
)
def test_what_cannot_be_right_changes_nothing(
    zero: ZeroRenameResource, table: Table, given: dict[str, Any], message: str
) -> None:
    before = held(table)
    words: dict[str, Any] = {**RULE, **given} | (
        {"base": table.snapshot()} if "base" in given else {}
    )

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def orders(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, rows((DAY, 1, "A", 5, "U")), mode="merge", **words)

    with pytest.raises(dg.Failure, match=message):
        dg.materialize([orders], resources={"zero": zero}, partition_key=DAY)
    assert held(table) == before
