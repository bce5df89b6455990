"""The index's own record: which objects hold it."""

from __future__ import annotations

from dataclasses import dataclass

from ...format.layout import TableRoot
from ...format.records.codec import decode, encode
from ...format.records.marks import Count


@dataclass(frozen=True)
class IndexPart:
    """One object of the index.

    :param first: the first of its partitions, in order of their names; ``last``: the last.
    :param rows: how many rows it has.
    """

    key: str
    first: str
    last: str
    rows: Count


@dataclass(frozen=True)
class TableIndex:
    """What the index consists of, in the order of the partitions."""

    write_id: str
    parts: tuple[IndexPart, ...]

    def encode(self) -> bytes:
        return encode("index", self.write_id, self)

    @staticmethod
    def decode(body: bytes, root: TableRoot) -> TableIndex:
        """Read the record.

        :raises RecordDamagedError: it is none of this table's.
        """
        document = decode(body, "index", root.index_key)
        index = document.read(TableIndex)
        for number, part in enumerate(index.parts):
            if not part.key.startswith(root.index_parts_prefix):
                raise document.damaged(f"parts[{number}].key", "is no part of this table's index")
        return index
