"""Tables of the log's steps beside delta-rs: each reads what the other wrote."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.log_tables import LAYOUT, NOW, LogTable, day
from zero_rename.committer.store import requests as s
from zero_rename.layouts.delta.statistics import statistics_of
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.opening import LogDepth

deltalake: Any = pytest.importorskip("deltalake", reason="the reader delta-rs is optional")


class Shared:
    """A table in memory whose objects are laid out as files for delta-rs, and taken back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, LogTable()
        self.log.make()

    def append(self, partition: str | None, values: list[int], **more: Any) -> None:
        job = self.log.job(partition, **more)
        out = io.BytesIO()
        pq.write_table(pa.table({"value": pa.array(values, pa.int64())}), out)
        self.log.run(s.PutFile(LAYOUT.key_of(job.adds[0].path), out.getvalue()))
        statistics = statistics_of(pq.read_metadata(io.BytesIO(out.getvalue())))
        add = replace(job.adds[0], size=len(out.getvalue()), statistics=statistics)
        self.log.commit(replace(job, adds=(add,)))

    def theirs(self) -> Any:
        for key, stored in self.log.store.objects.items():
            path = self.folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stored.body)
        return deltalake.DeltaTable(str(self.folder / "flights"))

    def take_back(self) -> None:
        for path in self.folder.rglob("*"):
            key = path.relative_to(self.folder).as_posix()
            known = self.log.store.objects.get(key)
            if path.is_file() and (known is None or known.body != path.read_bytes()):
                self.log.run(s.PutFile(key, path.read_bytes()))

    def values(self) -> list[tuple[str | None, int]]:
        rows = pa.table(self.theirs().to_pyarrow_table()).to_pylist()
        return sorted(((it["day"], it["value"]) for it in rows), key=lambda it: it[1])


def test_delta_rs_reads_what_we_wrote(tmp_path: Path) -> None:
    table = Shared(tmp_path)
    table.append("1", [1, 2])
    table.append("ü/ %", [3])
    table.append("1", [4], replaced=day("1"))
    table.log.run(make_checkpoint(LAYOUT, NOW))
    table.append(None, [5])
    assert table.values() == [("ü/ %", 3), ("1", 4), (None, 5)]
    assert len(table.theirs().history()) == 5


def test_entries_of_delta_rs_between_ours_are_understood(tmp_path: Path) -> None:
    table = Shared(tmp_path)
    table.append("1", [1])
    theirs = table.theirs()
    rows = pa.table({"value": pa.array([2], pa.int64()), "day": ["1"]})
    deltalake.write_deltalake(theirs, rows, mode="append")
    table.take_back()
    table.append("2", [3])
    theirs = table.theirs()
    theirs.delete("value = 1")
    theirs.optimize.compact()
    theirs.create_checkpoint()
    table.take_back()
    opened = table.log.open(LogDepth.WHOLE)
    assert opened.overwritten == ()
    assert opened.state.version == theirs.version()
    table.append("1", [4], replaced=day("1"))
    assert table.values() == [("2", 3), ("1", 4)]
