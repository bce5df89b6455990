"""Comparing a table with the ledger: by its heads, by listing, and in what must not be left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torture.loads import Difference, Ledger

from support.plain_bucket import PlainBucket
from zero_rename import Table
from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.layout import is_hidden
from zero_rename.tables import DeltaTable

_COLUMNS = ["load", "row", "day"]


@dataclass(frozen=True)
class Inspection:
    """What an inspection found.

    :param rows: by how much what is visible differs from the ledger, the worse of both readers.
    :param left: what recovery should have cleaned up, or what contradicts itself.
    :param probes: uploads left by a probe of the store, which carry no job's id.
    """

    rows: Difference
    left: tuple[str, ...]
    probes: int


@dataclass
class Damage:
    """Rows that all inspections found lost, doubled or never written, and what else was wrong."""

    lost: int = 0
    doubled: int = 0
    stray: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.stray or self.problems)

    @property
    def counted(self) -> str:
        return (
            f"rows lost {self.lost}, doubled {self.doubled}, stray {self.stray}; "
            f"problems {len(self.problems)}"
        )

    def add(self, rows: Difference) -> None:
        self.lost += rows.lost
        self.doubled += rows.doubled
        self.stray += rows.stray


def inspect(table: Table, client: Any, ledger: Ledger) -> Inspection:
    """Look at a table that recovery has settled, from a process that wrote nothing of it.

    :param client: a plain S3 client of its server.
    """
    expected = ledger.expected()
    by_heads = by_listing = Difference.between(expected, listed_rows(table, client))
    left = [*left_behind(table, client), *_contradictions(table, ledger)]
    try:
        by_heads = Difference.between(expected, rows_of(table.to_arrow(columns=_COLUMNS)))
    except ZeroRenameError as error:
        left.append(f"readers by heads: {error}")
    if by_heads != by_listing:
        left.append(f"readers by heads: {by_heads}, readers that list: {by_listing}")
    there = uploads(table, client)
    probes = [key for key in there if "/_zero_rename/probe/" in key]
    left += [f"upload {key}" for key in there if key not in probes]
    return Inspection(max(by_heads, by_listing, key=_badness), tuple(left), len(probes))


def _badness(difference: Difference) -> int:
    return difference.lost + difference.doubled + difference.stray


def rows_of(found: pa.Table, columns: Sequence[str] = _COLUMNS) -> Counter[Any]:
    """The rows of a table as tuples, counted."""
    values = [found.column(name).to_pylist() for name in columns]
    return Counter(zip(*values, strict=True))


def _bucket(table: Table | DeltaTable, client: Any) -> PlainBucket:
    return PlainBucket(table.root.bucket, client)


def listed_rows(
    table: Table, client: Any, columns: Sequence[str] = _COLUMNS
) -> Counter[tuple[Any, ...]]:
    """The rows that a reader sees who knows nothing of heads."""
    found: Counter[Any] = Counter()
    bucket = _bucket(table, client)
    for key in bucket.keys(f"{table.root.prefix}/"):
        path = key.removeprefix(f"{table.root.prefix}/").split("/")
        if any(is_hidden(part) for part in path):
            continue
        data = pq.read_table(BytesIO(bucket.read(key)))
        if len(path) > 1:
            day = int(path[0].removeprefix("day="))
            data = data.append_column("day", pa.array([day] * data.num_rows, pa.int32()))
        found += rows_of(data, columns)
    return found


def uploads(table: Table | DeltaTable, client: Any) -> list[str]:
    """The keys of uploads below a table."""
    return _bucket(table, client).uploads(f"{table.root.prefix}/")


def left_in_delta(table: DeltaTable, client: Any) -> list[str]:
    """Name open records, uploads, and files of jobs that no entry has, but those of jobs that wait
    to be published."""
    prefix = f"{table.root.prefix}/"
    keys = [key.removeprefix(prefix) for key in PlainBucket(table.root.bucket, client).keys(prefix)]
    waiting = {it.job for it in table.unpublished()}
    known = waiting | {it.job for it in table.history()}
    left = [
        name
        for name in keys
        if (name.startswith("_zero_rename/open/") and name[18:-5] not in waiting)
        or (name.startswith("data/") and name.split("/")[1] not in known)
    ]
    return [*left, *uploads(table, client)]


def left_behind(table: Table, client: Any) -> Iterator[str]:
    """Open records, claims, parts of decisions that were never made."""
    bucket = _bucket(table, client)
    for key in bucket.keys(f"{table.root.prefix}/"):
        name = key.removeprefix(f"{table.root.prefix}/_zero_rename/")
        if name.startswith("open/"):
            yield f"open record {key}"
        if name.startswith(("heads/", "runs/")):
            claim = json.loads(bucket.read(key)).get("claim")
            if claim is not None:
                yield f"claim of {claim} on {key}"
    for finding in table.verify():
        yield f"verify: {finding.kind} {finding.key}"


def _contradictions(table: Table, ledger: Ledger) -> Iterator[str]:
    """Decisions and markers that do not say what the rows say."""
    for job, _ in ledger.attempts:
        if job is None:
            continue
        state = table.job_state(job)
        if (state is JobState.COMMITTED) != (job in ledger.committed):
            yield f"{job} is {state} and was {'' if job in ledger.committed else 'not '}committed"
    marker = table.marker()
    if (marker.job if marker else None) != (ledger.committed[-1] if ledger.committed else None):
        yield f"the table's marker names {marker.job if marker else None}"
