"""``table.json``: what a table is, for every writer and reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import pyarrow as pa

from ...store.encryption import Encryption
from ...store.fast_root import FastRoot
from ..job_spec import Coordination, Readers
from ..schema.compatibility import from_json, to_json
from .codec import BY_HEADS_FORMAT, FAST_FORMAT, USUAL_FORMAT, decode, encode
from .head import JobId
from .marks import LEFT_OUT, Converted, Count, Named
from .store_facts import StoreFacts


def _fast_root(text: object) -> FastRoot:
    if not isinstance(text, str):
        raise ValueError("is not a string")
    return FastRoot.parse(text)


_FastRoot = Annotated[FastRoot, Converted(str, _fast_root)]


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
    :param symlinks: each job keeps a symlink manifest beside each head, for other engines.
    :param schema_version: how many times the columns have changed.
    :param overwritten: the ``schema_version`` at which columns last took the place of others: no
        file is of an earlier one. 0 if none ever did.
    :param readers: how they find the table's files.
    :param retention: seconds for which what a replace took the place of can be read, in a table
        that is read by heads; ``None``: as long as is usual.
    :param data_root: where jobs' files lie first, in a table that is read by heads; ``None``: in
        the table.
    :param former_roots: where they lay first before that, as long as anything may be left there.
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
    symlinks: Annotated[bool, LEFT_OUT] = False
    schema_version: Annotated[Count, LEFT_OUT] = 0
    overwritten: Annotated[Count, LEFT_OUT] = 0
    evolution: Annotated[Evolution | None, LEFT_OUT] = None
    readers: Annotated[Readers, LEFT_OUT] = Readers.LISTING
    retention: Annotated[Count | None, LEFT_OUT] = None
    data_root: Annotated[_FastRoot | None, LEFT_OUT] = None
    former_roots: Annotated[tuple[_FastRoot, ...], LEFT_OUT] = ()
    encryption: Annotated[Encryption | None, LEFT_OUT] = None

    @property
    def is_temporary(self) -> bool:
        """Whether its files need never become durable."""
        return self.data_root is not None and self.data_root.temporary

    def lying_in(self, data_root: FastRoot | None) -> dict[str, Any]:
        """What changes where its jobs' files lie first elsewhere from now on."""
        places = dict.fromkeys(it.place for it in (*self.former_roots, self.data_root) if it)
        now = data_root and data_root.place
        former = tuple(place for place in places if place != now)
        return {"data_root": data_root, "former_roots": former}

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
        form = BY_HEADS_FORMAT if self.readers is Readers.HEADS else USUAL_FORMAT
        form = FAST_FORMAT if self.data_root or self.former_roots else form
        return encode("table", self.write_id, self, form)

    @staticmethod
    def decode(body: bytes, key: str) -> TableRecord:
        document = decode(body, "table", key)
        record = document.read(TableRecord)
        for column in record.partition_by:
            if column not in record.schema.names or column not in record.evolved().schema.names:
                raise document.damaged("partition_by", f"names {column!r}, which is not a column")
        return record
