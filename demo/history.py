"""The second table, which is read by heads: a corrected day is read as before, undone, redone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from zero_rename import Table

from .compare import Difference, committed, differences
from .dataset import Flights, RowDigest, partition_of, partition_on, typed
from .report import RunReport


@dataclass
class History:
    """A copy of the flights that keeps what a job takes the place of.

    :param table: the copy.
    :param expected: what it has to hold, by partition.
    """

    table: Table
    report: RunReport
    expected: Mapping[str, RowDigest]

    @staticmethod
    def begun(
        listed: Table, table: Table, report: RunReport, expected: Mapping[str, RowDigest]
    ) -> History:
        """Copy a table to one that is read by heads: one job, and the store copies the files."""
        with report.step("a second table, read by heads: a copy"):
            copied = listed.copy(table, readers="heads")
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
        loaded = self._look(name)
        with self.report.step(f"{day:%-d February}, corrected, undone and redone"):
            correction = self._replace(right, name)
            seen = {"loaded (version 1)": (old, loaded), "corrected": (new, self._look(name))}
            seen["read as of version 1"] = (old, self._look(name, as_of=1))
            undoing = self.table.undo(correction, apply=True).job
            seen["undone"] = (old, self._look(name))
            assert undoing is not None, "the day held other rows before it was corrected"
            self.table.undo(undoing, apply=True)
            seen["redone"] = (new, self._look(name))
        self.report.before_and_after(name, {when: found for when, (_, found) in seen.items()})
        wrong = [
            Difference(f"{self.table.root.url}, {when}", difference.what)
            for when, (want, found) in seen.items()
            for difference in differences({name: want}, {name: found})
        ]
        return wrong + differences({**self.expected, name: new}, committed(self.table))

    def _replace(self, flights: Flights, partition: str) -> str:
        """Take the place of a day by the rows of a file. Returns the job's id."""
        rows = [typed(row) for row in flights.lines() if partition_of(row) == partition]
        with self.table.job(mode="overwrite") as job:
            job.write(pa.Table.from_pylist(rows, self.table.schema))
        assert job.committed is not None
        return job.committed.job

    def _look(self, partition: str, as_of: int | None = None) -> RowDigest:
        return committed(self.table, [partition], as_of)[partition]
