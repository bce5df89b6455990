"""A Delta table in a store in memory that engines get as a folder, and change there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from support.engine_process import EngineProcess
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import Delete, Found, Get, PutFile
from zero_rename.tables import DeltaTable


class SharedTable:
    """A table, and its folder."""

    def __init__(self, table: DeltaTable, folder: Path, engines: EngineProcess) -> None:
        self.table, self._folder, self._engines = table, folder, engines
        self._prefix = f"{table.root.prefix}/"
        self._known: dict[str, bytes] = {}

    def write(self, data: pa.Table, **options: Any) -> Any:
        with self.table.job(data.schema, **options) as job:
            job.write(data)
        return job.committed

    def hand_out(self) -> str:
        """Bring the folder to what the store has; a path."""
        driver = self.table.driver
        there = driver.run(list_objects(self._prefix)).keys
        for path in self._folder.rglob("*"):
            key = self._prefix + path.relative_to(self._folder).as_posix()
            if path.is_file() and key not in there:
                path.unlink()
                self._known.pop(key, None)
        for key in there:
            found = driver.run(Get(key))
            assert isinstance(found, Found)
            path = self._folder / key.removeprefix(self._prefix)
            if not (path.exists() and self._known.get(key) == found.body):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.body)
                self._known[key] = found.body
        return str(self._folder)

    def take_back(self) -> None:
        """Bring the store to what the folder has."""
        for path in self._folder.rglob("*"):
            key = self._prefix + path.relative_to(self._folder).as_posix()
            if path.is_file() and self._known.get(key) != path.read_bytes():
                self._known[key] = path.read_bytes()
                self.table.driver.run(PutFile(key, self._known[key]))
        for key in list(self._known):
            if not (self._folder / key.removeprefix(self._prefix)).exists():
                self.table.driver.run(Delete(key))
                del self._known[key]

    def theirs(self, verb: str, rows: Any = None, where: str | None = None) -> None:
        folder = self.hand_out()
        self._engines.ask(do="change", folder=folder, verb=verb, rows=rows, where=where)
        self.take_back()

    def by_duckdb(self, values: str) -> None:
        """Insert rows by DuckDB."""
        self._engines.ask(do="insert", folder=self.hand_out(), values=values)
        self.take_back()

    def by_sql(self, statement: str) -> list[Any]:
        """Change the table by a statement of Spark's SQL about ``{table}``; its rows."""
        table = f"delta.`{self.hand_out()}`"
        found = self._engines.ask(do="sql", statement=statement.format(table=table))
        self.take_back()
        return found

    def seen_by(self, engine: str, columns: list[str], where: str | None = None) -> list[Any]:
        folder = self.hand_out()
        found = self._engines.ask(
            do="read", engine=engine, folder=folder, columns=columns, where=where
        )
        return sorted(tuple(row) for row in found)

    def ours(self, columns: list[str]) -> list[Any]:
        found = self.table.scan(columns=columns).to_arrow().to_pylist()
        return sorted(tuple(map(repr, row.values())) for row in found)
