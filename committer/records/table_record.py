"""``table.json``: what a table is, for every writer and reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..job_spec import Coordination
from ..schema.compatibility import from_json, to_json
from ..state.probe import StoreFacts
from .codec import decode, encode


@dataclass(frozen=True)
class TableRecord:
    """A table's layout, schema and coordination, and what the store's probe found.

    :param schema: all columns, partition columns included.
    """

    write_id: str
    partition_by: tuple[str, ...]
    schema: pa.Schema
    coordination: Coordination
    facts: StoreFacts

    def encode(self) -> bytes:
        members: dict[str, Any] = {
            "partition_by": self.partition_by,
            "coordination": self.coordination,
            "store": vars(self.facts),
            "schema": to_json(self.schema),
        }
        return encode("table", self.write_id, members)

    @staticmethod
    def decode(body: bytes, key: str) -> TableRecord:
        read = decode(body, "table", key)
        try:
            schema = from_json(read.mapping("schema"))
        except ValueError as error:
            raise read.damaged("schema", f"cannot be read: {error}") from error
        partition_by = read.strings("partition_by")
        for column in partition_by:
            if column not in schema.names:
                raise read.damaged("partition_by", f"names {column!r}, which is not a column")
        return TableRecord(
            write_id=read.string("write_id"),
            partition_by=partition_by,
            schema=schema,
            coordination=read.choice("coordination", Coordination),
            facts=StoreFacts.read(read.within("store")),
        )
