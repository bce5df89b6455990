"""Who is measured: names, and by verb the one function that does it.

The functions are called in a host (:mod:`.host`), with what the host keeps for them, the workload
and the table's URL; they import what they need when they are called, since no host has all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import arrow_peers, lake_peers, own_peers, spark_peers
from bench.workloads import (
    BY_SPARK,
    BY_SPARK_DELTA,
    BY_US_ON_4_1,
    DELTA,
    DELTA_ON_4_1,
    DELTA_TOGETHER_ON_4_1,
    ICEBERG,
    ICEBERG_NEWEST,
    LOCAL,
    ON_3_5,
    ON_4_1,
    OURS,
    OURS_DELTA,
    PARQUET,
    PLAIN,
    PLAIN_DELTA,
    TOGETHER_ON_4_1,
    Workload,
    slug,
)

Act = Callable[[Any, Workload, str], "int | None"]


@dataclass(frozen=True)
class Peer:
    """A way to do what workloads ask.

    :param host: ``spark``; ``spark-4.1`` and ``spark-3.5``, of these versions; ``arrow``, the
        environment of the peers; ``python``, the checkout's.
    :param verbs: what it can: ``append``, ``replace``, ``read`` (returns how many rows),
        ``program``, which makes a table of another one (:mod:`.papers`);
        ``merge``, which ``check`` compares with what the table is to hold (returns how many rows),
        ``recover``, ``abort``; ``die``, which leaves a job for
        ``recover``; ``prime``, which has
        Python workers ready, since Spark ends those that were idle for a minute.
    :param table: whose table it reads; its own where left out.
    :param only: the workloads it is for; empty for all.
    """

    name: str
    host: str
    verbs: Mapping[str, Act]
    table: str = ""
    only: tuple[str, ...] = ()

    @property
    def quick(self) -> bool:
        """Whether ``make bench-quick`` has it."""
        return self.name in _QUICK

    def takes(self, workload: Workload) -> bool:
        verb = "append" if workload.verb == "cold" else workload.verb
        named = workload.name in self.only or not self.only
        wanted = self.name in workload.peers or not workload.peers
        return verb in self.verbs and named and wanted

    @property
    def bucket(self) -> str:
        """Where its tables are: S3A keeps a file system for each bucket."""
        return f"bench-{slug(self.name)}"[:63].rstrip("-")


def _reader(name: str, act: Act, *only: str, table: str = OURS) -> Peer:
    return Peer(name, "spark", {"read": act}, table, only)


def _arrow(name: str, **verbs: Act) -> Peer:
    return Peer(name, "arrow", verbs)


def _spark(name: str, *only: str, **verbs: Act) -> Peer:
    return Peer(name, "spark", verbs, only=only)


def _lake(name: str, *only: str, **verbs: Act) -> Peer:
    return Peer(name, "spark-4.1", verbs, only=only)


def _hadoop(name: str, append: Act, *only: str, **verbs: Act) -> Peer:
    program = spark_peers.program(append, ours=False)
    return Peer(name, "spark", {"append": append, "program": program, **verbs}, only=only)


def _saving(layout: str | None = None, **options: str) -> dict[str, Act]:
    """What this project's tables take by Spark."""
    save = spark_peers.save
    return {
        "append": save(layout=layout, **options),
        "program": spark_peers.program(save(layout=layout, **options), ours=True),
        "replace": save("overwrite", layout, **options),
        "merge": spark_peers.merge,
        "check": own_peers.check(layout == "delta"),
        "prime": spark_peers.prime(),
    }


def _plain(name: str, delta: bool = False, **more: Act) -> Peer:
    """This project's tables, by plain Python."""
    verbs: dict[str, Act] = {
        "append": own_peers.write(delta),
        "replace": own_peers.write(delta, mode="replace"),
        "merge": own_peers.merge(delta),
        "check": own_peers.check(delta),
    }
    return Peer(name, "python", {**verbs, **more})


_committer, _rename = spark_peers.by_committer, spark_peers.rename
_QUICK = (*(OURS, "magic", "directory", "rename v2", LOCAL, "delta-rs"), "pyarrow write_dataset")
_OF_PAPERS = ("one file", "write", "copy", "word count", "sort")
#: In the first round's order: who is slow comes last, since the time may be up before.
PEERS = (
    _spark(OURS, **_saving()),
    _spark(OURS_DELTA, *_OF_PAPERS, **_saving("delta")),
    _spark(LOCAL, append=spark_peers.locally),
    _hadoop("directory", _committer("directory")),
    _spark(
        "zero-rename, format()",
        "64 files",
        append=spark_peers.by_format,
        prime=spark_peers.prime_format,
    ),
    _spark(
        "zero-rename, workers not frozen",
        "64 files",
        append=spark_peers.save(freezeWorkers="false"),
        prime=spark_peers.prime(freezeWorkers="false"),
    ),
    _spark(
        "tasks that do nothing", "64 files", append=spark_peers.nothing, prime=spark_peers.nothing
    ),
    _spark(
        "partitioned",
        *("365 partitions", "replace"),
        append=_committer("partitioned"),
        replace=_committer("partitioned", conflict_mode="replace"),
    ),
    _plain(PLAIN, die=own_peers.die, recover=own_peers.recover, abort=own_peers.abort),
    _plain(PLAIN_DELTA, delta=True),
    Peer("rclone cleanup", "python", {"abort": own_peers.rclone}),
    _arrow(
        "pyarrow write_dataset",
        append=arrow_peers.dataset,
        replace=partial(arrow_peers.dataset, behavior="delete_matching"),
    ),
    _arrow(
        "awswrangler",
        append=arrow_peers.wrangler,
        replace=partial(arrow_peers.wrangler, mode="overwrite_partitions"),
        read=arrow_peers.wrangler_read,
    ),
    _arrow(
        "delta-rs",
        append=arrow_peers.delta,
        replace=partial(arrow_peers.delta, mode="overwrite"),
        merge=arrow_peers.delta_merge,
        check=arrow_peers.delta_check,
        read=arrow_peers.delta_read,
    ),
    _arrow(
        "pyiceberg",
        append=arrow_peers.iceberg,
        replace=arrow_peers.iceberg_replace,
        merge=arrow_peers.iceberg_merge,
        check=arrow_peers.iceberg_check,
        read=arrow_peers.iceberg_read,
    ),
    _hadoop("magic", _committer("magic")),
    _hadoop("rename v2", _rename(2), replace=_rename(2, dynamic=True)),
    _hadoop("rename v1", _rename(1), *_OF_PAPERS),
    _lake(ON_4_1, **_saving(), read=spark_peers.load_by("spark")),
    _lake(DELTA_ON_4_1, **_saving("delta"), read=spark_peers.load_by("spark")),
    Peer(BY_US_ON_4_1, "spark-4.1", {"read": spark_peers.load_by("zero_rename")}, DELTA_ON_4_1),
    _lake(TOGETHER_ON_4_1, "replace", **_saving(distribute="partition")),
    _lake(DELTA_TOGETHER_ON_4_1, "replace", **_saving("delta", distribute="partition")),
    _lake(
        ICEBERG,
        append=lake_peers.iceberg,
        replace=lake_peers.iceberg_replace,
        merge=lake_peers.iceberg_merge,
        check=lake_peers.iceberg_check,
        read=lake_peers.iceberg_read,
    ),
    Peer(ICEBERG_NEWEST, "spark-4.1", {"read": lake_peers.iceberg_read_newest}, ICEBERG),
    _lake(
        DELTA,
        append=lake_peers.delta,
        replace=lake_peers.delta_replace,
        merge=lake_peers.delta_merge,
        check=lake_peers.delta_check,
        read=lake_peers.delta_read,
    ),
    Peer(ON_3_5, "spark-3.5", _saving(), only=("one file", "64 files", "replace")),
    _reader(BY_SPARK, spark_peers.load_by("spark")),
    _reader("load(), by zero_rename", spark_peers.load_by("zero_rename")),
    _reader(BY_SPARK_DELTA, spark_peers.load_by("spark"), table=OURS_DELTA),
    _reader('spark.read.format("zero_rename")', spark_peers.read_format, "read all columns"),
    _reader(PARQUET, spark_peers.read_parquet),
    Peer("pyarrow dataset", "arrow", {"read": arrow_peers.dataset_read}, table=OURS),
)
BY_NAME = {peer.name: peer for peer in PEERS}
