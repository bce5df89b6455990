"""A table copied to another root: what comes along, what is refused, and what a crash leaves."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import as_json, invoke
from support.day_rows import load, rows, values
from support.faults import Crash, at, beside
from support.memory_store import MemoryStore
from support.moto_server import S3Server, running
from support.protocol import SCHEMA, memory_table
from support.waiting import STUCK
from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    DamagedError,
    FileOptions,
    InvalidInputError,
    Progress,
    SnapshotGoneError,
    StoreRefusedError,
    StoreUnreachableError,
    TableMismatchError,
    table_copy,
)
from zero_rename.committer.rewritable_table import RewritableTable
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.copies import CopyPart
from zero_rename.committer.table_copy import FileCopier

pytestmark = pytest.mark.memory_s3

NEW = "s3://bucket/copied"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def old(store: MemoryStore) -> Table:
    """Two days, of which the first has been loaded twice and then some."""
    table = memory_table(store, "s3://bucket/flights")
    for day, value, mode in ((1, 1, "append"), (1, 2, "overwrite"), (2, 3, "append")):
        load(table, value, day=day, mode=mode)
    load(table, 4, 5)
    return table


def told(table: Table) -> list[tuple[Any, ...]]:
    """What is on record of each file but its place."""
    files = table.state().files
    return sorted((f.partition, f.size, f.rows, f.checksum, f.summary, f.content) for f in files)


class TestWhatComesAlong:
    def test_rows_and_records_by_the_store_alone(self, old: Table, store: MemoryStore) -> None:
        new = memory_table(store, NEW)
        done = old.copy(new)
        assert values(new) == values(old) == [2, 3, 4, 5]
        assert told(new) == told(old)
        assert (new.schema, new.partition_by) == (old.schema, old.partition_by)
        assert (done.partitions, done.files, done.rows) == (2, 3, 4)
        assert (done.on_server, done.rewritten, done.changed) == (True, 0, ())
        assert not new.verify()
        sent = new.driver.requests  # type: ignore[attr-defined]
        sent = [it for it in sent if isinstance(it, s.PutFile | s.UploadPart | s.CreateUpload)]
        data = [it for it in sent if "/probe/" not in it.key]
        assert {type(it) for it in data} == {s.CreateUpload}
        assert not store.upload_keys()

    def test_later_columns_and_wider_types(self, old: Table, store: MemoryStore) -> None:
        wide = pa.schema([*SCHEMA, ("late", pa.int64())])
        with old.job(wide, schema_mode="merge") as job:
            job.write(pa.table({"value": [6], "day": [3], "late": [60]}, schema=wide))
        new = memory_table(store, NEW)
        old.copy(new)
        assert new.to_arrow().sort_by("value") == old.to_arrow().sort_by("value")

    def test_columns_that_an_empty_table_does_not_know_for_later_ones(
        self, old: Table, store: MemoryStore
    ) -> None:
        """Its readers would take the files that lack them for damaged."""
        wide = pa.schema([*SCHEMA, ("late", pa.int64())])
        with old.job(wide, schema_mode="merge"):
            pass
        new = memory_table(store, NEW)
        with new.job(wide, partition_by=["day"]):
            pass
        with pytest.raises(TableMismatchError, match="may lack late"):
            old.copy(new)
        assert values(new) == []

    def test_a_table_without_partitions_and_content_by_rows(self, store: MemoryStore) -> None:
        old = memory_table(store, "s3://bucket/plain")
        schema = pa.schema([("value", pa.int64())])
        with old.job(schema, files=FileOptions(content="rows")) as job:  # type: ignore[arg-type]
            job.write(pa.table({"value": [1, 2]}))
        new = memory_table(store, NEW)
        old.copy(new)
        assert told(new) == told(old)
        assert told(new)[0][-1], "counted by rows"

    def test_what_the_rows_were_computed_from(self, old: Table, store: MemoryStore) -> None:
        made = memory_table(store, "s3://bucket/made")
        with made.job(SCHEMA, partition_by=["day"], inputs=[old.snapshot()]) as job:
            job.write(old.to_arrow())
        new = memory_table(store, NEW)
        done = made.copy(new)
        (read,) = new.inputs_of(done.job).tables
        assert read.table == old.root.url

    def test_an_empty_table(self, store: MemoryStore) -> None:
        old = memory_table(store, "s3://bucket/empty")
        with old.job(SCHEMA, partition_by=["day"]):
            pass
        new = memory_table(store, NEW)
        assert old.copy(new).files == 0
        assert new.schema == SCHEMA

    def test_files_above_what_one_request_copies(
        self, old: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_copy, "_AT_ONCE", 300)
        new = memory_table(store, NEW)
        old.copy(new)
        assert told(new) == told(old)
        assert new.to_arrow().num_rows == 4
        keys = {file.key for file in new.state().files}
        assert all(int(store.objects[key].etag.rpartition("-")[2]) >= 2 for key in keys)

    def test_files_from_before_the_table_are_written_anew(self, s3_bucket: Any) -> None:
        s3_bucket.put("flights/day=1/part-0.parquet", _parquet(rows(1, 2).drop(["day"])))
        old, new = (Table(f"s3://{s3_bucket.name}/{name}") for name in ("flights", "copied"))
        done = old.copy(new)
        assert (done.files, done.rows, done.rewritten) == (1, 2, 1)
        assert values(new) == [1, 2]
        assert new.state().files[0].rows == 2
        again = old.copy(new)
        assert (again.repeated, again.rewritten) == (True, 0)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def test_root_named_by_its_url_is_reached_as_the_table_is(s3_bucket: Any) -> None:
    table, new = Table(f"s3://{s3_bucket.name}/old"), f"s3://{s3_bucket.name}/new"
    load(table, 1)
    done = table.copy(new)
    assert values(Table(new)) == [1]
    assert (done.table, done.on_server) == (new, True)


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"new": "s3://bucket"}, "table root is"),
            ({"new": None}, "Invalid new=None: it must be a Table or a URL"),
        ],
    )
    def test_text_that_names_no_root(self, old: Table, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said):
            old.copy(**given)

    def test_a_root_that_holds_files(self, old: Table, store: MemoryStore) -> None:
        new = memory_table(store, NEW)
        load(new, 9)
        with pytest.raises(InvalidInputError, match="holds 1 file already"):
            old.copy(new)
        assert values(new) == [9]

    @pytest.mark.parametrize("empty", [False, True])
    def test_own_root_is_refused_and_no_job_is_left_on_record(
        self, old: Table, store: MemoryStore, empty: bool
    ) -> None:
        if empty:
            old.delete([("value", ">=", 0)])
        before = store.keys()
        with pytest.raises(InvalidInputError, match="onto itself"):
            old.copy(memory_table(store, f"{old.root.url}/"))
        assert store.keys() == before

    def test_a_root_that_holds_files_of_others(self, old: Table, store: MemoryStore) -> None:
        store.apply(s.Put("copied/day=1/part-0.parquet", _parquet(rows(9).drop(["day"]))))
        with pytest.raises((InvalidInputError, TableMismatchError)):
            old.copy(memory_table(store, NEW))
        # Nor the record of a job, which would be in the way of another committer.
        assert store.keys("copied/") == ["copied/day=1/part-0.parquet"]

    def test_another_loads_the_new_table_meanwhile(self, old: Table, store: MemoryStore) -> None:
        new = memory_table(store, NEW)

        def meanwhile(_: Progress) -> None:
            if not memory_table(store, NEW).exists():
                load(memory_table(store, NEW), 9)

        with pytest.raises(CommitConflictError):
            old.copy(new, progress=meanwhile)
        assert values(new) == [9]


class TestAgain:
    def test_the_same_copy_does_nothing(self, old: Table, store: MemoryStore) -> None:
        first = old.copy(memory_table(store, NEW))
        before = dict(store.objects)
        again = old.copy(memory_table(store, NEW))
        assert (again.job, again.repeated, first.repeated) == (first.job, True, False)
        assert store.objects == before

    def test_into_a_table_that_was_emptied_since_is_refused(
        self, old: Table, store: MemoryStore
    ) -> None:
        new = memory_table(store, NEW)
        first = old.copy(new)
        new.delete([("value", ">", 0)])
        assert values(new) == []
        with pytest.raises(InvalidInputError, match=f"Job {first.job} has copied .* emptied since"):
            old.copy(memory_table(store, NEW))
        assert values(new) == []

    def test_of_another_state_it_is_refused(self, old: Table, store: MemoryStore) -> None:
        old.copy(memory_table(store, NEW))
        load(old, 6)
        with pytest.raises(InvalidInputError, match="holds 3 files"):
            old.copy(memory_table(store, NEW))
        assert values(memory_table(store, NEW)) == [2, 3, 4, 5]

    def test_of_files_that_were_written_over_since_it_is_refused(self, s3_bucket: Any) -> None:
        """Another program may write other rows to the same key."""
        old, new = (Table(f"s3://{s3_bucket.name}/{name}") for name in ("flights", "copied"))
        for values_now in ([1, 2], [*range(100)]):
            body = _parquet(rows(*values_now).drop(["day"]))
            s3_bucket.put("flights/day=1/part-0.parquet", body)
            if len(values_now) == 2:
                old.copy(new)
        with pytest.raises(InvalidInputError, match="holds 1 file already"):
            old.copy(new)
        assert values(new) == [1, 2]


class TestMeanwhile:
    """What happens to the table that is copied, after its state was read."""

    def test_another_commits(self, old: Table, store: MemoryStore) -> None:
        new = memory_table(store, NEW)

        def meanwhile(_: Progress) -> None:
            load(old, 6, day=7)

        done = old.copy(new, progress=meanwhile)
        assert values(new) == [2, 3, 4, 5]
        assert done.changed == ("day=7",)

    def test_a_look_that_fails_after_the_commit_is_not_told_as_the_copys_failure(
        self, old: Table, store: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        new = memory_table(store, NEW)

        def unreachable_when_copied(request: Any, apply: Any) -> Any:
            there = memory_table(store, NEW)
            if there.exists() and there.files():
                raise StoreUnreachableError("The store did not answer.")
            return apply(request)

        old.driver.fault = unreachable_when_copied  # type: ignore[attr-defined]
        done = old.copy(new)
        assert (values(new), done.changed) == ([2, 3, 4, 5], None)
        assert f"the copy is committed, as job {done.job}" in caplog.text

    def test_a_file_is_gone(self, old: Table, store: MemoryStore) -> None:
        new = memory_table(store, NEW)

        new.driver.fault = beside(  # type: ignore[attr-defined]
            CopyPart, lambda: load(old, 6, mode="overwrite"), times=1
        )
        with pytest.raises(SnapshotGoneError, match="Nothing of the copy is visible") as caught:
            old.copy(new)
        assert caught.value.table == old.root.url
        assert not new.exists()
        left = [key for key in store.keys("copied/") if not key.startswith("copied/_zero_rename/")]
        assert left == []
        assert store.upload_keys() == []

    def test_the_store_copies_something_else(self, old: Table, store: MemoryStore) -> None:
        """A stranger has written over a file: nothing tells but its bytes."""
        key = old.state().files[0].key
        store.apply(s.Put(key, b"PAR1"))
        with pytest.raises(DamagedError, match="4 bytes"):
            old.copy(memory_table(store, NEW))
        assert not memory_table(store, NEW).exists()

    def test_files_that_no_head_tells_of(self, s3_bucket: Any) -> None:
        """Another committer is at work: which of its files belong together, nobody knows."""
        body = _parquet(rows(1).drop(["day"]))
        s3_bucket.put("flights/day=1/part-0.parquet", body)
        old, new = (Table(f"s3://{s3_bucket.name}/{name}") for name in ("flights", "copied"))

        def meanwhile(_: Progress) -> None:
            s3_bucket.put("flights/day=1/part-1.parquet", body)

        with pytest.raises(SnapshotGoneError, match="day=1 holds other files"):
            old.copy(new, progress=meanwhile)
        assert not new.exists()

    def test_a_crash_at_any_request_leaves_all_or_nothing(self, store: MemoryStore) -> None:
        old = memory_table(store, "s3://bucket/flights")
        load(old, 1, 2, day=1)
        load(old, 3, day=2)
        outcomes = set()
        for number in itertools.count(1):
            copied = store.copy()
            new, source = memory_table(copied, NEW), memory_table(copied, old.root.url)
            new.driver.fault = at(number, Crash)  # type: ignore[attr-defined]
            crashed = True
            with contextlib.suppress(Crash):
                source.copy(new)
                crashed = False
            again = memory_table(copied, NEW)
            if again.keys_there():
                again.recover(0)
            there = values(again) if again.exists() else []
            assert there in ([], [1, 2, 3])
            assert not [key for key in copied.upload_keys() if "/probe/" not in key]
            outcomes.add(bool(there))
            # And the same copy once more ends what was begun.
            source.copy(again)
            assert values(memory_table(copied, NEW)) == [1, 2, 3]
            if not crashed:
                assert outcomes == {True, False}
                return


class TestThroughTheClient:
    @pytest.fixture
    def elsewhere(self) -> Iterator[S3Server]:
        with running() as server:
            yield server

    def test_from_another_store(self, elsewhere: S3Server, s3_bucket: Any) -> None:
        there = elsewhere.client()
        there.create_bucket(Bucket="other")
        old = Table("s3://other/flights", there)
        load(old, *range(1000))
        load(old, 7, day=2)
        new = Table(f"s3://{s3_bucket.name}/copied")
        done = old.copy(new)
        assert (done.on_server, done.files, done.rows) == (False, 2, 1001)
        assert told(new) == told(old)
        assert values(new) == values(old)
        assert not new.verify()

    def test_bytes_that_are_not_those_committed(self, elsewhere: S3Server, s3_bucket: Any) -> None:
        there = elsewhere.client()
        there.create_bucket(Bucket="other")
        old = Table("s3://other/flights", there)
        load(old, 1)
        key = old.state().files[0].key
        body = bytearray(there.get_object(Bucket="other", Key=key)["Body"].read())
        body[20] ^= 1
        there.put_object(Bucket="other", Key=key, Body=bytes(body))
        new = Table(f"s3://{s3_bucket.name}/copied")
        with pytest.raises(DamagedError, match="SHA-256"):
            old.copy(new)
        assert not new.exists()

    def test_no_upload_is_left_where_one_of_several_files_fails(self, store: MemoryStore) -> None:
        """Files under way at the same time are waited for before the job is aborted."""
        old, new = memory_table(store), memory_table(copied := MemoryStore(), NEW)
        for day in (1, 2, 3):
            load(old, day, day=day)
        has_failed = threading.Event()

        def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
            if isinstance(request, s.Get) and "/day=1/" in request.key:
                has_failed.set()
                raise StoreRefusedError("the right is missing")
            if isinstance(request, s.Get) and request.key.endswith(".parquet"):
                has_failed.wait(STUCK)
                time.sleep(0.2)
            return apply(request)

        old.driver.fault = fault  # type: ignore[attr-defined]
        with pytest.raises(StoreRefusedError, match="the right is missing"):
            old.copy(new)
        assert copied.upload_keys() == []

    def test_by_a_profile(
        self, elsewhere: S3Server, s3_bucket: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its keys and endpoint, though the environment names others; none is in an argument."""
        there = elsewhere.client()
        there.create_bucket(Bucket="other")
        load(Table("s3://other/flights", there), 1, 2)
        config = tmp_path / "config"
        config.write_text(
            f"[profile elsewhere]\nendpoint_url = {elsewhere.endpoint}\nregion = us-east-1\n"
            "aws_access_key_id = other\naws_secret_access_key = secret\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        new = f"s3://{s3_bucket.name}/copied"
        done = as_json("copy", "s3://other/flights", new, "--from-profile", "elsewhere")
        assert (done["files"], done["on_server"]) == (1, False)
        assert values(Table(new)) == [1, 2]
        refused = invoke("copy", "s3://other/flights", new, "--from-profile", "nobody")
        assert refused.exit_code == 2
        assert "ProfileNotFound" in refused.output


class TestCommand:
    @pytest.fixture
    def urls(self, s3_bucket: Any) -> tuple[str, str]:
        old = f"s3://{s3_bucket.name}/flights"
        load(Table(old), 1, 2)
        return old, f"s3://{s3_bucket.name}/copied"

    def test_copies_on_the_servers_side(self, urls: tuple[str, str], s3_bucket: Any) -> None:
        done = invoke("copy", *urls)
        assert done.exit_code == 0, done.output
        assert "1 of 1 file copied" in done.output
        assert "The idempotency keys of OLD's runs were not copied" in done.output
        new = Table(urls[1])
        assert values(new) == [1, 2]
        (file,) = new.state().files
        found = s3_bucket.client.head_object(Bucket=s3_bucket.name, Key=file.key)
        assert found["Metadata"]["zero-rename-job"] == file.job
        again = invoke("copy", *urls)
        assert again.exit_code == 0
        assert "copied before" in again.output

    def test_says_what_changed_meanwhile(
        self, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = FileCopier.copy

        def copying(self: FileCopier, state: Any) -> Any:
            done = copy(self, state)
            load(Table(urls[0]), 3)
            return done

        monkeypatch.setattr(FileCopier, "copy", copying)
        done = invoke("copy", *urls)
        assert done.exit_code == 1
        assert "OLD has changed meanwhile in day=1" in done.output
        assert values(Table(urls[1])) == [1, 2]

    def test_says_that_the_copy_is_whole_where_the_last_look_failed(
        self, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look = RewritableTable._changed_since

        def looking(self: RewritableTable, state: Any, held: bool = False) -> Any:
            if not held:
                raise StoreUnreachableError("The store did not answer.")
            return look(self, state, held)

        monkeypatch.setattr(RewritableTable, "_changed_since", looking)
        done = invoke("copy", *urls)
        assert done.exit_code == 1
        assert "NEW is complete" in done.output
        assert values(Table(urls[1])) == [1, 2]
