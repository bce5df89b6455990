"""Statistics of a Delta file, and the text of its partition."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zero_rename.committer.errors import UnsupportedTypeError
from zero_rename.layouts.delta.partition_text import PartitionValue, partition_text, written_text
from zero_rename.layouts.delta.statistics import statistics_of


def statistics(values: list[Any], kind: pa.DataType, **options: Any) -> dict[str, Any]:
    out = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array(values, kind)}), out, **options)
    text = statistics_of(pq.read_metadata(io.BytesIO(out.getvalue())))
    return json.loads(text, parse_float=Decimal)


def test_decimal_keeps_every_digit() -> None:
    value = Decimal("12345678901234567890.123456789")
    found = statistics([value, None], pa.decimal128(38, 9))
    assert found["maxValues"]["c"] == value
    assert found["nullCount"] == {"c": 1}
    assert found["numRecords"] == 2


class _OldStatistics:
    """Of decimals that are stored as whole numbers, as an older pyarrow has them."""

    has_null_count, null_count, num_values, has_min_max = True, 0, 1, True

    def __init__(self, value: int, kind: dict[str, Any]) -> None:
        self.min_raw = self.max_raw = value
        self._kind = kind

    @property
    def min(self) -> Decimal:
        raise pa.ArrowNotImplementedError("Cannot extract statistics for type")

    max = min

    @property
    def logical_type(self) -> Any:
        return SimpleNamespace(to_json=lambda: json.dumps(self._kind))


def old_statistics(values: list[int], kind: dict[str, Any]) -> dict[str, Any]:
    columns = [SimpleNamespace(statistics=_OldStatistics(value, kind)) for value in values]
    groups = [SimpleNamespace(column=lambda _, it=it: it) for it in columns]
    schema = SimpleNamespace(column=lambda _: SimpleNamespace(path="c", name="c"))
    footer: Any = SimpleNamespace(
        num_columns=1, num_rows=2, num_row_groups=len(groups), schema=schema
    )
    footer.row_group = groups.__getitem__
    return json.loads(statistics_of(footer), parse_float=Decimal)


def test_decimal_of_which_pyarrow_tells_the_whole_number_alone_keeps_every_digit() -> None:
    kind = {"Type": "Decimal", "precision": 18, "scale": 17}
    found = old_statistics([-1, 123456789012345678], kind)
    assert found["minValues"]["c"] == Decimal("-0.00000000000000001")
    assert found["maxValues"]["c"] == Decimal("1.23456789012345678")


def test_type_of_which_pyarrow_tells_no_bounds_has_none() -> None:
    found = old_statistics([1], {"Type": "Int"})
    assert (found["minValues"], found["maxValues"]) == ({}, {})
    assert found["nullCount"] == {"c": 0}


@pytest.mark.parametrize("values", [[1.0, float("nan")], [1.0], [float("inf")], [-0.0]])
def test_float_has_no_bounds(values: list[float]) -> None:
    found = statistics(values, pa.float64())
    assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_long_text_is_cut_below_and_absent_above() -> None:
    found = statistics(["a" * 40, "b" * 40], pa.string())
    assert found["minValues"] == {"c": "a" * 32}
    assert found["maxValues"] == {}


def test_time_is_rounded_outwards() -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 1_500, tzinfo=UTC)
    found = statistics([at], pa.timestamp("us", "UTC"))
    assert found["minValues"] == {"c": "2026-01-01T00:00:00.001Z"}
    assert found["maxValues"] == {"c": "2026-01-01T00:00:00.002Z"}


def test_time_that_python_cannot_hold_has_no_bounds() -> None:
    found = statistics([2**62], pa.timestamp("us"))
    assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_bounds_are_those_of_all_row_groups() -> None:
    found = statistics([5, None, None, 1, 9, 2], pa.int64(), row_group_size=2)
    assert (found["minValues"], found["maxValues"]) == ({"c": 1}, {"c": 9})


def test_column_without_a_value_or_without_statistics_has_no_bounds() -> None:
    assert statistics([None, None], pa.int64())["maxValues"] == {}
    assert statistics([1], pa.int64(), write_statistics=False)["nullCount"] == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", None),
        ("a/b %", "a/b %"),
        (True, "true"),
        (7, "7"),
        (Decimal("-0.01"), "-0.01"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3), "2026-01-02 03:00:00.000000"),
        (
            datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-02T01:00:00.000000Z",
        ),
    ],
)
def test_partition_value_has_the_text_that_engines_read(
    value: PartitionValue, text: str | None
) -> None:
    assert written_text(value) == text


def test_points_in_time_are_compared_without_their_zone() -> None:
    at = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert partition_text(at) == "2026-01-02 01:00:00.000000"


def test_partition_value_without_a_text_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="bytes"):
        written_text(b"x")  # type: ignore[arg-type]


def test_column_whose_name_has_a_dot_has_its_nulls_and_no_part_of_a_nested_one() -> None:
    out = io.BytesIO()
    nested = pa.array([{"b": 1}, {"b": None}])
    pq.write_table(pa.table({"a.b": [1, 2], "a": nested}), out)
    found = json.loads(statistics_of(pq.read_metadata(io.BytesIO(out.getvalue()))))
    assert found["nullCount"] == {"a.b": 0}
    assert found["minValues"] == found["maxValues"] == {}
