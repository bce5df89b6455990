"""What a reader of the table sees, and whether that is what the CSV says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zero_rename import Table
from zero_rename.committer.scan.table_scan import TableScan
from zero_rename.tables import DeltaTable

from .dataset import RowDigest, content, partition_of
from .store import Store

#: Rows of partitions, by name.
Contents = dict[str, RowDigest]


@dataclass(frozen=True)
class Difference:
    """A partition that is not as it should be."""

    partition: str
    what: str


def committed(table: Table | DeltaTable, partitions: list[str] | None = None) -> Contents:
    """The content of a table's partitions, as its reader sees it now.

    :param partitions: only these, each of which is in the answer even if it is empty.
    """
    return scanned(table.scan(partitions), partitions or ())


def scanned(scan: TableScan, partitions: Iterable[str] = ()) -> Contents:
    """The content of partitions in a state that is read.

    :param partitions: are in the answer even if they are empty.
    """
    found = dict.fromkeys(partitions, RowDigest())
    for batch in scan.to_batches():
        for row in batch.to_pylist():
            partition = partition_of(row)
            found[partition] = found.get(partition, RowDigest()) + content([row])
    return found


def differences(
    expected: Mapping[str, RowDigest], found: Mapping[str, RowDigest]
) -> list[Difference]:
    """Partitions missing, too many, or of another content."""
    wrong = []
    for partition in sorted({*expected, *found}):
        want, have = expected.get(partition, RowDigest()), found.get(partition, RowDigest())
        if want == have:
            continue
        what = f"{have.rows:,} rows committed, {want.rows:,} in the CSV"
        if want.rows == have.rows:
            what = f"{want.rows:,} rows in both, of other content: {have.short}, not {want.short}"
        wrong.append(Difference(partition, what))
    return wrong


def strays(table: Table, store: Store) -> list[Difference]:
    """What the bucket holds below the table beside what the table names: readers that only
    list would see those files, and uploads nobody completes cost money."""
    named = {file.key for file in table.files()}
    listed = {key for key in store.keys(f"{table.root.prefix}/") if key.endswith(".parquet")}
    wrong = [Difference(key, "listed, but not the table's") for key in sorted(listed - named)]
    wrong += [Difference(key, "the table's, but not there") for key in sorted(named - listed)]
    wrong += [
        Difference(key, "an upload left behind") for key in store.uploads(f"{table.root.prefix}/")
    ]
    return wrong
