"""What is done: rows, files, partitions, how late answers are, and how long it may all take."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class Workload:
    """One table of the report.

    :param verb: of :class:`.peers.Peer`.
    :param tasks: of Spark; each writes a file into every partition it has rows of.
    :param partitions: 0 for none. Rows come in no order of them unless ``ordered``, which makes
        one file of each.
    :param latency: seconds every answer is late.
    :param query: of the verb ``read``, or the program that is run on a table of such rows.
    :param round: of the verb ``merge``, a peer's own: each brings other rows (:mod:`.rows`).
    :param seconds: for all peers and rounds, in proportion to the other workloads: what is under
        way then is finished, and no more is begun.
    :param peers: only these; empty for all that can.
    :param quick: whether ``make bench-quick`` has it.
    """

    name: str
    title: str
    verb: str = "append"
    rows: int = 1000
    tasks: int = 1
    partitions: int = 0
    ordered: bool = False
    latency: float = 0.03
    query: str = ""
    round: int = 0
    seconds: float = 60
    peers: tuple[str, ...] = ()
    quick: bool = False

    @property
    def files(self) -> int:
        """That an append writes."""
        each = max(1, self.partitions)
        return max(self.tasks, each) if self.ordered else self.tasks * each

    def scaled(self, by: float) -> Self:
        """A rehearsal: fewer rows, tasks and partitions."""
        fewer = {
            "tasks": max(1, round(self.tasks * by)),
            "partitions": max(2, round(self.partitions * by)) if self.partitions else 0,
        }
        return replace(self, rows=max(1000, round(self.rows * by)), **fewer)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


OURS, OURS_DELTA = "zero-rename", "zero-rename, as a Delta table"
PLAIN = "zero-rename, plain Python"
PLAIN_DELTA = f"{PLAIN}, as a Delta table"
BY_SPARK, PARQUET = "load(), by Spark", "spark.read.parquet"
BY_SPARK_DELTA = f"{BY_SPARK}, of a Delta table"
#: In one session of the Spark that Delta and Iceberg serve, and in one of the oldest.
ON_4_1, ON_3_5 = f"{OURS}, Spark 4.1", f"{OURS}, Spark 3.5"
DELTA_ON_4_1 = f"{ON_4_1}, as a Delta table"
#: Its files read by this package, not by Spark.
BY_US_ON_4_1 = f'{DELTA_ON_4_1}, load(by="zero_rename")'
TOGETHER_ON_4_1 = f"{ON_4_1}, distribute=partition"
DELTA_TOGETHER_ON_4_1 = f"{DELTA_ON_4_1}, distribute=partition"
DELTA, ICEBERG = "Delta on Spark 4.1", "Iceberg on Spark 4.1"
#: Iceberg's catalog keeps a table's state for half a minute; with REFRESH TABLE before each read,
#: it reads the newest one, as we and Delta do.
ICEBERG_NEWEST = f"{ICEBERG}, newest state"
_LAKES = (ON_4_1, DELTA_ON_4_1, DELTA, ICEBERG)
#: The queries of ``read``: a condition, and the only column wanted.
QUERIES: dict[str, tuple[tuple[str, str, int] | None, str]] = {
    "a few rows": (("id", "<", 1000), ""),
    "one partition": (("day", "=", 3), ""),
    "one column": (None, "d"),
    "all columns": (None, ""),
}
LOCAL = "Spark to local disk"
_WITHOUT_SPARK = (PLAIN, PLAIN_DELTA, "pyarrow write_dataset", "delta-rs", "pyiceberg")
_FEW = (OURS, "magic", "directory", LOCAL, *_WITHOUT_SPARK)
#: Of many files, those whom a minute or two are enough.
_MANY = (OURS, "directory", PLAIN, "delta-rs", *_LAKES)
_SPREAD = (OURS, "directory", "partitioned", *_WITHOUT_SPARK, *_LAKES)
_LARGE_TOO = (OURS, "magic", "directory", LOCAL, *_WITHOUT_SPARK, "awswrangler", *_LAKES)
_COLD = "A process and its first two small saves into a table that is there"
_HALF = {
    "name": "half of 365 partitions",
    "title": "365 partitions, rows in no order, half as many of them",
}
_PARTITIONS = Workload(
    "365 partitions", "365 partitions, rows in no order", "append", 1_000_000, 1, 365
)
_LARGE = Workload("8 files", "8 million rows in 8 files", "append", 8_000_000, 8, latency=0)
_ABORT = Workload("abort", "Abort of what a dead job uploaded", "abort", tasks=250)
_MERGED = "1 % of the rows merged into 30 of 365 partitions"
_DIED = "Recovery of a job that died as it committed"
_READ = Workload("read", "", "read", 1_000_000, 1, 365, ordered=True)

#: Those that goals compare come first: the time may be up before the last.
WORKLOADS = (
    Workload("one file", "One file", seconds=80, quick=True),
    Workload("64 files", "64 files", "append", 640_000, 64, seconds=300, quick=True),
    replace(_PARTITIONS, rows=500_000, latency=0, seconds=25, peers=(OURS,), **_HALF),
    replace(_PARTITIONS, seconds=200, peers=_SPREAD),
    replace(_LARGE, seconds=190, quick=True, peers=_LARGE_TOO),
    Workload("replace", "31 partitions replaced", "replace", 124_000, 4, 31, seconds=200),
    replace(_READ, name="merge", title=_MERGED, verb="merge", seconds=260, quick=True),
    # The first one makes the tables, too.
    *(
        replace(_READ, name=f"read {it}", title=f"Read {it}", query=it, seconds=110 + 60 * (not n))
        for n, it in enumerate(QUERIES)
    ),
    Workload("cold", _COLD, "cold", seconds=90, peers=_FEW),
    Workload("1,000 files", "1,000 files", "append", 1_000_000, 1000, seconds=200, peers=_MANY),
    Workload("recovery", _DIED, "recover", tasks=250, seconds=60),
    replace(_ABORT, seconds=60),  # rclone aborts one after the other.
    replace(
        _ABORT,
        name="abort without latency",
        title="The same without latency",
        latency=0,
        seconds=20,
    ),
)
_ALIKE = (OURS, OURS_DELTA, "magic", "directory", "rename v2", "rename v1")
_PROGRAM = Workload("", "", "program", 160_000, 16, peers=_ALIKE)
#: What stands for the workloads of Stocator's paper (:mod:`.papers`).
PAPERS = (
    replace(_PROGRAM, name="one file", title="One file", verb="append", rows=1000, tasks=1),
    replace(_PROGRAM, name="write", title="Write", verb="append"),
    *(
        replace(_PROGRAM, name=it, title=it.capitalize(), query=it)
        for it in ("copy", "word count", "sort")
    ),
    *(
        replace(
            _READ,
            **{"name": f"read {it}", "query": it, "rows": 160_000, "partitions": 16},
            peers=(BY_SPARK, BY_SPARK_DELTA, PARQUET),
        )
        for it in ("all columns", "a few rows")
    ),
)


def input_of(url: str) -> str:
    """The table that a program reads, of all programs of a peer."""
    return f"{url.rpartition('/')[0]}/input"


def slug(name: str) -> str:
    """A name as a part of a path or of a bucket's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
