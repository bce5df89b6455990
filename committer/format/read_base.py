"""Base of a job by what it has read: versions of partitions, and partitions that were not there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

from ..errors import InvalidInputError
from .records.marks import DEFAULTED, Count
from .records.typed_json import Unfit, from_members


@dataclass(frozen=True)
class ReadBase:
    """What a job has read of the table it writes.

    A partition that the job writes and whose head is at another version when it is claimed is a
    conflict, under ``on_conflict=fail``. Partitions that were not read are held against what was
    there when the job opened, as without a base.

    :param table: the root that was read, ``s3://bucket/prefix``; ``None`` where nothing was.
    :param versions: by partition; 0: it was not there; ``None``: it counts as not read.
    :param whole: the whole table was read, so that partitions not in ``versions`` were not there.
    :param listed: of partitions that held what a listing showed, a digest of that: a replace is
        refused where it shows other files by then, whoever wrote them. ``None``: nothing was
        listed, since readers of the table went by heads alone.
    :param log_version: of a table that is kept in a log: the version that was read.
    :param own: jobs that whoever has read it has committed since, in such a table: their entries
        are no conflicts.
    """

    table: str | None
    versions: Mapping[str, Count | None]
    whole: bool = True
    listed: Mapping[str, str] | None = None
    log_version: Count | None = None
    own: Annotated[tuple[str, ...], DEFAULTED] = ()

    def version(self, partition: str) -> int | None:
        """The version at which a partition was read; ``None``: it was not read."""
        return self.versions.get(partition, 0 if self.whole else None)

    def read_at(self, partition: str) -> int | None:
        """The version of the partition, of its table's log where it has one, at which a partition
        was read; ``None``: it was not read."""
        found = self.version(partition)
        return self.log_version if found == 0 and self.log_version is not None else found

    def listing(self, partition: str) -> str | None:
        """A digest of the files that a partition without a head held; ``None``: not known."""
        if self.listed is None or (self.version(partition) != 0):
            return None
        return self.listed.get(partition, listing_digest(()))

    def encode(self) -> str:
        """A text, for the data source's option ``base`` and for other processes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> ReadBase:
        """The base of a text by :meth:`encode`.

        :raises ValueError: it is none.
        """
        try:
            base = from_members(ReadBase, json.loads(text))
        except (ValueError, RecursionError, Unfit) as error:
            raise ValueError("is no text of Snapshot.base.encode()") from error
        if base.table is None:
            raise ValueError("is no text of Snapshot.base.encode()")
        return base

    def check_table(self, table: str) -> None:
        """Refuse the base of another table.

        :param table: the root that is written.
        :raises InvalidInputError: it is another one.
        """
        if self.table not in (None, table):
            raise InvalidInputError(
                f"The base was read from another table, {self.table}; nothing was written.",
                table=table,
                remedy="Give a snapshot of the table that is written, or leave base out.",
            )


def listing_digest(files: Iterable[tuple[str, int]]) -> str:
    """What tells listings apart: keys and sizes."""
    lines = sorted(f"{size} {key}\n" for key, size in files)
    return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


#: Of a job whose rows do not depend on what the table holds.
NOTHING_READ = ReadBase(None, {}, whole=False)
