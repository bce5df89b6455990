"""Symlink manifests on a real server: who writes them, what they say, and who overlooks them.

That no older list comes over a newer one is the simulation's (`symlinked.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support import day_rows
from support.faults import Crash, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, ROOT, World, die_before_applying, memory_table
from zero_rename import JobSpec, Table
from zero_rename.committer import FindingKind, InvalidInputError, Mode, RefusedError
from zero_rename.committer.commit.state.heartbeat import send_heartbeat
from zero_rename.committer.errors import TableNotFoundError
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.fast_root import is_fast
from zero_rename.committer.store.requests import Put
from zero_rename.committer.upkeep import symlink_keeping
from zero_rename.committer.upkeep.symlink_keeping import keep_symlinks

pytestmark = pytest.mark.memory_s3

ROWS = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})


def fill(table: Table, mode: str = "append", **more: Any) -> None:
    with table.job(ROWS.schema, mode=mode, partition_by=["day"], **more) as job:
        job.write(ROWS)


@pytest.fixture
def table(s3_bucket: Bucket) -> Table:
    table = Table(f"s3://{s3_bucket.name}/sales")
    fill(table)
    return table


def listed(bucket: Bucket, partition: str = "day=1", root: str = "sales") -> list[str]:
    folder = f"{partition}/" if partition else ""
    return bucket.read(f"{root}/_symlink_format_manifest/{folder}manifest").decode().splitlines()


def urls(table: Table, partition: str | None = "day=1") -> list[str]:
    return [f"s3://{table.root.bucket}/{file.key}" for file in table.files(partition)]


def test_none_are_written_unless_they_are_asked_for(table: Table, s3_bucket: Bucket) -> None:
    assert not [key for key in s3_bucket.keys("") if "_symlink" in key]


class TestKept:
    def test_each_job_keeps_them(self, table: Table, s3_bucket: Bucket) -> None:
        report = table.keep_symlinks()
        assert (report.kept, report.partitions, report.written, report.unaware) == (True, 2, 2, ())
        for mode in ("append", "append", "overwrite"):
            fill(table, mode)
            for partition in ("day=1", "day=2"):
                assert listed(s3_bucket, partition) == urls(table, partition)
        assert table.keep_symlinks().written == 0

    def test_a_head_that_is_folded(self, table: Table, s3_bucket: Bucket) -> None:
        table.keep_symlinks()
        for _ in range(9):
            fill(table)
        assert len(listed(s3_bucket)) == 10
        assert listed(s3_bucket) == urls(table)

    def test_an_emptied_partition_has_an_empty_one(self, table: Table, s3_bucket: Bucket) -> None:
        table.keep_symlinks()
        with table.job(mode="overwrite", replace_partitions=["day=1"]):
            pass
        assert listed(s3_bucket) == []
        assert listed(s3_bucket, "day=2") == urls(table, "day=2")

    def test_a_table_without_partitions(self, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/plain")
        with table.job(ROWS.schema) as job:
            job.write(ROWS)
        table.keep_symlinks()
        with table.job() as job:
            job.write(ROWS)
        assert listed(s3_bucket, "", "plain") == urls(table, None)
        assert table.verify() == []

    def test_recovery_writes_what_a_dead_job_left(
        self, table: Table, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table.keep_symlinks()
        opened = table.open_job(JobSpec(ROWS.schema, Mode.REPLACE, ("day",)))
        writer = table.task_writer(opened, 0, 0)
        writer.write(ROWS)
        result = writer.close()

        carry_out = BotoDriver.perform

        def dies(self: BotoDriver, request: Any) -> Any:
            if isinstance(request, Put) and "_symlink" in request.key:
                raise KeyboardInterrupt
            return carry_out(self, request)

        with monkeypatch.context() as patch:
            patch.setattr(BotoDriver, "perform", dies)
            with pytest.raises(KeyboardInterrupt):
                table.commit(opened, [result])
        # The list of before still reads: what it names is removed only after it.
        there = {f"s3://{s3_bucket.name}/{key}" for key in s3_bucket.keys("")}
        assert set(listed(s3_bucket)) <= there
        Table(table.root.url).recover(patience=0)
        assert listed(s3_bucket) == urls(table)
        assert all(opened.job in url for url in listed(s3_bucket))

    def test_a_job_that_was_open_already_is_named(self, table: Table, s3_bucket: Bucket) -> None:
        opened = table.open_job(JobSpec(ROWS.schema, Mode.APPEND, ("day",)))
        writer = table.task_writer(opened, 0, 0)
        writer.write(ROWS)
        assert table.keep_symlinks().unaware == (opened.job,)
        table.commit(opened, [writer.close()])
        found = table.verify()
        assert {finding.kind for finding in found} == {FindingKind.STALE}
        assert table.keep_symlinks().unaware == ()
        assert table.verify() == []
        assert listed(s3_bucket) == urls(table)


class TestUnaware:
    """Open jobs that may do otherwise than the table says by now are named each time one asks."""

    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.load(DAY1)
        return world

    def decided(self, world: World) -> str:
        """A job that dies once it is decided."""
        opened = world.open()
        die_before_applying(world, opened, world.write(opened, DAY1))
        return opened.job

    def test_a_job_that_goes_on(self, world: World) -> None:
        table = memory_table(world.store)
        opened = world.open()
        assert [table.keep_symlinks().unaware for _ in range(2)] == [(opened.job,)] * 2
        world.commit(opened, world.write(opened, DAY1))
        assert table.keep_symlinks().unaware == ()
        assert table.verify() == []

    def test_a_job_that_died_decided_where_who_noted_it_died_too(self, world: World) -> None:
        job = self.decided(world)
        world.driver.fault = on(Put, Crash, ROOT.table_key, applied=True)
        with pytest.raises(Crash):
            world.driver.run(keep_symlinks(world.context))
        world.driver.fault = None
        table = memory_table(world.store)
        assert table.keep_symlinks().unaware == (job,)
        world.recover(patience=0)
        assert {finding.kind for finding in table.verify()} == {FindingKind.STALE}
        assert table.keep_symlinks().unaware == ()
        assert table.verify() == []

    def test_not_one_that_is_decided_to_keep_them(self, world: World) -> None:
        table = memory_table(world.store)
        table.keep_symlinks()
        job = self.decided(world)
        assert table.keep_symlinks().unaware == ()
        assert table.drop_symlinks(apply=True).unaware == (job,)

    def test_not_one_that_opened_well_after_it_was_said(self, world: World) -> None:
        table = memory_table(world.store)
        table.keep_symlinks()
        world.advance(3600)
        opened = world.open()
        world.driver.run(send_heartbeat(world.context, opened.job, 30.0))
        assert table.keep_symlinks().unaware == ()

    def test_one_whose_open_record_cannot_be_read(self, world: World) -> None:
        table = memory_table(world.store)
        table.keep_symlinks()
        world.advance(3600)
        opened = world.open()
        world.store.apply(Put(ROOT.open_key(opened.job), b"{"))
        assert table.keep_symlinks().unaware == (opened.job,)


class TestNotKeptAnyMore:
    def test_they_are_removed(self, table: Table, s3_bucket: Bucket) -> None:
        table.keep_symlinks()
        report = table.drop_symlinks()
        assert (report.kept, report.partitions, report.written) == (True, 2, 0)
        fill(table)
        assert listed(s3_bucket) == urls(table)
        assert table.drop_symlinks(apply=True).written == 2
        fill(table)
        assert not [key for key in s3_bucket.keys("") if "_symlink" in key]


class TestOverlooked:
    def test_by_all_that_looks_at_files(self, table: Table, s3_bucket: Bucket) -> None:
        table.keep_symlinks()
        assert table.verify() == []
        assert not table.adopt().entries
        assert not table.purge(apply=True).entries
        assert len(table.files()) == 2
        assert not [p for p in table.doctor() if "_symlink" in f"{p.subject} {p.detail}"]
        with table.job(mode="overwrite", replace_table=True) as job:
            job.write(ROWS)
        assert listed(s3_bucket) == urls(table)


class TestRefused:
    def test_a_table_with_files_that_nobody_adopted(self, s3_bucket: Bucket, table: Table) -> None:
        again = Table(f"s3://{s3_bucket.name}/older")
        for number, file in enumerate(table.files()):
            copy = {"Bucket": s3_bucket.name, "Key": file.key}
            key = f"older/{file.partition}/part-{number}.parquet"
            s3_bucket.client.copy_object(Bucket=s3_bucket.name, Key=key, CopySource=copy)
        with again.job(ROWS.schema) as job:
            job.write(ROWS.slice(0, 1))
        with pytest.raises(InvalidInputError, match="zero-rename adopt"):
            again.keep_symlinks()
        again.adopt(apply=True)
        assert again.keep_symlinks().partitions == 2

    def test_no_table(self, s3_bucket: Bucket) -> None:
        with pytest.raises(TableNotFoundError):
            Table(f"s3://{s3_bucket.name}/nothing").keep_symlinks()

    def test_a_table_whose_readers_list(self, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/loose")
        fill(table, coordination="none")
        with pytest.raises(InvalidInputError, match="coordination"):
            table.keep_symlinks()


#: In memory nothing is routed: a file's key says where it would lie.
FAST = "s3://fast/scratch"


def in_memory(store: MemoryStore) -> Table:
    """A table of a day whose first rows lie in a data root that was taken away, and whose present
    ones lie in the table."""
    table = memory_table(store)
    day_rows.load(table, 1, readers="heads", data_root=FAST)
    table.set_data_root(None, apply=True)
    day_rows.load(table, 2, mode="replace")
    return table


def keeps(store: MemoryStore) -> bool:
    """Whether the table keeps symlink manifests, as far as they can be true."""
    table = memory_table(store)
    report = table.drop_symlinks()  # Which only looks.
    named = store.objects.get(table.root.symlink_key("day=1"))
    elsewhere = [file.key for file in table.files() if is_fast(file.key)]
    if report.kept:
        assert (table.data_root, elsewhere, table.verify()) == (None, [], [])
        assert named is not None
        assert named.body.decode().splitlines() == urls(table)
    return report.kept


def told_beside(
    first: Callable[[Table], object],
    other: Callable[[Table], object],
    before: Callable[[Table], object] = lambda table: None,
) -> set[tuple[str, str, bool]]:
    """What two callers are told, and whether manifests are kept then, where the other one comes
    right before each request of the first.

    :param before: what has happened to the table.
    """
    told = set[tuple[str, str, bool]]()
    for number in count(1):
        store = MemoryStore()
        table = in_memory(store)
        before(table)
        sent, ends = count(1), list[str]()

        def beside(
            request: Any,
            apply: Callable[[Any], Any],
            *,
            sent: count[int] = sent,
            number: int = number,
            store: MemoryStore = store,
            ends: list[str] = ends,
        ) -> Any:
            if next(sent) == number:
                ends.append(end_of(other, memory_table(store)))
            return apply(request)

        table.driver.fault = beside  # type: ignore[attr-defined]
        end = end_of(first, table)
        if not ends:
            return told
        told.add((end, ends[0], keeps(store)))
    raise AssertionError("it counts on")


def end_of(call: Callable[[Table], object], table: Table) -> str:
    try:
        call(table)
    except RefusedError as error:
        return type(error).__name__
    return "done"


class TestDataRoot:
    """Manifests name files in the table's own bucket, so a table has them or a data root."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def test_manifests_beside_a_new_data_root_are_refused_or_refuse_it(self) -> None:
        def begun(table: Table) -> object:
            return table.keep_symlinks()

        def rooted(table: Table) -> object:
            return table.set_data_root(FAST, apply=True)

        told = told_beside(begun, rooted)
        assert told == {("InvalidInputError", "done", False), ("done", "InvalidInputError", True)}
        assert told_beside(rooted, begun) == {("InvalidInputError", "done", True)}

    def test_manifests_beside_a_restoration_from_a_data_root_are_refused_or_refuse_it(self) -> None:
        def begun(table: Table) -> object:
            return table.keep_symlinks()

        def restored(table: Table) -> object:
            return table.restore(1, partitions=["day=1"], apply=True)

        told = told_beside(begun, restored)
        assert told == {("InvalidInputError", "done", False), ("done", "InvalidInputError", True)}
        told = told_beside(restored, begun)
        assert told == {
            ("done", "InvalidInputError", False),
            ("InvalidInputError", "done", True),
            ("CommitConflictError", "done", True),
        }

    def test_a_job_open_under_a_former_data_root_refuses_manifests_until_it_has_ended(
        self, store: MemoryStore
    ) -> None:
        table = memory_table(store)
        day_rows.load(table, 1, readers="heads", data_root=FAST)
        opened = table.open_job(JobSpec(day_rows.SCHEMA, Mode.REPLACE, ("day",)))
        table.set_data_root(None, apply=True)
        day_rows.load(table, 2, mode="replace")
        writer = table.task_writer(opened, 0, 0)
        writer.write(day_rows.rows(3, day=2))
        with pytest.raises(InvalidInputError, match=rf"1 open job may .*scratch.*{opened.job}"):
            table.keep_symlinks()
        assert not keeps(store)
        table.commit(opened, [writer.close()])
        with pytest.raises(InvalidInputError, match="Symlink manifests name files"):
            table.keep_symlinks()
        table.checkpoint(apply=True)
        assert table.keep_symlinks().partitions == 2
        assert keeps(store)

    def test_a_job_that_commits_from_a_former_data_root_beside_manifests_refuses_them(self) -> None:
        jobs = list[Any]()

        def opened(table: Table) -> None:
            """Opens while the data root is there yet, and is about to commit."""
            table.set_data_root(FAST, apply=True)
            job = table.open_job(JobSpec(day_rows.SCHEMA, Mode.REPLACE, ("day",)))
            table.set_data_root(None, apply=True)
            writer = table.task_writer(job, 0, 0)
            writer.write(day_rows.rows(3))
            jobs.append((job, writer.close()))

        def committed(table: Table) -> object:
            job, result = jobs[-1]
            return table.commit(job, [result])

        def begun(table: Table) -> object:
            return table.keep_symlinks()

        assert told_beside(begun, committed, opened) == {("InvalidInputError", "done", False)}
        assert told_beside(committed, begun, opened) == {("done", "InvalidInputError", False)}

    @pytest.mark.parametrize("how", ["restored", "undone"])
    def test_files_of_a_former_data_root_are_not_brought_back_beside_manifests(
        self, store: MemoryStore, how: str
    ) -> None:
        table = in_memory(store)
        job = table.files()[0].job
        table.keep_symlinks()
        back = partial(table.undo, job)
        if how == "restored":
            back = partial(table.restore, 1, partitions=["day=1"])
        for apply in (False, True):
            with pytest.raises(InvalidInputError, match="lies in a fast root, and the table keeps"):
                back(apply=apply)
        assert keeps(store)
        assert day_rows.values(table) == [2]
        table.drop_symlinks(apply=True)
        back(apply=True)
        assert day_rows.values(table) == [1]

    def test_verify_names_a_manifest_of_files_in_a_former_data_root(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As an earlier version of the package may have written it."""
        table = memory_table(store)
        day_rows.load(table, 1, readers="heads", data_root=FAST)
        table.set_data_root(None, apply=True)
        with monkeypatch.context() as patch:
            patch.setattr(symlink_keeping, "is_fast", lambda key: False)
            table.keep_symlinks()
        (finding,) = table.verify()
        assert (finding.partition, finding.kind) == (DAY1, FindingKind.STALE)
        with pytest.raises(InvalidInputError, match="copy what lies there"):
            table.keep_symlinks()
        table.checkpoint(apply=True)
        assert table.verify() == []

    def test_a_restoration_of_what_lies_in_the_table_goes_on_beside_manifests(
        self, store: MemoryStore
    ) -> None:
        table = in_memory(store)
        day_rows.load(table, 3, mode="replace")
        table.keep_symlinks()
        table.restore(2, partitions=["day=1"], apply=True)
        assert keeps(store)
        assert day_rows.values(table) == [2]
