"""``table.json``: the record of a table that every writer and reader reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from ...store.encryption import Encryption
from ..job_spec import Coordination
from ..layout import TableRoot
from ..schema.compatibility import from_json, to_json
from .codec import decode, encode, moved
from .head import JobId
from .marks import LEFT_OUT, Converted, Count, Named
from .store_facts import StoreFacts


@dataclass(frozen=True)
class Evolution:
    """A change of a table's columns that a job is about to commit.

    :param schema: the table's columns as soon as ``job`` is committed.
    :param overwrites: these columns replace the former ones, and ``job`` replaces all rows.
    """

    job: JobId
    schema: Annotated[pa.Schema, Converted(to_json, from_json)]
    overwrites: Annotated[bool, LEFT_OUT] = False


@dataclass(frozen=True)
class TableRecord:
    """A table's layout, schema and coordination, and the facts that the probe of its store found.

    :param schema: all columns, partition columns included.
    :param first: the job that made the table. The record does not count until that job is
        committed. ``None`` once the job is known to be committed.
    :param instead: the text of the record that this one replaced, which a failed first job of an
        earlier version of this package left. It counts again if ``first`` is aborted.
    :param unadopted: there were files before the table: a partition whose head has never moved
        holds the files that a listing shows.
    :param adopting: an adoption has cleared ``unadopted`` and has yet to look for files that came
        before that. If the adoption dies, the next process that notices sets ``unadopted`` again.
    :param schema_version: the number of times that the columns have changed.
    :param overwritten: the ``schema_version`` at which new columns last replaced the former ones:
        no file is of an earlier version. 0: they never did.
    :param encryption: the store's encryption of all that is written for the table; ``None``: the
        bucket's default.
    :param evolution: the next change of the columns. It counts once its job is committed; before
        that, and if the job is aborted, it is ignored.
    :param prefix: the prefix of the root where the table was made; ``""``: not known.
    """

    write_id: str
    partition_by: tuple[str, ...]
    schema: Annotated[pa.Schema, Converted(to_json, from_json)]
    coordination: Coordination
    facts: Annotated[StoreFacts, Named("store")]
    first: Annotated[JobId | None, LEFT_OUT] = None
    instead: Annotated[str | None, LEFT_OUT] = None
    unadopted: Annotated[bool, LEFT_OUT] = False
    adopting: Annotated[bool, LEFT_OUT] = False
    schema_version: Annotated[Count, LEFT_OUT] = 0
    overwritten: Annotated[Count, LEFT_OUT] = 0
    evolution: Annotated[Evolution | None, LEFT_OUT] = None
    encryption: Annotated[Encryption | None, LEFT_OUT] = None
    prefix: Annotated[str, LEFT_OUT] = ""

    def check_place(self, root: TableRoot) -> None:
        """Refuse a table whose objects were moved or copied to this root: its records name their
        files by whole keys, so its rows cannot be read here.

        :raises RecordDamagedError: the table was made at another prefix.
        """
        if self.prefix not in ("", root.prefix):
            raise moved(root.table_key, "prefix", self.prefix)

    def evolved(self) -> TableRecord:
        """Return the record as it is after the job of its evolution is committed."""
        if self.evolution is None:
            return self
        version = self.schema_version + 1
        return replace(
            self,
            schema=self.evolution.schema,
            schema_version=version,
            overwritten=version if self.evolution.overwrites else self.overwritten,
            evolution=None,
        )

    def encode(self) -> bytes:
        return encode("table", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> TableRecord:
        document = decode(body, "table", key)
        record = document.read(TableRecord)
        for column in record.partition_by:
            if column not in record.schema.names or column not in record.evolved().schema.names:
                raise document.damaged("partition_by", f"names {column!r}, which is not a column")
        return record
