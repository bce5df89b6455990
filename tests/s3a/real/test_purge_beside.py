"""A purge of everything, whatever its age, beside jobs of Hadoop's committers that are at work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from torture.proxy import Proxy, Seen

from support.dead_drivers import Held, completion, pending_set
from support.hadoop_committers import Application, Place, numbers
from support.request_gate import Gate
from support.waiting import STUCK
from zero_rename.committer import Table
from zero_rename.committer.upkeep.purging.purge import PurgeAction
from zero_rename.maintenance.destinations import destinations_in
from zero_rename.maintenance.purging import PurgedDestination, PurgeOrder, purge_destination

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OLD, NEW = range(40), range(100, 140)
#: Foreign uploads go however young they are.
ALL = PurgeOrder(apply=True, foreign_age=0.0)


def pending_file(seen: Seen) -> bool:
    """Each write of the record of a file that a task has closed."""
    return seen.operation == "PutObject" and seen.key.endswith(".pending")


@contextlib.contextmanager
def at_work(application: Application, committer: str, held: Held, number: int) -> Iterator[Place]:
    """A job that appends rows 100 … 139 to a table with rows 0 … 39, and is held at some of its
    requests. It goes on after the context, which sees that it commits all its rows."""
    place, gate = application.place(application.new_bucket()), Gate(held, number)
    with Proxy(application.store.endpoint) as proxy:
        application.spark.conf.set(f"fs.s3a.bucket.{place.bucket}.endpoint", proxy.endpoint)
        with application.with_committer(committer, threads=1), ThreadPoolExecutor(1) as pool:
            application.write(place, application.frame(0))
            proxy.faults = gate
            load = pool.submit(application.write, place, application.frame(100))
            try:
                gate.wait()
                yield place
            finally:
                gate.open.set()
            load.result(STUCK)
        assert sorted(application.rows(place)) == numbers(OLD, NEW)
        assert place.uploads() == []


def purge(place: Place, url: str) -> list[PurgedDestination]:
    """Purge all there is where somebody names a folder."""
    named = Table(url, client=place.client)
    return [
        purge_destination(Table(it.root.url, client=place.client), it, ALL)
        for it in named.run(destinations_in(named.root))
    ]


def kept(done: Sequence[PurgedDestination]) -> list[str]:
    assert {it.action for one in done for it in one.reported} == {PurgeAction.KEPT}
    return sorted(it.key for one in done for it in one.reported)


@pytest.mark.parametrize(
    ("committer", "held", "number"),
    [
        pytest.param("magic", completion(0), 1, id="magic before its job commit"),
        pytest.param("magic", completion(1), 1, id="magic in its job commit"),
        pytest.param("magic", pending_set(1), 1, id="magic with a task not committed"),
        pytest.param("magic", pending_file, 2, id="magic with no file closed"),
        pytest.param("partitioned", completion(0), 1, id="partitioned before its job commit"),
    ],
)
def test_job_at_work_beside_purges_of_all_ages_commits_its_rows(
    application: Application, committer: str, held: Held, number: int
) -> None:
    with at_work(application, committer, held, number) as place:
        under_way = sorted(place.uploads())
        assert under_way
        for url in (place.url, f"s3://{place.bucket}/{place.prefix.rpartition('/')[0]}"):
            done = purge(place, url)
            assert kept(done) == under_way
            assert {it.outcome for one in done for it in one.jobs} == {"left"}
        assert sorted(place.uploads()) == under_way
