"""Read base of a job: the versions of the partitions that its rows were computed from."""

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
    """The state that a job has read of its own table.

    When the job claims the head of a partition that it writes, the partition must be at the version
    that was read. Otherwise it is a conflict, under ``on_conflict=fail``. For partitions that were
    not read, the version at the job's opening counts, as without a base.

    :param table: the root that was read, ``s3://bucket/prefix``; ``None``: nothing was read.
    :param versions: by partition; 0: it had no head; ``None``: it counts as not read.
    :param whole: the whole table was read, so partitions not in ``versions`` were not there.
    :param listed: by partition that was read by a listing, a digest of that listing. A replace is
        refused if a later listing shows other files, of any writer. ``None``: nothing was listed,
        since only heads were read.
    :param log_version: for a table with a log, the version of the log that was read.
    :param own: for a table with a log, jobs that the reader has committed since: their entries do
        not conflict.
    """

    table: str | None
    versions: Mapping[str, Count | None]
    whole: bool = True
    listed: Mapping[str, str] | None = None
    log_version: Count | None = None
    own: Annotated[tuple[str, ...], DEFAULTED] = ()

    def version(self, partition: str) -> int | None:
        """Return the version at which a partition was read; ``None``: it was not read."""
        return self.versions.get(partition, 0 if self.whole else None)

    def read_at(self, partition: str) -> int | None:
        """Return the version at which a partition was read; ``None``: it was not read.

        In a table with a log, a partition that was not there has the log's version.
        """
        found = self.version(partition)
        return self.log_version if found == 0 and self.log_version is not None else found

    def listing(self, partition: str) -> str | None:
        """Return a digest of the files of a partition without a head; ``None``: not known."""
        if self.listed is None or (self.version(partition) != 0):
            return None
        return self.listed.get(partition, listing_digest(()))

    def encode(self) -> str:
        """Return the base as a text, for the option ``base`` and for other processes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> ReadBase:
        """Parse a text by :meth:`encode`.

        :raises ValueError: the text is not valid, or its base has no table.
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
        :raises InvalidInputError: the base was read from another table.
        """
        if self.table not in (None, table):
            raise InvalidInputError(
                f"The base was read from another table, {self.table}; nothing was written.",
                table=table,
                remedy="Give a snapshot of the table that is written, or leave base out.",
            )


def listing_digest(files: Iterable[tuple[str, int]]) -> str:
    """Return a digest of a listing.

    :param files: key and size of each file.
    """
    lines = sorted(f"{size} {key}\n" for key, size in files)
    return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest()


#: Base of a job whose rows do not depend on the table's rows.
NOTHING_READ = ReadBase(None, {}, whole=False)
