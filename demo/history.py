"""The second table, a Delta table: a corrected day is read as before, undone, and redone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from zero_rename import Table
from zero_rename.tables import DeltaTable

from .compare import Difference, committed, differences, scanned
from .dataset import Flights, RowDigest, partition_of, partition_on, typed
from .report import RunReport


@dataclass
class History:
    """A copy of the flights, in a table that can be read and restored as of each of its versions.

    :param table: the copy.
    :param expected: what it has to hold, by partition.
    """

    table: DeltaTable
    report: RunReport
    expected: Mapping[str, RowDigest]

    @staticmethod
    def begun(
        first: Table, table: DeltaTable, report: RunReport, expected: Mapping[str, RowDigest]
    ) -> History:
        """Copy a table to a Delta table, by one job."""
        with report.step("a second table, a Delta table: a copy"):
            copied = table.copy_of(first)
        report.say(f"   {copied.rows:,} rows in {copied.files} files; {table.root.url}")
        return History(table, report, expected)

    def tell(self, flights: Flights, day: date, path: Path) -> list[Difference]:
        """Correct a day, read it as it was, undo the correction, and undo that.

        :param path: where the corrected file goes.
        :return: where a reader saw something else than the CSV's rows, or the corrected ones.
        """
        name = partition_on(day)
        right = flights.corrected(day, path)
        old, new = self.expected[name], right.contents([day.month])[name]
        loaded, first = self._look(name), self._newest()
        with self.report.step(f"{day:%-d February}, corrected, undone and redone"):
            correction = self._replace(right, name)
            seen = {
                f"loaded (version {first})": (old, loaded),
                "corrected": (new, self._look(name)),
            }
            seen[f"read as of version {first}"] = (old, self._look(name, as_of=first))
            self.table.restore(first, apply=True)
            seen["undone"] = (old, self._look(name))
            self.table.restore(correction, apply=True)
            seen["redone"] = (new, self._look(name))
        self.report.before_and_after(name, {when: found for when, (_, found) in seen.items()})
        wrong = [
            Difference(f"{self.table.root.url}, {when}", difference.what)
            for when, (want, found) in seen.items()
            for difference in differences({name: want}, {name: found})
        ]
        return wrong + differences({**self.expected, name: new}, committed(self.table))

    def _replace(self, flights: Flights, partition: str) -> int:
        """Take the place of a day by the rows of a file. Returns the version that has them."""
        rows = [typed(row) for row in flights.lines() if partition_of(row) == partition]
        with self.table.job(mode="overwrite") as job:
            job.write(pa.Table.from_pylist(rows, self.table.schema))
        assert job.committed is not None
        return job.committed.partitions[0].version

    def _newest(self) -> int:
        newest = self.table.newest_entry()
        assert newest is not None
        return newest.version

    def _look(self, partition: str, as_of: int | None = None) -> RowDigest:
        return scanned(self.table.scan([partition], as_of=as_of), [partition])[partition]
