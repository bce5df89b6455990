"""Uploads that nobody completes, aborted by ``zero-rename uploads abort`` and by rclone in one run.

Each gets as many uploads in a bucket of its own, on one server, behind one proxy that delays every
answer, 30 ms unless told otherwise, since a store on the same machine answers sooner than any S3
does. What is printed are seconds and their ratio, the tool's own CPU, and what is left. Without
latency the CPU is what counts; of ours one second is Python's start::

    .venv/bin/python benchmarks/abort_uploads.py
    .venv/bin/python benchmarks/abort_uploads.py --server moto --uploads 1000 --latency 0

rclone is Debian's (``apt-get install rclone``) or any on ``PATH``; without it ours is timed alone.
``--json`` of ours is on, so that every upload is printed, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from torture.proxy import Proxy  # noqa: E402
from torture.servers import Store, serving  # noqa: E402

OURS = [sys.executable, "-c", "from zero_rename.cli import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="ceph", help="moto, ceph, minio, versitygw or an URL")
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds per request")
    given = parser.parse_args()
    with serving(given.server) as store, Proxy(store.endpoint, latency=given.latency) as proxy:
        print(f"{given.uploads} uploads on {store.ran_on}, each answer {given.latency} s late")
        ours = timed("zero-rename", store, given.uploads, proxy.endpoint)
        if shutil.which("rclone") is None:
            print("rclone is not there: apt-get install rclone")
            return
        theirs = timed("rclone", store, given.uploads, proxy.endpoint)
        print(f"rclone takes {theirs / ours:.1f} times as long")


def timed(tool: str, store: Store, count: int, endpoint: str) -> float:
    """Seconds that a tool takes for a bucket full of uploads."""
    client, bucket = store.client(), f"{tool}-{os.getpid()}"
    client.create_bucket(Bucket=bucket)
    fill(client, bucket, count)
    command, variables = call(tool, store, bucket, endpoint)
    environment = {**os.environ, **variables}
    environment.pop("AWS_CA_BUNDLE", None)  # rclone takes none, and the proxy has no TLS.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
    left = sum(len(page.get("Uploads", ())) for page in pages)
    grew = after.ru_maxrss > before.ru_maxrss
    most = f", at most {after.ru_maxrss / 1024:.0f} MiB" if grew else ""
    print(f"{tool}: {seconds:.1f} s, {cpu:.1f} s of CPU, {left} left{most}", flush=True)
    return seconds


def fill(client: Any, bucket: str, count: int) -> None:
    def begin(number: int) -> None:
        key = f"wh/flights/day={number % 31}/part-{number:05d}.parquet"
        client.create_multipart_upload(Bucket=bucket, Key=key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, range(count)))


def call(
    tool: str, store: Store, bucket: str, endpoint: str
) -> tuple[Sequence[str], Mapping[str, str]]:
    """A tool's command line and environment."""
    variables = store.environment(endpoint)
    if tool == "zero-rename":
        path = f"s3://{bucket}/wh"
        return [
            *OURS,
            "uploads",
            "abort",
            path,
            "--older-than",
            "0",
            "--apply",
            "--json",
        ], variables
    remote = {
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_STORE_TYPE": "s3",
        "RCLONE_CONFIG_STORE_PROVIDER": "Other",
        "RCLONE_CONFIG_STORE_ENV_AUTH": "true",
        "RCLONE_CONFIG_STORE_REGION": variables["AWS_REGION"],
        "RCLONE_CONFIG_STORE_ENDPOINT": endpoint,
    }
    return ["rclone", "backend", "cleanup", f"store:{bucket}/wh", "-o", "max-age=0s"], {
        **variables,
        **remote,
    }


if __name__ == "__main__":
    main()
