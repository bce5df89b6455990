"""Uploads below a path: whose each is, and that what anybody needs is never aborted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.faults import Crash, at, on
from support.memory_store import Behaviour, Fault, ManualClock, MemoryDriver, MemoryStore
from support.protocol import DAY1, DAY2, ROOT, World, die_before_applying
from zero_rename.committer.errors import InvalidInputError, JobFencedError
from zero_rename.committer.format.job_spec import Coordination
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import (
    AbortUpload,
    CreateUpload,
    Delete,
    Done,
    ListedUpload,
    ListParts,
    ListUploads,
    Put,
    Step,
    UploadPage,
    UploadPart,
)
from zero_rename.committer.upkeep.purging.purge_plan import Whose
from zero_rename.committer.upkeep.purging.upload_selection import (
    Name,
    NeededBy,
    Selection,
    Spared,
    UploadsPath,
    name_of,
    spare_none,
)
from zero_rename.committer.upkeep.purging.upload_sweep import SeenUpload, UploadSweep
from zero_rename.committer.upkeep.recovery import Recovered

DAY = 86400.0
TABLE = ROOT.url


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3a://bucket/", "bucket", ""),
        ("s3n://bucket/a/b/", "bucket", "a/b/"),
        ("S3://bucket/a b#1?c%20", "bucket", "a b#1?c%20/"),
    ],
)
def test_paths(url: str, bucket: str, prefix: str) -> None:
    assert UploadsPath.parse(url) == UploadsPath(bucket, prefix)


@pytest.mark.parametrize("url", ["bucket/a", "hdfs://nn/a", "s3:///a", "s3://bucket?b"])
def test_what_is_no_path(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is no path on S3"):
        UploadsPath.parse(url)


class Sweep:
    """A sweep over a store in memory, and what it saw."""

    def __init__(
        self,
        store: MemoryStore,
        url: str = TABLE,
        apply: bool = True,
        fault: Fault | None = None,
        sizes: bool = False,
        spared: Spared = spare_none,
        **options: Any,
    ) -> None:
        self.world = World(store)
        self.world.driver.fault = fault
        self.pages: list[Sequence[SeenUpload]] = []
        path, meant = UploadsPath.parse(url), Selection(**options)
        sweep = UploadSweep(path, meant, self.pages.append, apply=apply, sizes=sizes, spared=spared)
        self.settled: list[Recovered] = self.world.driver.run(sweep.run())

    @property
    def seen(self) -> list[SeenUpload]:
        return [upload for page in self.pages for upload in page]

    def keys(self, action: str) -> set[str]:
        return {upload.key for upload in self.seen if str(upload.action) == action}


def begin(world: World, key: str, *bodies: bytes) -> str:
    created = world.store.apply(CreateUpload(key))
    for number, body in enumerate(bodies, start=1):
        world.store.apply(UploadPart(key, created.upload_id, number, body))
    return key


def world_in_use(page: int = 1000) -> World:
    """A table with a load."""
    world = World(MemoryStore(behaviour=Behaviour(page=page)))
    world.load(DAY1)
    return world


@pytest.fixture
def world() -> World:
    return world_in_use()


def closed_job(world: World) -> str:
    opened = world.open()
    world.abort(opened)
    return opened.job


class TestWhatIsSpared:
    def test_live_and_committed_jobs_can_go_on_after_all_is_aborted(self, world: World) -> None:
        dead = world.open(max_duration=100.0)
        world.write(dead, DAY1)
        committed, result = world.written(DAY1)
        die_before_applying(world, committed, result)
        world.advance(10 * DAY)
        live, written = world.written(DAY2, max_duration=DAY)
        begin(world, f"flights/day=1/part-00009-{closed_job(world)}-0000.parquet")
        begin(world, "flights/day=1/part-00000-2f9a.snappy.parquet")
        found = Sweep(world.store)
        assert found.keys("kept") == {f.key for f in (*result.files, *written.files)}
        assert len(found.keys("aborted")) == 3
        assert {it.job: str(it.outcome) for it in found.settled} == {dead.job: "aborted"}
        assert world.commit(live, written).rows == 1
        World(world.store).recover()
        world.assert_clean()
        assert world.jobs_of(DAY1)[-1] == committed.job

    def test_the_owner_of_a_job_taken_for_dead_is_told(self, world: World) -> None:
        slow, result = world.written(DAY1, max_duration=100.0)
        world.advance(DAY)
        assert Sweep(world.store).keys("aborted") == {result.files[0].key}
        with pytest.raises(JobFencedError):
            world.commit(slow, result)
        world.assert_clean()

    @pytest.mark.parametrize("url", [f"{TABLE}/day=1", f"{TABLE}/day=1/"])
    def test_a_folder_is_not_one_that_begins_alike(self, world: World, url: str) -> None:
        job = closed_job(world)
        keys = [begin(world, f"flights/{day}/part-1-{job}-0.parquet") for day in (DAY1, "day=10")]
        begin(world, f"flights2/part-1-{job}-0.parquet")
        assert Sweep(world.store, url).keys("aborted") == {keys[0]}
        assert Sweep(world.store).keys("aborted") == {keys[1]}
        assert world.store.upload_keys() == [f"flights2/part-1-{job}-0.parquet"]

    def test_what_a_commit_names_stays_though_its_open_record_is_gone(self, world: World) -> None:
        """Somebody removed the record; the decision is still to be applied."""
        opened, result = world.written(DAY1)
        die_before_applying(world, opened, result)
        world.store.apply(Delete(ROOT.open_key(opened.job)))
        left_by_a_killed_task = begin(world, f"flights/day=1/part-00009-{opened.job}-0000.parquet")
        found = Sweep(world.store)
        assert found.keys("kept") == {result.files[0].key}
        assert found.keys("aborted") == {left_by_a_killed_task}

    def test_of_a_dead_job_only_the_folder_that_is_meant(self, world: World) -> None:
        dead = world.open(max_duration=100.0)
        here, there = (world.write(dead, day).files[0].key for day in (DAY1, DAY2))
        world.advance(DAY)
        found = Sweep(world.store, f"{TABLE}/day=1")
        assert (found.keys("aborted"), found.settled) == ({here}, [])
        assert world.store.upload_keys() == [there]
        World(world.store).recover()
        world.assert_clean()

    def test_foreign_ones_alone_fence_nobody(self, world: World) -> None:
        dead, result = world.written(DAY1, max_duration=100.0)
        world.advance(DAY)
        foreign = begin(world, "flights/day=1/part-00000-2f9a.snappy.parquet")
        found = Sweep(world.store, whose=frozenset({Whose.FOREIGN}))
        assert {upload.key for upload in found.seen} == {foreign}
        assert world.commit(dead, result).rows == 1

    @pytest.mark.parametrize("first", [False, True])
    def test_jobs_of_a_table_without_coordination_are_their_owners(self, first: bool) -> None:
        """An abort decision does not keep them from committing: nobody reads it."""
        unconditional = Behaviour(conditional_put=False, conditional_delete=False)
        world = World(MemoryStore(behaviour=unconditional))
        if not first:
            world.load(DAY1, coordination=Coordination.NONE)
        opened, result = world.written(DAY1, coordination=Coordination.NONE, max_duration=100.0)
        world.advance(10 * DAY)
        found = Sweep(world.store)
        assert (found.keys("kept"), found.settled) == ({result.files[0].key}, [])
        assert {str(it.outcome) for it in world.recover(patience=0.0)} == {"left"}
        assert world.commit(opened, result).rows == 1

    def test_foreign_ones_that_somebody_may_need(self, world: World) -> None:
        needed, other = (begin(world, f"flights/day=1/{name}.parquet") for name in "ab")

        def spared(uploads: Sequence[ListedUpload]) -> Step[dict[Name, NeededBy]]:
            yield from ()
            by = NeededBy("", "a run is at work")
            return {name_of(it): by for it in uploads if it.key == needed}

        found = Sweep(world.store, spared=spared)
        assert (found.keys("kept"), found.keys("aborted")) == ({needed}, {other})
        assert world.store.upload_keys() == [needed]

    def test_a_job_without_records_only_when_it_is_named(self, world: World) -> None:
        job = "zr1-" + "0" * 26
        key = begin(world, f"flights/day=1/part-1-{job}-0.parquet")
        assert Sweep(world.store).keys("kept") == {key}
        assert Sweep(world.store, jobs=frozenset({"zr1-" + "1" * 26})).seen == []
        assert Sweep(world.store, jobs=frozenset({job})).keys("aborted") == {key}

    def test_by_age(self, world: World) -> None:
        job = closed_job(world)
        old = begin(world, f"flights/day=1/part-1-{job}-0.parquet")
        world.advance(100)
        begin(world, f"flights/day=1/part-2-{job}-0.parquet")
        assert Sweep(world.store, older_than=100.0).keys("aborted") == {old}

    def test_uploads_of_a_job_that_cannot_be_fenced_stay(self, world: World) -> None:
        dead = world.open(max_duration=100.0)
        key = world.write(dead, DAY1).files[0].key
        world.advance(DAY)
        world.store.apply(Put(ROOT.decision_key(dead.job), b"{"))
        assert Sweep(world.store).keys("kept") == {key}

    def test_without_apply_nothing_changes(self, world: World) -> None:
        dead = world.open(max_duration=100.0)
        key = world.write(dead, DAY1).files[0].key
        world.advance(DAY)
        before = dict(world.store.objects), dict(world.store.uploads)
        assert Sweep(world.store, apply=False).keys("would-abort") == {key}
        assert (dict(world.store.objects), dict(world.store.uploads)) == before


class TestPlaces:
    def test_tables_below_a_path_are_found(self, world: World) -> None:
        """Of tables and a folder between them; a table in a folder of another, and one below what
        is called like a partition."""
        keys = {}
        for prefix in ("wh/a", "wh/a/inner", "wh/b", "wh/source=crm/customers"):
            other = World(world.store)
            other.context = type(other.context)(TableRoot("bucket", prefix))
            other.load(DAY1)
            job = closed_job(other)
            keys[begin(other, f"{prefix}/day=2/part-1-{job}-0.parquet")] = f"s3://bucket/{prefix}"
            live = other.open()
            keys[other.write(live, DAY2).files[0].key] = f"s3://bucket/{prefix}"
        stray = begin(world, "wh/tmp/spark-1/part-0.parquet")
        found = Sweep(world.store, "s3://bucket/wh")
        assert {it.key: it.table for it in found.seen} == {**keys, stray: None}
        assert len(found.keys("aborted")) == 5
        assert len(found.keys("kept")) == 4
        assert Sweep(world.store, "s3://bucket").keys("aborted") == set()

    @pytest.mark.parametrize("url", [TABLE, "s3://bucket"])
    def test_a_first_job_that_died_left_no_table(self, url: str) -> None:
        world = World()
        dead = world.open(max_duration=100.0)
        key = world.write(dead, DAY1).files[0].key
        assert Sweep(world.store, url).keys("kept") == {key}
        world.advance(DAY)
        assert Sweep(world.store, url).keys("aborted") == {key}
        world.assert_clean()

    def test_where_listings_by_prefix_are_empty(self) -> None:
        world = World(MemoryStore(behaviour=Behaviour(lists_uploads=False)))
        world.load(DAY1)
        key = begin(world, f"flights/day=1/part-1-{closed_job(world)}-0.parquet")
        begin(world, "other/x")
        assert Sweep(world.store).keys("aborted") == {key}
        assert world.store.upload_keys() == ["other/x"]


class EndlessUploads:
    """A bucket of so many foreign uploads, which are not kept anywhere."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.aborted = 0

    def answer(self, request: Any, apply: Any) -> Any:
        if isinstance(request, AbortUpload):
            self.aborted += 1
            return Done()
        if not isinstance(request, ListUploads):
            return apply(request)
        first = self.aborted if request.marker is None else int(request.marker[1])
        last = min(self.count, max(first, self.aborted) + 1000)
        numbers = range(max(first, self.aborted), last)
        page = tuple(ListedUpload(f"wh/{n:09d}", str(n), 0.0) for n in numbers)
        marker = (f"wh/{last:09d}", str(last)) if last < self.count else None
        return UploadPage(page, marker, 1e6)


def peak_of(count: int) -> int:
    """Bytes that a sweep holds at most."""
    uploads = EndlessUploads(count)
    driver = MemoryDriver(MemoryStore(clock=ManualClock(1e6)), uploads.answer)
    driver.requests = _Nothing()
    aborted = 0

    def emit(page: Sequence[SeenUpload]) -> None:
        nonlocal aborted
        aborted += sum(str(upload.action) == "aborted" for upload in page)

    sweep = UploadSweep(UploadsPath.parse("s3://bucket/wh"), Selection(), emit, apply=True)
    tracemalloc.start()
    driver.run(sweep.run())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert aborted == count
    return peak


class _Nothing(list[Any]):
    """Forgets."""

    def append(self, item: Any, /) -> None:
        pass


class TestMany:
    def test_a_page_is_judged_aborted_and_forgotten(self) -> None:
        world = world_in_use(page=10)
        job = closed_job(world)
        for number in range(95):
            begin(world, f"flights/day={number % 7}/part-{number:05d}-{job}-0.parquet")
        live = world.open()
        for number in range(15):
            world.write(live, DAY1, task=number)
        found = Sweep(world.store)
        assert max(map(len, found.pages)) <= 10
        assert (len(found.keys("aborted")), len(found.keys("kept"))) == (95, 15)
        listings = sum(isinstance(it, ListUploads) for it in found.world.driver.requests)
        assert listings <= 3 * 11 + 3, "a page, a look at it afterwards, and a last pass"

    def test_memory_is_flat(self) -> None:
        """The most that is held at once does not grow with the uploads."""
        few, many = (peak_of(count) for count in (2_000, 20_000))
        assert many < 1.3 * few, (few, many)

    def test_one_that_stays_is_told_and_does_not_keep_the_others(self) -> None:
        world = world_in_use(page=3)
        job = closed_job(world)
        keys = [begin(world, f"flights/day=1/part-{n}-{job}-0.parquet") for n in range(7)]

        sweep = Sweep(world.store, fault=on(AbortUpload, Done(), keys[0]))
        assert sweep.keys("failed") == {keys[0]}
        assert sweep.keys("aborted") == set(keys[1:])
        assert world.store.upload_keys() == [keys[0]]

    def test_what_a_listing_left_out_is_found_by_the_next(self, world: World) -> None:
        """A store that pages by a marker that is gone may skip what comes after it."""
        job = closed_job(world)
        keys = [begin(world, f"flights/day=1/part-{n}-{job}-0.parquet") for n in range(4)]
        looks = iter(range(3))

        def fault(request: Any, apply: Any) -> Any:
            page = apply(request)
            if isinstance(request, ListUploads) and next(looks, None) is not None:
                return replace(page, uploads=tuple(u for u in page.uploads if u.key != keys[2]))
            return page

        assert Sweep(world.store, fault=fault).keys("aborted") == set(keys)
        assert world.store.upload_keys() == []

    def test_it_goes_on_where_it_was_stopped(self) -> None:
        """At every request: the next run finds what is left, and the live job's stay."""
        for stop in range(400):
            world = world_in_use(page=2)
            job = closed_job(world)
            for number in range(5):
                begin(world, f"flights/day=1/part-{number}-{job}-0.parquet")
            dead = world.open(max_duration=100.0)
            world.write(dead, DAY1, DAY2)
            world.advance(DAY)
            live, result = world.written(DAY1)
            try:
                Sweep(world.store, fault=at(stop + 1, Crash))
            except Crash:
                Sweep(world.store)
            else:
                assert stop > 20
                break
            assert world.store.upload_keys() == [result.files[0].key]
            assert world.commit(live, result).rows == 1
            World(world.store).recover()
            world.assert_clean()

    def test_bytes(self) -> None:
        world = world_in_use(page=2)
        key = begin(world, "flights/day=1/part-0", b"x" * 10, b"y" * 20, b"z" * 5)
        found = Sweep(world.store, apply=False, sizes=True)
        assert [(it.key, it.parts, it.bytes) for it in found.seen] == [(key, 3, 35)]
        assert sum(isinstance(it, ListParts) for it in found.world.driver.requests) == 2
