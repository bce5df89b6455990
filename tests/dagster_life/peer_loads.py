"""Loads by one I/O manager, in the environment of the peers: what is in its table afterwards.

``python peer_loads.py PEER FOLDER`` prints, as JSON, by case what each day holds.
"""

# pyright: reportMissingImports=false
import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import dagster as dg
import pyarrow as pa

DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-02-01")
SCHEMA = pa.schema([("day", pa.date32()), ("number", pa.int64())])
#: Rows of each day, in the order 1 to 3.
Found = list[int]


class Peer(Protocol):
    """An I/O manager, and how its table is read without it.

    :param append: the asset's metadata that ask for appends.
    :param writer: the class that writes.
    """

    append: Mapping[str, str]

    @property
    def writer(self) -> Any: ...
    def io_manager(self) -> Any: ...
    def table(self, asset: str) -> pa.Table: ...


class Delta:
    append: Mapping[str, str] = MappingProxyType({"mode": "append"})

    def __init__(self, folder: str) -> None:
        from dagster._core.storage.db_io_manager import DbIOManager

        self._folder, self.writer = folder, DbIOManager

    def io_manager(self) -> Any:
        from dagster_deltalake import DeltaLakePyarrowIOManager, LocalConfig

        return DeltaLakePyarrowIOManager(root_uri=self._folder, storage_options=LocalConfig())

    def table(self, asset: str) -> pa.Table:
        from deltalake import DeltaTable

        return pa.table(DeltaTable(f"{self._folder}/public/{asset}").to_pyarrow_table())


class Iceberg:
    append: Mapping[str, str] = MappingProxyType({"write_mode": "append"})

    def __init__(self, folder: str) -> None:
        from dagster._core.storage.db_io_manager import DbIOManager
        from pyiceberg.catalog.sql import SqlCatalog

        self.writer = DbIOManager
        self._properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self._catalog = SqlCatalog("peer", **self._properties)
        self._catalog.create_namespace("public")

    def io_manager(self) -> Any:
        from dagster_iceberg.config import IcebergCatalogConfig
        from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager

        config = IcebergCatalogConfig(properties=self._properties)
        return PyArrowIcebergIOManager(name="peer", config=config, namespace="public")

    def table(self, asset: str) -> pa.Table:
        return self._catalog.load_table(f"public.{asset}").scan().to_arrow()


class ZeroRename:
    append: Mapping[str, str] = MappingProxyType({"mode": "append"})

    def __init__(self, folder: str) -> None:
        from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource

        self._tables, self.writer = ZeroRenameResource(table_root=folder), ZeroRenameIOManager

    def io_manager(self) -> Any:
        return self.writer(zero_rename=self._tables)

    def table(self, asset: str) -> pa.Table:
        return self._tables.table(asset).to_arrow()


PEERS: dict[str, Callable[[str], Peer]] = {
    "dagster-deltalake": Delta,
    "dagster-iceberg": Iceberg,
    "dagster_zero_rename": ZeroRename,
}


@contextmanager
def dying_afterwards(kind: Any) -> Iterator[None]:
    """The first write of an I/O manager is followed by the loss of its worker."""
    write, dead = kind.handle_output, []

    def handle_output(manager: Any, context: dg.OutputContext, obj: Any) -> None:
        write(manager, context, obj)
        if not dead:
            dead.append(True)
            raise RuntimeError("the worker is gone")

    kind.handle_output = handle_output
    try:
        yield
    finally:
        kind.handle_output = write


class Loads:
    """Loads of one asset.

    :param rows: of each day, what the source has now.
    """

    def __init__(self, peer: Peer, asset: str, **metadata: str) -> None:
        self._peer, self._asset, self._metadata = peer, asset, metadata
        self.rows: dict[int, int] = {}

    def run(self, first: int, last: int | None = None, dies: bool = False) -> None:
        """Materialise a range of days by one run, retried once."""

        @dg.asset(
            name=self._asset,
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day", **self._metadata},
            retry_policy=dg.RetryPolicy(max_retries=1),
        )
        def flights() -> pa.Table:
            days = [dt.date(2013, 1, day) for day, count in self.rows.items() for _ in range(count)]
            return pa.table([days, list(range(len(days)))], schema=SCHEMA)

        ends = {"start": _key(first), "end": _key(last or first)}
        tags = {f"dagster/asset_partition_range_{name}": key for name, key in ends.items()}
        with dying_afterwards(self._peer.writer) if dies else nullcontext():
            dg.materialize(
                [flights],
                resources={"io_manager": self._peer.io_manager()},
                partition_key=_key(first) if last is None else None,
                tags=None if last is None else tags,
            )

    def found(self) -> Found:
        days = Counter(day.day for day in self._peer.table(self._asset)["day"].to_pylist())
        return [days[day] for day in (1, 2, 3)]


def _key(day: int) -> str:
    return f"2013-01-{day:02}"


def _three_days(peer: Peer, asset: str, **metadata: str) -> Loads:
    """Two rows a day, loaded day by day."""
    loads = Loads(peer, asset, **metadata)
    for day in (1, 2, 3):
        loads.rows = {day: 2}
        loads.run(day)
    return loads


def an_empty_day(peer: Peer) -> Found:
    loads = _three_days(peer, "empty_day")
    loads.rows = {}
    loads.run(2)
    return loads.found()


def a_range(peer: Peer) -> Found:
    loads = _three_days(peer, "range")
    loads.rows = {1: 5, 2: 5, 3: 5}
    loads.run(1, 3)
    return loads.found()


def an_empty_day_in_a_range(peer: Peer) -> Found:
    loads = _three_days(peer, "range_with_empty")
    loads.rows = {1: 5, 3: 5}
    loads.run(1, 3)
    return loads.found()


def rows_of_another_day(peer: Peer) -> Found:
    loads = _three_days(peer, "other_day")
    loads.rows = {1: 5, 2: 1}
    loads.run(1)
    return loads.found()


def a_retry(peer: Peer) -> Found:
    loads = _three_days(peer, "retried")
    loads.rows = {2: 5}
    loads.run(2, dies=True)
    return loads.found()


def an_append_retried(peer: Peer) -> Found:
    loads = _three_days(peer, "append_retried", **peer.append)
    loads.rows = {2: 3}
    loads.run(2, dies=True)
    return loads.found()


CASES: Sequence[Callable[[Peer], Found]] = (
    *(an_empty_day, a_range, an_empty_day_in_a_range, rows_of_another_day),
    *(a_retry, an_append_retried),
)


def _cause(error: BaseException) -> str:
    """The last line of what a step's error says of its reason."""
    lines = str(error.__cause__ or error).splitlines()
    told = [line for line in lines if "Error: " in line and not line.startswith(" ")]
    return (told or lines)[-1]


def main(name: str, folder: str) -> None:
    peer = PEERS[name](folder)
    found: dict[str, Any] = {}
    for case in CASES:
        try:
            found[case.__name__] = case(peer)
        except Exception as error:
            found[case.__name__] = f"{_cause(error)}"
    Path(sys.argv[3]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
