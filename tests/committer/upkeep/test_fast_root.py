"""Tables whose files lie in a fast root first: where these are, how they become durable, and what
is lost with the root."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import day_rows
from support.command_line import as_json, invoke
from support.day_rows import load_rows, rows, values
from support.faults import Crash
from support.memory_s3 import MemoryS3, answering
from support.memory_store import Behaviour, MemoryStore
from support.moto_server import S3Server
from support.protocol import SCHEMA, memory_table
from zero_rename.committer import (
    FastRootGoneError,
    InvalidInputError,
    SnapshotGoneError,
    Table,
    TableMismatchError,
)
from zero_rename.committer.format.job_spec import FileOptions
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.copies import CopyFile
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.fast_root import FastPlace, FastRoot, is_fast
from zero_rename.committer.table_copy import FileCopier
from zero_rename.committer.upkeep import checkpoint
from zero_rename.committer.upkeep.checkpoint import CheckpointAction
from zero_rename.committer.upkeep.verify import FindingKind

pytestmark = pytest.mark.memory_s3

URL = "s3://bucket/flights"
#: Of tests in memory, where nothing is routed: the keys say where a file would lie.
FAST = "s3://fast/scratch"


def load(table: Table, *values: int, **policy: Any) -> None:
    day_rows.load(table, *values, **{"readers": "heads", **policy})


def load_days(table: Table, *days: int) -> None:
    """A job that writes several days, each a row of that value."""
    load_rows(table, pa.table({"value": days, "day": days}, schema=SCHEMA))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(store: MemoryStore) -> Table:
    """Three days, of which the first is durable, all in memory."""
    table = memory_table(store)
    load(table, 1, data_root=FAST)
    table.checkpoint(apply=True)
    load(table, 2, day=2)
    load(table, 3, day=3)
    return table


def dies_at(number: int) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """The fault of a process that dies after a request, the first being 0; and sends none after."""
    sent = count()

    def fault(request: Any, apply: Callable[[Any], Any]) -> Any:
        turn = next(sent)
        answer = apply(request) if turn <= number else None
        if turn >= number:
            raise Crash
        return answer

    return fault


@dataclass
class Stores:
    """A table's own store and a fast one, each a server of its own."""

    durable: S3Server
    fast: S3Server

    @property
    def data_root(self) -> str:
        return f"s3://fast/scratch?endpoint={self.fast.endpoint}"

    def table(self, url: str = URL) -> Table:
        return Table(url, self.durable.client())

    def keys(self, server: S3Server, bucket: str) -> list[str]:
        listed = server.client().list_objects_v2(Bucket=bucket)
        return [item["Key"] for item in listed.get("Contents", ())]


@pytest.fixture
def ended() -> Iterator[contextlib.ExitStack]:
    """Ends the fast server."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def stores(ended: contextlib.ExitStack, s3_env: S3Server) -> Iterator[Stores]:
    durable, fast = MemoryS3("http://durable.invalid"), MemoryS3("http://127.0.0.1:1")
    with answering(durable):
        ended.enter_context(answering(fast))  # After its end nothing listens there.
        durable.client().create_bucket(Bucket="bucket")
        fast.client().create_bucket(Bucket="fast")
        yield Stores(durable, fast)


class TestRoot:
    @pytest.mark.parametrize(
        "text",
        [
            "s3://fast/scratch",
            "s3://fast/a/b?endpoint=http://127.0.0.1:9000",
            "s3://fast/a?endpoint=https://fast.example:9000&profile=my+fast&temporary=true",
        ],
    )
    def test_what_it_says_it_reads(self, text: str) -> None:
        assert FastRoot.parse(text).url == text
        assert FastRoot.parse(FastRoot.parse(text).url) == FastRoot.parse(text)

    @pytest.mark.parametrize(
        "text",
        [
            *("fast", "s3://fast", "s3://fast/", "s3://fast/a//b", "s3://fast/../b", "file://a/b"),
            *("s3://fast/a?endpoint=ftp://x", "s3://fast/a?endpoint=http://user:secret@x"),
            *("s3://fast/a?profile=", "s3://fast/a?key=secret", "s3://fast/a?temporary=1"),
            *(
                "s3://fast/a?user=a:secret@b",
                "s3://user:secret@fast/a",
                "s3://fast/a?endpoint=http://x:port",
            ),
        ],
    )
    def test_others_are_refused_without_their_secrets(self, text: str) -> None:
        with pytest.raises(InvalidInputError) as refused:
            FastRoot.parse(text)
        assert "secret" not in str(refused.value)

    def test_a_key_says_where_it_lies(self, table: Table) -> None:
        key = next(file.key for file in table.snapshot().files if is_fast(file.key))
        place = FastPlace.of("bucket", key)
        assert place is not None
        job = table.snapshot(["day=2"]).files[0].job
        assert place.real(key).startswith(f"scratch/bucket/flights/{job}/day=2/part-00000-0-")
        assert FastPlace.of("bucket", "flights/_zero_rename/data/x") is None


class TestTwoServers:
    def test_data_goes_to_the_fast_one_and_all_else_to_the_other(self, stores: Stores) -> None:
        table = stores.table()
        load(table, 1, 2, data_root=stores.data_root)
        load(stores.table(), 3, day=2)
        assert values(stores.table()) == [1, 2, 3]
        fast = stores.keys(stores.fast, "fast")
        assert len(fast) == 2
        assert all(key.startswith("scratch/bucket/flights/zr1-") for key in fast)
        assert not [key for key in stores.keys(stores.durable, "bucket") if "/data/" in key]
        assert table.verify() == []

    def test_large_files_and_filtered_reads_go_there_too(self, stores: Stores) -> None:
        """An upload in parts, and reads of ranges."""
        table = stores.table()
        made = pa.table({"value": list(range(1_500_000)), "day": [1] * 1_500_000}, schema=SCHEMA)
        options = FileOptions(compression="none", part_bytes=5 * 1024**2)
        with table.job(
            SCHEMA, partition_by=["day"], readers="heads", data_root=stores.data_root, files=options
        ) as job:
            job.write(made)
        assert table.scan(columns=["value"], filter=[("value", ">=", 1_499_999)]).to_arrow()[
            "value"
        ].to_pylist() == [1_499_999]
        done = table.checkpoint(apply=True)
        assert [it.action for it in done] == [CheckpointAction.COPIED]
        assert table.to_arrow().num_rows == 1_500_000

    def test_a_checkpoint_copies_and_a_purge_takes_what_is_kept_no_more(
        self, stores: Stores
    ) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        load(table, 2, day=2)
        before = table.snapshot()
        done = table.checkpoint(apply=True)
        assert [(it.partition, it.action) for it in done] == [
            ("day=1", CheckpointAction.COPIED),
            ("day=2", CheckpointAction.COPIED),
        ]
        assert table.not_durable() == []
        after = table.snapshot()
        assert [f.checksum for f in after.files] == [f.checksum for f in before.files]
        assert len(stores.keys(stores.fast, "fast")) == 2
        table.purge(keep=0, apply=True)
        assert stores.keys(stores.fast, "fast") == []
        assert values(table) == [1, 2]
        assert table.verify() == []
        assert table.checkpoint(apply=True) == []

    def test_one_bucket_is_copied_by_the_store(self, stores: Stores) -> None:
        stores.durable.client().create_bucket(Bucket="near")
        table = stores.table()
        load(table, 1, data_root="s3://near/scratch")
        sent: list[Any] = []
        table.driver = BotoDriver("bucket", table.driver.clients, observe=sent.append)
        table.checkpoint(apply=True)
        copies = [request for request in sent if isinstance(request, CopyFile)]
        assert [is_fast(copy.source.key) and not is_fast(copy.key) for copy in copies] == [True]
        assert values(table) == [1]

    def test_the_root_gone_is_told_soon_and_gone_on_without(
        self, stores: Stores, ended: contextlib.ExitStack, impatient: None
    ) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        table.checkpoint(apply=True)
        load(table, 2, day=2)
        ended.close()
        table = stores.table()
        assert table.to_arrow(partitions=["day=1"])["value"].to_pylist() == [1]
        with pytest.raises(FastRootGoneError) as gone:
            table.to_arrow()
        assert gone.value.table == URL
        assert f"zero-rename data-root {URL} none" in str(gone.value)
        lost, history = table.verify()
        assert (lost.partition, lost.kind) == ("day=2", FindingKind.MISSING)
        assert (history.partition, "only kept for" in history.detail) == ("day=1", True)
        with pytest.raises(FastRootGoneError, match=f"zero-rename data-root {URL} none") as gone:
            load(table, 3, day=3)
        assert gone.value.table == URL
        assert "Nothing of it is visible" in str(gone.value)
        assert table.open_jobs() == []
        change = table.set_data_root(None, apply=True)
        assert [it.partition for it in change.not_durable] == ["day=2"]
        load(table, 2, day=2, mode="overwrite")
        load(table, 3, day=3)
        assert values(stores.table()) == [1, 2, 3]
        assert table.verify()[0].detail.endswith("only kept for its former versions")
        table.purge(keep=0, apply=True)
        assert table.verify() == []

    def test_a_bucket_that_is_gone_is_a_root_that_is_gone(self, stores: Stores) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        client = stores.fast.client()
        client.delete_object(Bucket="fast", Key=stores.keys(stores.fast, "fast")[0])
        with pytest.raises(SnapshotGoneError, match="lineage plan"):
            table.to_arrow()
        client.delete_bucket(Bucket="fast")
        with pytest.raises(FastRootGoneError, match="no such bucket"):
            table.to_arrow()

    @pytest.mark.parametrize(
        "root", ["s3://fast/scr atch/ü+%?endpoint={}", "s3://fast/scratch?profile=nvme"]
    )
    def test_any_name_and_the_keys_of_a_profile(
        self, stores: Stores, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Loaded, read, copied, read as it was before, copied as a table, and purged."""
        profile = ["[profile nvme]", "region = us-east-1", f"endpoint_url = {stores.fast.endpoint}"]
        profile += ["aws_access_key_id = others", "aws_secret_access_key = others"]
        (tmp_path / "config").write_text("\n".join(profile), "utf-8")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        names = ["a b", "ü/ö", "100%", "%2F", "x=y", "..", "'\"", "e:\\f", "a&b?c#d+"]
        made = pa.table({"value": range(len(names)), "name": names})
        table = stores.table("s3://bucket/tä ble")
        policy: dict[str, Any] = {"partition_by": ["name"], "readers": "heads"}
        with table.job(made.schema, data_root=root.format(stores.fast.endpoint), **policy) as job:
            job.write(made)
        table = stores.table(table.root.url)
        assert len(stores.keys(stores.fast, "fast")) == len(table.not_durable()) == len(names)
        before = table.snapshot()
        done = table.checkpoint(apply=True)
        assert {it.action for it in done} == {CheckpointAction.COPIED}
        assert values(table) == list(range(len(names)))
        former = table.scan(snapshot=before).to_arrow()
        assert sorted(former["name"].to_pylist()) == sorted(names)
        copy = stores.table("s3://bucket/copy")
        table.copy(copy)
        assert copy.to_arrow().sort_by("value") == table.to_arrow().sort_by("value")
        table.purge(keep=0, apply=True)
        assert stores.keys(stores.fast, "fast") == []
        assert table.verify() == []

    def test_sigterm_aborts_what_is_under_way(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        before = signal.getsignal(signal.SIGTERM)
        copy = FileCopier.copy

        def terminated(self: FileCopier, state: Any) -> Any:
            assert self._lanes is not None
            with contextlib.suppress(RuntimeError, CancelledError):  # There are no lanes any more.
                while True:  # One that comes as the main thread is about to wait is not seen yet.
                    os.kill(os.getpid(), signal.SIGTERM)
                    self._lanes.submit(int).result()
            return copy(self, state)

        monkeypatch.setattr(FileCopier, "copy", terminated)
        with pytest.raises(SystemExit) as caught:
            table.checkpoint(apply=True)
        assert caught.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before
        assert table.open_jobs() == []
        assert [it.partition for it in table.not_durable()] == ["day=1"]

    def test_a_pickled_job_finds_the_root_in_another_process(self, stores: Stores) -> None:
        """As Spark's executors get it."""
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        with table.job() as job:
            opened = pickle.loads(pickle.dumps(job.opened))
            writer = stores.table().task_writer(opened, 0, 0)
            writer.write(rows(2))
            job.take([writer.close()], 1)
        assert len(stores.keys(stores.fast, "fast")) == 2
        assert values(table) == [1, 2]


class TestRefused:
    def test_where_readers_list(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError, match="readers go by heads"):
            load(memory_table(store), 1, readers="listing", data_root=FAST)
        assert not [key for key in store.keys("") if "open/" in key or "table.json" in key]

    @pytest.mark.parametrize("root", ["s3://bucket/flights", "s3://bucket/flights/fast"])
    def test_in_the_table(self, store: MemoryStore, root: str) -> None:
        with pytest.raises(InvalidInputError, match="lies in the table"):
            load(memory_table(store), 1, data_root=root)

    def test_another_than_the_tables(self, table: Table) -> None:
        load(table, 4, data_root=FAST)
        with pytest.raises(TableMismatchError, match="data-root"):
            load(table, 4, data_root="s3://other/scratch")
        table.set_data_root("s3://other/scratch", apply=True)
        load(table, 4, data_root="s3://other/scratch")
        assert values(table) == [1, 2, 3, 4, 4]

    def test_symlink_manifests(self, table: Table) -> None:
        for _ in range(2):
            with pytest.raises(InvalidInputError, match="Symlink manifests"):
                table.keep_symlinks()
            table.set_data_root(None, apply=True)
        table.checkpoint(apply=True)
        assert table.keep_symlinks().partitions == 3
        with pytest.raises(InvalidInputError, match="Symlink manifests"):
            table.set_data_root(FAST, apply=True)

    def test_a_temporary_table_is_never_copied(self, store: MemoryStore) -> None:
        table = memory_table(store)
        load(table, 1, data_root=f"{FAST}?temporary=true")
        with pytest.raises(InvalidInputError, match="temporary"):
            table.checkpoint(apply=True)
        table.set_data_root(FAST, apply=True)
        assert table.checkpoint(apply=True)[0].action is CheckpointAction.COPIED

    def test_versions_before_read_no_such_table(self, store: MemoryStore, table: Table) -> None:
        assert json.loads(store.objects["flights/_zero_rename/table.json"].body)["format"] == 4


class TestCheckpoint:
    def test_what_is_not_durable_is_told_with_since_when(self, table: Table) -> None:
        told = table.not_durable()
        assert [(it.partition, it.files, it.rows) for it in told] == [
            ("day=2", 1, 1),
            ("day=3", 1, 1),
        ]
        assert 0 <= time.time() - told[0].since < 60

    @pytest.mark.parametrize(
        ("order", "days"),
        [("creation", ["day=2", "day=3", "day=1"]), ("latest", ["day=1", "day=3", "day=2"])],
    )
    def test_orders(self, table: Table, order: str, days: list[str]) -> None:
        load(table, 4, mode="overwrite")
        assert [it.partition for it in table.checkpoint(order=order)] == days

    def test_only_what_heads_name_now_is_copied(self, table: Table) -> None:
        load(table, 20, day=2, mode="overwrite")
        driver: Any = table.driver
        driver.requests.clear()
        table.checkpoint(apply=True)
        copies = [request for request in driver.requests if isinstance(request, CopyFile)]
        assert len(copies) == 2
        assert values(table) == [1, 3, 20]
        assert table.at(version=1, partition="day=2").files

    def test_content_lineage_and_whose_rows_they_are_stay(self, table: Table) -> None:
        before = table.snapshot(["day=2"]).files
        table.checkpoint(apply=True)
        after = table.snapshot(["day=2"]).files
        assert [(f.rows, f.checksum, f.content, f.summary) for f in before] == [
            (f.rows, f.checksum, f.content, f.summary) for f in after
        ]
        done = table.result(after[0].job)
        assert done is not None
        assert done.rewritten
        assert table.inputs_of(after[0].job).tables == table.inputs_of(before[0].job).tables

    def test_a_head_that_moved_on_is_left_to_the_next(
        self, store: MemoryStore, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = FileCopier.copy

        def slow(self: FileCopier, state: Any) -> Any:
            if state.files[0].partition == "day=2":
                load(memory_table(store), 20, day=2, mode="overwrite")
            return copy(self, state)

        monkeypatch.setattr(FileCopier, "copy", slow)
        done = table.checkpoint(apply=True)
        assert [it.action for it in done] == [
            CheckpointAction.CHANGED_MEANWHILE,
            CheckpointAction.COPIED,
        ]
        assert values(table) == [1, 3, 20]
        assert [it.partition for it in table.not_durable()] == ["day=2"]

    def test_what_was_written_together_is_copied_by_one_job(self, table: Table) -> None:
        """So what rows were computed from is told as exactly as before."""
        load_days(table, 4, 5, 6)
        done = table.checkpoint(order="latest", apply=True)
        assert [it.partition for it in done] == ["day=4", "day=5", "day=6", "day=3", "day=2"]
        assert all(it.action is CheckpointAction.COPIED for it in done)
        jobs = [it.job for it in done]
        assert len(set(jobs[:3])) == 1
        assert len(set(jobs)) == 3
        assert values(table) == [1, 2, 3, 4, 5, 6]
        assert table.verify() == []

    def test_no_job_copies_much_beside_what_may_change_meanwhile(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_days(table, 4, 5, 6)
        two = sum(it.bytes for it in table.not_durable()[-2:])
        monkeypatch.setattr(checkpoint, "_TOGETHER", two)
        done = table.checkpoint(["day=4", "day=5", "day=6"], apply=True)
        assert [it.job == done[0].job for it in done] == [True, True, False]
        assert values(table) == [1, 2, 3, 4, 5, 6]

    def test_of_those_copied_together_one_that_moved_on_or_is_lost_keeps_no_other(
        self, store: MemoryStore, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load_days(table, 4, 5, 6)
        store.apply(s.Delete(table.snapshot(["day=6"]).files[0].key))
        copy = FileCopier.copy

        def slow(self: FileCopier, state: Any) -> Any:
            if "day=4" in state.versions:
                load(memory_table(store), 40, day=4, mode="overwrite")
            return copy(self, state)

        monkeypatch.setattr(FileCopier, "copy", slow)
        done = table.checkpoint(["day=4", "day=5", "day=6"], apply=True)
        assert {it.partition: it.action for it in done} == {
            "day=4": CheckpointAction.CHANGED_MEANWHILE,
            "day=5": CheckpointAction.COPIED,
            "day=6": CheckpointAction.LOST,
        }
        assert table.open_jobs() == []
        assert [it.partition for it in table.not_durable()][-2:] == ["day=4", "day=6"]

    @pytest.mark.parametrize("atomic", [True, False])
    def test_jobs_run_at_once_where_a_store_bears_several_writers(
        self, atomic: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = "MemoryStore" if atomic else "VERSITYGW"
        store = MemoryStore(behaviour=Behaviour(server_name=name))
        table = memory_table(store)
        for day in range(4):
            load(table, day, day=day, data_root=FAST)
        copy, together, most = FileCopier.copy, threading.Barrier(4), list[int]()

        def slow(self: FileCopier, state: Any) -> Any:
            most.append(len(table.open_jobs()))
            if atomic:
                together.wait(30)
            return copy(self, state)

        monkeypatch.setattr(FileCopier, "copy", slow)
        done = table.checkpoint(apply=True)
        assert [it.action for it in done] == [CheckpointAction.COPIED] * 4
        assert len({it.job for it in done}) == 4
        assert max(most) == (4 if atomic else 1)
        assert values(table) == [0, 1, 2, 3]

    def test_a_lost_file_is_told_and_the_others_are_copied(
        self, store: MemoryStore, table: Table
    ) -> None:
        lost = table.snapshot(["day=2"]).files[0].key
        store.apply(s.Delete(lost))
        done = table.checkpoint(apply=True)
        assert [it.action for it in done] == [CheckpointAction.LOST, CheckpointAction.COPIED]
        assert table.open_jobs() == []
        assert [finding.key for finding in table.verify()] == [lost]

    @pytest.mark.parametrize("days", [["day=2"], ["day=4", "day=5"], ["day=2", "day=4", "day=5"]])
    def test_killed_at_any_request_it_is_done_again_and_no_row_moves(
        self, store: MemoryStore, table: Table, days: list[str]
    ) -> None:
        """Whatever it had sent, the fast file is there as long as a head names it: one partition,
        two by one job, and two jobs at once."""
        load_days(table, 4, 5)
        rows = [1, 2, 3, 4, 5]
        copied = store.copy()
        probe = memory_table(copied)
        probe.checkpoint(days, apply=True)
        number = len(probe.driver.requests)  # type: ignore[attr-defined]
        for at in range(number):
            there = store.copy()
            killed = memory_table(there)
            killed.driver.fault = dies_at(at)  # type: ignore[attr-defined]
            with contextlib.suppress(Crash):
                killed.checkpoint(days, apply=True)
            after = memory_table(there)
            assert values(after) == rows, at
            after.purge(patience=0, apply=True)
            assert values(after) == rows, at
            after.checkpoint(apply=True)
            assert after.not_durable() == [], at
            assert values(after) == rows, at
            after.purge(keep=0, patience=0, apply=True)
            assert not [key for key in there.keys("") if is_fast(key)], at
            assert after.verify() == [], at


class TestDoctor:
    """What it finds about the fast root, beside the table's own bucket."""

    def test_one_that_is_whole(self, stores: Stores) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        there = stores.keys(stores.fast, "fast")
        assert table.doctor() == []
        assert stores.keys(stores.fast, "fast") == there

    def test_one_that_is_gone(
        self, stores: Stores, ended: contextlib.ExitStack, impatient: None
    ) -> None:
        load(stores.table(), 1, data_root=stores.data_root)
        ended.close()
        (found,) = [it for it in stores.table().doctor() if "fast" in it.what]
        assert found.what == "fast root out of reach"
        assert found.subject == stores.data_root
        assert f"zero-rename data-root {URL} none" in found.remedy
        with pytest.raises(FastRootGoneError):
            stores.table().checkpoint(apply=True)

    def test_one_that_this_host_has_no_profile_for(self, stores: Stores) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        root = f"{stores.data_root}&profile=nobodys"
        table.set_data_root(root, apply=True)
        (found,) = [it for it in table.doctor() if "fast" in it.what]
        assert "nobodys" in found.detail
        assert found.remedy.startswith("See AWS_PROFILE")
        with pytest.raises(FastRootGoneError, match="nobodys"):
            load(table, 2, day=2)
        assert values(table) == [1]

    def test_a_rule_that_deletes_what_heads_name(self, stores: Stores) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        rule = {"ID": "tidy", "Status": "Enabled", "Expiration": {"Days": 3}}
        for prefix, expected in (("other/", []), ("scratch/", ["tidy"])):
            stores.fast.client().put_bucket_lifecycle_configuration(
                Bucket="fast",
                LifecycleConfiguration={"Rules": [{**rule, "Filter": {"Prefix": prefix}}]},
            )
            told = [
                it for it in table.doctor() if it.what == "lifecycle rule expires the fast root"
            ]
            assert [it.subject for it in told] == expected


class TestFormerRoots:
    """What lies in a root that the table had before goes as what lies in its present one."""

    def fast(self, store: MemoryStore) -> list[str]:
        return [key for key in store.keys("") if is_fast(key)]

    def roots(self, store: MemoryStore) -> list[str]:
        record = json.loads(store.objects["flights/_zero_rename/table.json"].body)
        return record.get("former_roots", [])

    @pytest.mark.parametrize("root", [None, "s3://fast/other"])
    def test_a_purge_removes_what_nothing_names_and_forgets_the_root(
        self, store: MemoryStore, table: Table, root: str | None
    ) -> None:
        dead = table.job()
        dead.__enter__()
        begun = (
            f"{table.root.fast_data_prefix(FastRoot.parse(FAST))}{dead.job}/day=2/part-0.parquet"
        )
        store.apply(s.CreateUpload(begun, s.ObjectSettings()))
        table.set_data_root(root, apply=True)
        load(table, 20, day=2, mode="overwrite")
        table.purge(keep=0, apply=True)
        assert self.roots(store) == [FAST]
        assert values(table) == [1, 3, 20]
        dead.__exit__(OSError, OSError(), None)
        load(table, 30, day=3, mode="overwrite")
        table.purge(keep=0, apply=True)
        assert store.uploads == {}
        assert self.roots(store) == []
        former = table.root.fast_data_prefix(FastRoot.parse(FAST))
        assert [key for key in self.fast(store) if key.startswith(former)] == []
        assert values(table) == [1, 20, 30]
        assert table.verify() == []

    def test_one_that_is_the_present_one_again_is_no_former_one(
        self, store: MemoryStore, table: Table
    ) -> None:
        for root in ("s3://fast/other", None, f"{FAST}?temporary=true"):
            table.set_data_root(root, apply=True)
        assert self.roots(store) == ["s3://fast/other"]

    def test_one_in_which_a_job_may_write_yet_is_kept(
        self, store: MemoryStore, table: Table
    ) -> None:
        with memory_table(store).job() as job:
            table.set_data_root(None, apply=True)
            table.checkpoint(apply=True)
            table.purge(keep=0, apply=True)
            job.write(rows(4, day=4))
        assert self.roots(store) == [FAST]
        assert len(self.fast(store)) == 1
        table.checkpoint(apply=True)
        table.purge(keep=0, apply=True)
        assert (self.roots(store), self.fast(store)) == ([], [])
        assert values(table) == [1, 2, 3, 4]

    def test_one_that_is_gone_is_forgotten_with_what_named_it(
        self, stores: Stores, ended: contextlib.ExitStack, impatient: None
    ) -> None:
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        table.set_data_root(None, apply=True)
        ended.close()
        former = stores.table()
        former.purge(apply=True)
        key = {"Bucket": "bucket", "Key": "flights/_zero_rename/table.json"}
        client = stores.durable.client()
        assert b"former_roots" in client.get_object(**key)["Body"].read()
        load(former, 2, mode="overwrite")
        former.purge(keep=0, apply=True)
        assert b"former_roots" not in client.get_object(**key)["Body"].read()
        assert values(former) == [2]


class TestTold:
    def test_by_show_and_by_doctor_after_a_day(self, stores: Stores, monkeypatch: Any) -> None:
        for name, value in stores.durable.environment.items():
            monkeypatch.setenv(name, value)
        table = stores.table()
        load(table, 1, data_root=stores.data_root)
        load(table, 2, day=2)
        table.set_data_root(f"{stores.data_root}&temporary=true", apply=True)
        shown = invoke("show", URL)
        assert "bytes lie only in a fast root, which is temporary" in shown.output
        assert [it["temporary"] > 0 for it in as_json("show", URL)] == [True, True]
        table.set_data_root(stores.data_root, apply=True)
        table.checkpoint(["day=1"], apply=True)
        shown = invoke("show", URL)
        assert "lie only in a fast root, since" in shown.output
        assert [it["not durable"] > 0 for it in as_json("show", URL)] == [False, True]
        assert "not durable" not in [it.what for it in table.doctor()]
        # A store's date tells whole seconds; a job's clock may be ahead of it by one.
        monkeypatch.setattr(checkpoint, "_LATE", -1.0)
        (told,) = [it for it in table.doctor() if it.what == "not durable"]
        assert "1 partition has files" in told.detail
        assert told.subject == "day=2"
        asked = as_json("data-root", URL)
        assert [it["partition"] for it in asked["not_durable"]] == ["day=2"]
