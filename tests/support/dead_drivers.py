"""A Spark driver that is killed while several of its jobs are at chosen points of their commit.

Every job writes to a bucket of its own, whose endpoint is a proxy that holds one request back.
Once all jobs are held, the driver is killed with all it started: one JVM's start for all cases.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture.proxy import Proxy, Seen, Trap, When
from torture.spark_writers import SparkProgram

from support.hadoop_committers import Application, Place, environment, static_settings
from support.spark import INTERPRETED
from support.waiting import STUCK
from tools.fetch_s3a_jars import cached_jars
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

#: Whether a request is the one to be held back.
Held = Callable[[Seen], bool]
_PROGRAM = """
import threading
jobs, given = arguments
spark = session(given, "local[8]")

def load(job):
    own = spark.newSession()
    for key, value in job["conf"].items():
        own.conf.set(key, value)
    frame = own.range(job["first"], job["first"] + 40, 1, 2).selectExpr(
        "id", "cast(id % 2 + 1 as int) as day"
    )
    try:
        frame.write.mode(job["mode"]).partitionBy("day").parquet(job["url"])
    except Exception as error:
        print("answer " + job["url"] + " failed: " + str(error)[:1500].replace(chr(10), " "))
    else:
        print("answer " + job["url"] + " committed", flush=True)

for job in jobs:
    threading.Thread(target=load, args=(job,)).start()
"""


def completion(number: int) -> Held:
    """The ``number``-th completion of an upload, from 0."""
    return _nth(number, lambda seen: seen.operation == "CompleteMultipartUpload")


def pending_set(number: int) -> Held:
    """The ``number``-th write of a task's ``.pendingset``, from 0: magic only."""
    return _nth(
        number, lambda seen: seen.operation == "PutObject" and seen.key.endswith(".pendingset")
    )


def _nth(number: int, matches: Held) -> Held:
    count = -1

    def wanted(seen: Seen) -> bool:
        nonlocal count
        count += matches(seen)
        return matches(seen) and count == number

    return wanted


@dataclass(frozen=True)
class Death:
    """A job that is to die.

    :param place: where it writes, in a bucket of its own.
    :param held: the request that is never carried out.
    :param uuid: handed in as ``fs.s3a.committer.uuid``.
    :param first: its rows are 40 from here, days 1 and 2 in each of two files a day.
    """

    place: Place
    committer: str
    uuid: str
    held: Held
    first: int = 100
    mode: str = "append"
    overrides: Mapping[str, str] = field(default_factory=dict)


def kill_driver(application: Application, folder: Path, *deaths: Death) -> None:
    """Start a driver with all these jobs; kill it once each is held at its request.

    :param folder: the driver's working folder; what staging committers keep pending is left in
        its ``staging``.
    """
    jars = cached_jars()
    assert jars is not None
    given = {**static_settings(application.store, jars, folder), **INTERPRETED}
    with contextlib.ExitStack() as stack:
        held = [threading.Event() for _ in deaths]
        jobs = []
        for death, event in zip(deaths, held, strict=True):
            proxy = stack.enter_context(_holding(application, death, event))
            jobs.append(_job(death, proxy))
        variables = environment(application.store)
        program = stack.enter_context(
            contextlib.closing(SparkProgram(_PROGRAM, [jobs, given], variables, folder))
        )
        for death, event in zip(deaths, held, strict=True):
            if not event.wait(STUCK):
                said = "nothing" if program.silent else program.answer(1)
                raise TimeoutError(f"{death} was not held; the driver said {said}")
        program.kill()


@contextlib.contextmanager
def _holding(application: Application, death: Death, held: threading.Event) -> Iterator[Proxy]:
    """A proxy whose held request waits until the driver is dead, and gets no answer then."""
    dead = threading.Event()

    def hold() -> None:
        held.set()
        dead.wait(STUCK)

    with Proxy(application.store.endpoint) as proxy:
        proxy.watch(Trap(lambda _, seen: death.held(seen), When.BEFORE, hold))
        try:
            yield proxy
        finally:
            dead.set()


def _job(death: Death, proxy: Proxy) -> dict[str, Any]:
    settings = S3ASettings(Committer(death.committer), uuid=death.uuid, threads=1)
    conf = {key.removeprefix("spark.hadoop."): v for key, v in settings.spark_conf().items()}
    conf |= death.overrides
    conf[f"fs.s3a.bucket.{death.place.bucket}.endpoint"] = proxy.endpoint
    return {"url": death.place.url, "conf": conf, "first": death.first, "mode": death.mode}
