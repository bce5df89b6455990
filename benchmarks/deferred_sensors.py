"""What deferred sensors cost the triggerer: memory, CPU, lag of its event loop, requests.

So many triggers of ``SuccessManifestSensor`` wait on one event loop for runs of one table, on moto
in a process of its own, until each has had so many looks that found nothing::

    .venv/bin/python benchmarks/deferred_sensors.py --triggers 200
    .venv/bin/python benchmarks/deferred_sensors.py --triggers 500 --interval 30 --seconds 100
    .venv/bin/python benchmarks/deferred_sensors.py --triggers 500 --days 30

Then one run commits, and it is measured how long its trigger takes to say so. With ``--days`` each
waits for so many partitions instead, all of them there but one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from support.airflow import SCHEMA, connection_variable, day_rows  # noqa: E402
from support.moto_server import S3Server, running  # noqa: E402
from zero_rename.orchestration.job_query import JobQuery  # noqa: E402
from zero_rename.orchestration.partitions_query import PartitionsQuery  # noqa: E402
from zero_rename.provider.hooks import ZeroRenameHook  # noqa: E402
from zero_rename.provider.triggers import SuccessManifestTrigger  # noqa: E402

BUCKET = "sensors"
TABLE = f"s3://{BUCKET}/wh/flights"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--triggers", type=int, default=200)
    parser.add_argument("--days", type=int, help="wait for so many partitions, not for a run")
    parser.add_argument("--interval", type=float, default=10.0, help="poke_interval, seconds")
    parser.add_argument("--seconds", type=float, default=35.0, help="how long they wait")
    given = parser.parse_args()
    with running() as server:
        server.client().create_bucket(Bucket=BUCKET)
        connect(server)
        load("another", *range(2, (given.days or 1) + 1))
        before = Usage()
        counter = server.counter(BUCKET)
        counter.reset()
        lag, answered = asyncio.run(play(given))
        used = Usage() - before
        print(f"{given.triggers} triggers for {given.seconds:.0f} s, each {given.interval:.0f} s")
        print(f"  memory  {used.megabytes:7.0f} MB more")
        print(f"  CPU     {used.cpu:7.1f} s")
        print(f"  lag     {lag:7.2f} s of the event loop at most")
        print(f"  answer  {answered:7.1f} s after the commit")
        print(f"  sent    {dict(counter.counts())}")


def connect(server: S3Server) -> None:
    known = server.environment
    extra = {"endpoint_url": server.endpoint, "region_name": known["AWS_REGION"]}
    login, password = known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"]
    fields: dict[str, Any] = {"conn_type": "aws", "login": login, "password": password}
    os.environ.update([connection_variable("aws_default", extra=extra, **fields)])


def idempotency_key(number: object) -> str:
    return f"flights/scheduled__{number}/load"


def load(number: object, *days: int) -> None:
    job = (
        ZeroRenameHook()
        .get_table(TABLE)
        .job(SCHEMA, partition_by=("day",), idempotency_key=idempotency_key(number))
    )
    with job:
        job.write(day_rows(days or (1,), 2))


async def play(given: argparse.Namespace) -> tuple[float, float]:
    """The longest lag, and how long a commit took to be told."""
    watched = asyncio.create_task(longest_lag())
    waiting = [asyncio.create_task(first(number, given)) for number in range(given.triggers)]
    await asyncio.sleep(given.seconds)
    lag = watched.cancel() and LAG[-1]
    await asyncio.to_thread(load, 0)
    began = time.monotonic()
    assert json.loads(await waiting[0])["state"] == "ready"
    answered = time.monotonic() - began
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return lag, answered


async def first(number: int, given: argparse.Namespace) -> str:
    if given.days:
        names = tuple(f"day={day}" for day in range(1, given.days + 1))
        query = PartitionsQuery(TABLE, names, min_rows=2, newer_than=number).as_dict()
    else:
        query = JobQuery(TABLE, idempotency_key=idempotency_key(number)).as_dict()
    async for event in SuccessManifestTrigger(query, "zero_rename_default", given.interval).run():
        return json.dumps(event.payload)
    raise AssertionError("no event")


LAG = [0.0]


async def longest_lag() -> None:
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.01)
        LAG.append(max(LAG[-1], time.monotonic() - began - 0.01))


class Usage:
    """Of this process so far."""

    def __init__(self) -> None:
        times = os.times()
        self.cpu = times.user + times.system
        self.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def __sub__(self, before: Usage) -> Usage:
        self.cpu -= before.cpu
        self.megabytes -= before.megabytes
        return self


if __name__ == "__main__":
    main()
