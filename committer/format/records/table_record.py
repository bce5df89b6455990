"""``table.json``: what a table is, for every writer and reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import pyarrow as pa

from ...store.encryption import Encryption
from ..job_spec import Coordination
from ..schema.compatibility import from_json, to_json
from .codec import decode, encode
from .head import JobId
from .marks import LEFT_OUT, Converted, Count, Named
from .store_facts import StoreFacts


@dataclass(frozen=True)
class Evolution:
    """A change of a table's columns that a job is about to commit.

    :param schema: what the table's columns are as soon as ``job`` is committed.
    :param overwrites: these take the place of the former ones, and ``job`` that of all rows.
    """

    job: JobId
    schema: Annotated[pa.Schema, Converted(to_json, from_json)]
    overwrites: Annotated[bool, LEFT_OUT] = False


@dataclass(frozen=True)
class TableRecord:
    """A table's layout, schema and coordination, and what the store's probe found.

    :param schema: all columns, partition columns included.
    :param first: the job that made the table: until that job is committed this record does not
        count. ``None`` once it is known to be.
    :param instead: the text of the record that this one was written over, that of a failed first
        job of a version before: it stands again where ``first`` is aborted.
    :param unadopted: there were files before the table: a partition whose head has moved at no
        time holds what a listing shows.
    :param adopting: an adoption has taken ``unadopted`` out and has yet to look for what came
        before that. Where it died, whoever comes by puts ``unadopted`` back.
    :param schema_version: how many times the columns have changed.
    :param overwritten: the ``schema_version`` at which columns last took the place of others: no
        file is of an earlier one. 0 if none ever did.
    :param encryption: by the store, of all that is written for the table; ``None``: the bucket's.
    :param evolution: the next change; it counts as soon as its job is committed, and is as if it
        were not there until then and after its abort.
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

    def evolved(self) -> TableRecord:
        """The record once the job of its evolution is committed."""
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
