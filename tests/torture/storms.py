"""Jobs in faults of the store: how many finish, how long it takes, and whether every row is there
once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from torture.faults import Outage, StrictClock, Throttling
from torture.proxy import Faults, Proxy
from torture.servers import Store
from torture.writers import Child, enter

from zero_rename import FileOptions, Table
from zero_rename.committer.errors import ZeroRenameError

#: Jobs at once, each with a table of its own, and files in each.
JOBS, FILES = 4, 300
#: Seconds that a store is away for.
AWAY = 60.0
#: Seconds that a client's clock is off.
SKEW = 3600.0
_SCHEMA = pa.schema([("day", pa.int32()), ("row", pa.int64())])
_DAYS = 5


@dataclass
class Told:
    """What jobs said of themselves and what their tables hold.

    :param answers: of each job: ``committed``, or its error.
    :param wrong: what is not as it was said, or left over.
    """

    name: str
    seconds: float
    requests: int
    retries: int
    answers: Sequence[str]
    wrong: list[str] = field(default_factory=list)

    @property
    def finished(self) -> int:
        return sum(answer == "committed" for answer in self.answers)

    @property
    def good(self) -> bool:
        return self.finished == len(self.answers) and not self.wrong

    def __str__(self) -> str:
        line = (
            f"{self.name:<22}{self.finished:>3} of {len(self.answers)} jobs"
            f"{self.seconds:>8.1f} s{self.requests:>8} requests{self.retries:>7} retries"
        )
        others = [answer[:300] for answer in self.answers if answer != "committed"]
        return "\n".join([line, *(f"    {what}" for what in [*others, *self.wrong])])


def rows_of(files: int) -> pa.Table:
    """A row for each file, over a few partitions."""
    rows = list(range(files))
    return pa.table({"day": [row % _DAYS for row in rows], "row": rows}, _SCHEMA)


def storm(
    name: str,
    store: Store,
    bucket: str,
    faults: Faults,
    *,
    jobs: int = JOBS,
    files: int = FILES,
    latency: float = 0.0,
    skew: float = 0.0,
) -> Told:
    """Run jobs under faults, at once and in processes of their own, and look at their tables.

    :param name: of the faults; tables are named by it.
    :param skew: seconds that the jobs' clocks are ahead.
    """
    urls = [f"s3://{bucket}/{name.replace(' ', '-')}-{job}" for job in range(jobs)]
    with Proxy(store.endpoint, latency, faults) as proxy:
        began = time.monotonic()
        variables = store.environment(proxy.endpoint)
        with contextlib.ExitStack() as stack:
            running = [Child(_load, url, files, dict(variables), skew) for url in urls]
            for child in running:
                stack.callback(child.close)
            answers = [child.answer(900.0) or ("died", 0) for child in running]
        took = time.monotonic() - began
        requests = len(proxy.seen)
    told = Told(name, took, requests, sum(a[1] for a in answers), [a[0] for a in answers])
    client = store.client()
    for url, (answer, _) in zip(urls, answers, strict=True):
        told.wrong += _wrong(Table(url, client=client), answer, files)
    return told


def _load(
    url: str, files: int, variables: Mapping[str, str], skew: float, told: Connection
) -> None:
    """Runs in the job's process."""
    enter(variables)
    if skew:
        _set_clock(skew)
    table = Table(url)
    try:
        data = rows_of(files)
        options = FileOptions(rows_per_file=1)
        with table.job(data.schema, partition_by=("day",), files=options) as job:
            job.write(data)
        assert job.committed is not None
        told.send(("committed", job.committed.retries))
    except ZeroRenameError as error:
        told.send((f"{type(error).__name__}: {error}", table.retries))


def _set_clock(ahead: float) -> None:
    """Let this process's clock be ahead: what Python reads of it, and botocore signs by."""
    import datetime as dates

    import botocore.auth

    real = time.time
    time.time = lambda: real() + ahead

    def now(remove_tzinfo: bool = True) -> dates.datetime:
        found = dates.datetime.fromtimestamp(time.time(), dates.UTC)
        return found.replace(tzinfo=None) if remove_tzinfo else found

    botocore.auth.get_current_datetime = now  # pyrefly: ignore[missing-attribute]


def _wrong(table: Table, answer: str, files: int) -> list[str]:
    """What a table has that the answer of its job does not say."""
    table.recover(0.0) if table.exists() else None
    rows = table.to_arrow(columns=["row"])["row"].to_pylist() if table.exists() else []
    found, distinct = len(rows), len(set(rows))
    wrong = []
    if found not in (0, files) or distinct != found:
        wrong.append(f"{table.root.url}: {found} rows, {distinct} of them distinct")
    if answer == "committed" and found != files:
        wrong.append(f"{table.root.url}: committed, and {found} rows are there")
    if found and answer != "committed" and not _open_about_it(answer):
        wrong.append(f"{table.root.url}: rows are there, and its job said {answer[:200]}")
    if table.exists():
        wrong += [f"{table.root.url}: {finding}" for finding in table.verify()]
    return wrong


def _open_about_it(answer: str) -> bool:
    """Whether an error says that the job is, or may be, committed."""
    return answer.startswith(("UnfinishedCommitError", "CommitStateUnknownError"))


def decides(seen: Any) -> bool:
    """Whether a request is the one by which a job is decided."""
    return seen.operation == "PutObject" and "/_zero_rename/jobs/" in seen.key


def completes(seen: Any) -> bool:
    return seen.operation == "CompleteMultipartUpload" and "/_zero_rename/" not in seen.key


#: Weathers that have a name, each with how far the jobs' clocks are ahead: the store is away, its
#: connections closed or silent, from the first decision or the first Complete on; or it refuses
#: what is dated wrongly.
NAMED: Mapping[str, tuple[Callable[[], Faults], float]] = {
    "restart": (lambda: Outage(decides, AWAY, silent=False), 0.0),
    "restart-applying": (lambda: Outage(completes, AWAY, silent=False), 0.0),
    "silence": (lambda: Outage(decides, AWAY, silent=True), 0.0),
    "silence-applying": (lambda: Outage(completes, AWAY, silent=True), 0.0),
    "ahead": (StrictClock, SKEW),
    "behind": (StrictClock, -SKEW),
}
ALL = ("0", "5", "10", "20", *NAMED)


def by_name(name: str, seed: int) -> tuple[Faults, float]:
    """Faults, and how far a client's clock is ahead under them.

    :param name: per cent of requests that are throttled, such as ``20``; or one of :data:`NAMED`.
    """
    if name in NAMED:
        make, skew = NAMED[name]
        return make(), skew
    return Throttling(float(name) / 100, seed), 0.0
