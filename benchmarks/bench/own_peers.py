"""This project without Spark, and what cleans up after the dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench import rows as made
from bench.workloads import Workload


def _table(url: str, delta: bool) -> Any:
    from zero_rename import Table
    from zero_rename.tables import DeltaTable

    return DeltaTable(url) if delta else Table(url)


def write(delta: bool = False, **given: Any) -> Callable[[Any, Workload, str], None]:
    """One job, with arguments of :meth:`zero_rename.Table.job`."""

    def act(side: Any, workload: Workload, url: str) -> None:
        rows = side.rows(workload)
        with _table(url, delta).job(rows.schema, partition_by=side.by(workload), **given) as job:
            job.write(rows)

    return act


def merge(delta: bool = False) -> Callable[[Any, Workload, str], None]:
    def act(side: Any, _: Workload, url: str) -> None:
        _table(url, delta).merge(side.source, on=made.KEYS)

    return act


def check(delta: bool = False) -> Callable[[Any, Workload, str], int]:
    def act(_: Any, workload: Workload, url: str) -> int:
        return made.check(workload, _table(url, delta).scan().to_arrow())

    return act


def die(_: Any, workload: Workload, url: str) -> None:
    """Leave a job that is decided, and of which nothing is visible."""
    asked = json.dumps({"url": url, "workload": workload.as_dict()})
    subprocess.run([sys.executable, "-m", "bench.own_peers", asked], check=False)


def _until_it_dies(url: str, workload: Workload) -> None:
    """Load, and end this process before the first request that comes too late."""
    from torture.phases import Phase, Target
    from torture.proxy import Proxy, Trap, When

    from bench.arrow_peers import ArrowSide

    late = Target(Phase.APPLYING, 0)
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        proxy.watch(Trap(late, When.BEFORE, lambda: os._exit(0)))
        os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        write()(ArrowSide(), workload, url)


def recover(_: Any, workload: Workload, url: str) -> None:
    from zero_rename import Table

    done = Table(url).recover(patience=0.0)
    if len(done) != 1:
        raise LookupError(f"{len(done)} jobs recovered: {done}")


def abort(_: Any, workload: Workload, url: str) -> None:
    command = [sys.executable, "-c", "from zero_rename.cli import main; main()", "uploads"]
    _run([*command, "abort", url, "--older-than", "0", "--apply", "--json"], {})


def rclone(_: Any, workload: Workload, url: str) -> None:
    settings = {
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_STORE_TYPE": "s3",
        "RCLONE_CONFIG_STORE_PROVIDER": "Other",
        "RCLONE_CONFIG_STORE_ENV_AUTH": "true",
        "RCLONE_CONFIG_STORE_REGION": os.environ["AWS_REGION"],
        "RCLONE_CONFIG_STORE_ENDPOINT": os.environ["AWS_ENDPOINT_URL"],
    }
    command = ["rclone", "backend", "cleanup"]
    _run([*command, f"store:{url.removeprefix('s3://')}", "-o", "max-age=0s"], settings)


def _run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr[-200:]}")


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    _until_it_dies(asked["url"], Workload(**asked["workload"]))
