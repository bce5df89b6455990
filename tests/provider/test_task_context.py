"""The run and the partitions that a task's context tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.provider.assets.outlets import partition_key
from zero_rename.provider.task_context import resolve_partitions, task_run

DAY = "year=%Y/month=%-m/day=%-d"
START = {"data_interval_start": datetime(2013, 2, 1, tzinfo=UTC)}
KEYED = {"partition_key": "2013-02-03", "partition_date": datetime(2013, 2, 3, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("context", "partition", "partition_format", "expected"),
    [
        (START, "year=2013/month=1", DAY, ("year=2013/month=1",)),
        (START, "/year=2013/", None, ("year=2013",)),
        (START, ["a=1", "a=2", "a=1"], None, ("a=1", "a=2")),
        (START, "*", None, ()),
        (START | KEYED, "*", DAY, ()),
        (KEYED, None, DAY, ("year=2013/month=2/day=3",)),
        ({"partition_key": "region=eu/day=3"}, None, DAY, ("region=eu/day=3",)),
        (START, None, DAY, ("year=2013/month=2/day=1",)),
        (START | {"partition_key": None}, None, DAY, ("year=2013/month=2/day=1",)),
        (
            {"data_interval_start": pendulum.datetime(2013, 2, 1)},
            None,
            DAY,
            ("year=2013/month=2/day=1",),
        ),
    ],
)
def test_where_the_partition_comes_from(
    context: dict[str, Any], partition: Any, partition_format: str | None, expected: Any
) -> None:
    assert resolve_partitions(context, partition, partition_format) == expected


@pytest.mark.parametrize("partition", [None, partition_key(f"url={'a' * 300}")])
def test_partition_key_that_was_cut_is_no_partition(partition: str | None) -> None:
    """A load wrote another partition than the one whose event had started its run."""
    key = partition_key(f"url={'a' * 300}")
    with pytest.raises(InvalidInputError, match="was cut") as caught:
        resolve_partitions({"partition_key": key}, partition, None)
    assert "extra['partition']" in str(caught.value)
    whole = f"url={'a' * 246}"
    assert resolve_partitions({"partition_key": partition_key(whole)}, None, None) == (whole,)


def test_the_date_is_taken_in_the_time_zone_asked_for() -> None:
    context = {"data_interval_start": datetime(2013, 1, 31, 23, tzinfo=UTC)}
    assert resolve_partitions(context, None, DAY, "Europe/Berlin") == ("year=2013/month=2/day=1",)
    with pytest.raises(InvalidInputError, match="time zone 'Mars'"):
        resolve_partitions(context, None, DAY, "Mars")


def interval(first: datetime, logical: datetime, run_after: datetime) -> dict[str, Any]:
    return {
        "data_interval_start": first,
        "data_interval_end": first + timedelta(days=1),
        "logical_date": logical,
        "dag_run": SimpleNamespace(run_after=run_after),
    }


NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)
YESTERDAY = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    "logical",
    [datetime(2013, 2, 2, tzinfo=UTC), YESTERDAY - timedelta(seconds=1), NOW + timedelta(2)],
)
def test_a_logical_date_that_the_interval_is_not_about_is_refused(logical: datetime) -> None:
    """``airflow dags trigger --logical-date`` takes the last interval before now, whatever it is
    told."""
    with pytest.raises(InvalidInputError, match="is not about its logical date") as caught:
        resolve_partitions(interval(YESTERDAY, logical, NOW), None, DAY)
    assert "airflow backfill create" in str(caught.value)


@pytest.mark.parametrize(
    ("first", "logical", "run_after"),
    [
        # Scheduled, or of a backfill; by hand, now; dag.test() of a midnight; Friday's on a Sunday.
        (YESTERDAY, YESTERDAY, NOW),
        (YESTERDAY, NOW, NOW),
        (YESTERDAY, YESTERDAY + timedelta(days=1), YESTERDAY + timedelta(days=1)),
        (YESTERDAY - timedelta(days=2), NOW, NOW),
    ],
)
def test_other_logical_dates_are_left_alone(
    first: datetime, logical: datetime, run_after: datetime
) -> None:
    found = resolve_partitions(interval(first, logical, run_after), None, DAY)
    assert found == (first.strftime(DAY),)
    other = interval(first, datetime(2013, 2, 2, tzinfo=UTC), run_after)
    assert resolve_partitions(other, "year=2013", None) == ("year=2013",)


class TestRunOfDatasets:
    """Airflow 2.11 starts one run for all events that came since the one before. Its data interval
    goes from the first one's beginning to the last one's end."""

    def context(self, days: int, run_type: str = "dataset_triggered") -> dict[str, Any]:
        first = datetime(2013, 2, 1, tzinfo=UTC)
        dag_run = SimpleNamespace(run_type=run_type)
        end = first + timedelta(days=days)
        interval = {"data_interval_start": first, "data_interval_end": end}
        return {**interval, "logical_date": NOW, "dag_run": dag_run}

    def test_is_refused_if_its_events_are_of_several_partitions(self) -> None:
        """It loaded the first day, and no run ever loaded the others."""
        with pytest.raises(InvalidInputError, match=r"day=1 .* to year=2013/month=2/day=2 \(") as e:
            resolve_partitions(self.context(2), None, DAY)
        assert "extra['partition']" in str(e.value)
        assert resolve_partitions(self.context(2), "day=1", None) == ("day=1",)

    @pytest.mark.parametrize("days", [0, 1])
    def test_loads_the_partition_of_its_event(self, days: int) -> None:
        (found,) = resolve_partitions(self.context(days), None, DAY)
        assert found == "year=2013/month=2/day=1"

    def test_interval_of_a_schedule_may_have_several(self) -> None:
        (found,) = resolve_partitions(
            self.context(7, "scheduled") | {"logical_date": None}, None, DAY
        )
        assert found == "year=2013/month=2/day=1"


@pytest.mark.parametrize(
    ("context", "partition_format", "message"),
    [
        (START, None, "Nothing says"),
        ({}, DAY, "neither a partition key nor a data interval"),
        ({"data_interval_start": None}, DAY, "neither a partition key nor a data interval"),
        ({"partition_key": "eu"}, None, "'eu' is no partition path, and there is no"),
        ({"partition_key": "eu", "partition_date": None}, DAY, "and the run has no date"),
    ],
)
def test_where_nothing_says_it_the_error_says_what_to_give(
    context: dict[str, Any], partition_format: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        resolve_partitions(context, None, partition_format)
    for wanted in ("partition='year=", "partition_format=", "partition='*'"):
        assert wanted in str(caught.value)


def test_a_context_without_max_tries() -> None:
    ti = SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", try_number=2, map_index=None, max_tries=None
    )
    found = task_run({"ti": ti})
    assert (found.first_try, found.map_index, found.idempotency_key) == (1, -1, "d/r/t")
    assert found.series is None
