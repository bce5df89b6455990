"""A purge of 10,000 uploads beside plain boto3 loops that list and abort: seconds, and CPU.

``PYTHONPATH=tests:. .venv/bin/python benchmarks/purge.py [--uploads 10000] [--server ceph]``. The
uploads lie below a directory of ten partitions of which no record is known, on a server that lists
a thousand a page, on the same machine. The loops know nothing: they abort all, a living job's too.
What a purge asks of a store besides the aborts, ``tests/maintenance/test_purge_cost.py`` counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torture.servers import Store, serving

from zero_rename import Table
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder, purge_destination

_BUCKET, _PREFIX = "purge", "lake/flights"
#: As many requests at once as the purge has.
_THREADS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--server", default="ceph")
    asked = parser.parse_args()
    ways: dict[str, Callable[[Any], None]] = {
        f"boto3, {_THREADS} threads": in_threads,
        "purge": purge,
        "boto3, one after the other": one_after_the_other,
    }
    print("| way | seconds | CPU, seconds | times boto3 in threads |")
    print("|---|---:|---:|---:|", flush=True)
    first = 0.0
    with serving(asked.server) as store:
        os.environ.update(store.environment())
        store.client().create_bucket(Bucket=_BUCKET)
        for name, way in ways.items():
            seconds, cpu = measure(store, way, asked.uploads)
            first = first or seconds
            print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {seconds / first:.2f} |", flush=True)


def measure(store: Store, way: Callable[[Any], None], uploads: int) -> tuple[float, float]:
    client = store.client()

    def begin(number: int) -> None:
        key = f"{_PREFIX}/day={number % 10}/part-{number:05}.parquet"
        client.create_multipart_upload(Bucket=_BUCKET, Key=key)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(begin, range(uploads)))
    started, used = time.monotonic(), time.process_time()
    way(client)
    seconds, cpu = time.monotonic() - started, time.process_time() - used
    assert "Uploads" not in client.list_multipart_uploads(Bucket=_BUCKET)
    return seconds, cpu


def listed(client: Any) -> list[tuple[str, str]]:
    pages = client.get_paginator("list_multipart_uploads").paginate(
        Bucket=_BUCKET, Prefix=f"{_PREFIX}/"
    )
    return [(it["Key"], it["UploadId"]) for page in pages for it in page.get("Uploads", ())]


def one_after_the_other(client: Any) -> None:
    for key, upload in listed(client):
        client.abort_multipart_upload(Bucket=_BUCKET, Key=key, UploadId=upload)


def in_threads(client: Any) -> None:
    def abort(found: tuple[str, str]) -> None:
        client.abort_multipart_upload(Bucket=_BUCKET, Key=found[0], UploadId=found[1])

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(abort, listed(client)))


def purge(_: Any) -> None:
    table = Table(f"s3://{_BUCKET}/{_PREFIX}")
    order = PurgeOrder(apply=True, foreign_age=0.0)
    purge_destination(table, table.run(destination_at(table.root)), order)


if __name__ == "__main__":
    main()
