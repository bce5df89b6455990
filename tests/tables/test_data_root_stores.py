"""Data roots of Delta tables at another server: files of any size and name, keys of a profile, and
what is told when the server, its bucket or a file is gone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.fast_stores import FastStores, fast_stores
from support.moto_server import S3Server
from zero_rename.committer import FastRootGoneError, SnapshotGoneError
from zero_rename.committer.format.job_spec import FileOptions
from zero_rename.committer.store.copies import CopyFile
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.fast_root import FastRoot, is_fast
from zero_rename.committer.upkeep.checkpoint import CheckpointAction
from zero_rename.layouts.delta.data_roots import with_data_root
from zero_rename.tables import DeltaTable
from zero_rename.tables.delta_files import layout_of
from zero_rename.tables.delta_properties import change_properties

pytestmark = pytest.mark.memory_s3

URL = "s3://bucket/flights"


@pytest.fixture
def stores(s3_env: S3Server) -> Iterator[FastStores]:
    with fast_stores() as found:
        yield found


def opened(stores: FastStores, url: str = URL) -> DeltaTable:
    return DeltaTable(url, stores.durable.client())


def rows(*values: int, day: str = "1") -> pa.Table:
    return pa.table({"value": pa.array(values, pa.int64()), "day": [day] * len(values)})


def load(table: DeltaTable, *values: int, day: str = "1", **policy: Any) -> None:
    made = rows(*values, day=day)
    with table.job(made.schema, partition_by=["day"], **policy) as job:
        job.write(made)


def values(table: DeltaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["value"].to_pylist())


class TestFiles:
    def test_large_files_are_written_in_parts_and_read_by_ranges(self, stores: FastStores) -> None:
        table, count = opened(stores), 1_500_000
        made = rows(*range(count))
        options = FileOptions(compression="none", part_bytes=5 * 1024**2)
        with table.job(
            made.schema, partition_by=["day"], data_root=stores.data_root, files=options
        ) as job:
            job.write(made)
        found = table.scan(columns=["value"], filter=[("value", ">=", count - 1)]).to_arrow()
        assert found["value"].to_pylist() == [count - 1]
        assert [it.action for it in table.checkpoint(apply=True)] == [CheckpointAction.COPIED]
        assert table.scan().count() == count

    def test_files_of_the_same_store_are_copied_by_the_store(self, stores: FastStores) -> None:
        stores.durable.client().create_bucket(Bucket="near")
        table = opened(stores)
        load(table, 1, data_root="s3://near/scratch")
        sent: list[Any] = []
        table.driver = BotoDriver("bucket", table.driver.clients, observe=sent.append)
        table.checkpoint(apply=True)
        copies = [request for request in sent if isinstance(request, CopyFile)]
        assert [is_fast(copy.source.key) and not is_fast(copy.key) for copy in copies] == [True]
        assert values(table) == [1]

    @pytest.mark.parametrize(
        "root", ["s3://fast/scr atch/ü+%?endpoint={}", "s3://fast/scratch?profile=nvme"]
    )
    def test_partitions_of_any_name_are_found_by_the_keys_of_a_profile(
        self, stores: FastStores, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile = ["[profile nvme]", "region = us-east-1", f"endpoint_url = {stores.fast.endpoint}"]
        profile += ["aws_access_key_id = others", "aws_secret_access_key = others"]
        (tmp_path / "config").write_text("\n".join(profile), "utf-8")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        names = ["a b", "ü/ö", "100%", "%2F", "x=y", "..", "'\"", "e:\\f", "a&b?c#d+"]
        made = pa.table({"value": range(len(names)), "name": names})
        url, fast = "s3://bucket/tä ble", root.format(stores.fast.endpoint)
        with opened(stores, url).job(made.schema, partition_by=["name"], data_root=fast) as job:
            job.write(made)
        table = opened(stores, url)
        assert len(stores.files) == len(table.not_durable()) == len(names)
        before = table.state().log_version
        assert {it.action for it in table.checkpoint(apply=True)} == {CheckpointAction.COPIED}
        assert values(table) == list(range(len(names)))
        former = table.scan(as_of=before).to_arrow()
        assert sorted(former["name"].to_pylist()) == sorted(names)
        assert table.not_durable() == table.verify() == []

    def test_pickled_job_finds_the_root_in_another_process(self, stores: FastStores) -> None:
        """As Spark's executors get it."""
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        with table.job() as job:
            task = pickle.loads(pickle.dumps(job.opened))
            writer = opened(stores).task_writer(task, 0, 0)
            writer.write(rows(2))
            job.take([writer.close()], 1)
        assert len(stores.files) == 2
        assert values(table) == [1, 2]


class TestGone:
    def test_server_that_is_gone_is_told_with_the_way_to_go_on(
        self, stores: FastStores, impatient: None
    ) -> None:
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        table.checkpoint(apply=True)
        load(table, 2, day="2")
        stores.fast_end.close()
        table = opened(stores)
        durable = table.scan(["day=1"]).to_arrow()
        assert durable["value"].to_pylist() == [1]
        with pytest.raises(FastRootGoneError) as gone:
            table.scan().to_arrow()
        assert gone.value.table == URL
        assert f"zero-rename data-root {URL} none" in str(gone.value)
        with pytest.raises(FastRootGoneError, match=f"zero-rename data-root {URL} none") as gone:
            load(table, 3, day="3")
        assert gone.value.table == URL
        assert table.open_jobs() == []
        with pytest.raises(FastRootGoneError):
            table.checkpoint(apply=True)
        change = table.set_data_root(None, apply=True)
        assert [it.partition for it in change.not_durable] == ["day=2"]
        load(table, 2, day="2", mode="overwrite")
        load(table, 3, day="3")
        assert values(opened(stores)) == [1, 2, 3]
        assert table.verify() == []

    def test_file_that_is_gone_is_a_gone_snapshot_and_a_bucket_a_gone_root(
        self, stores: FastStores
    ) -> None:
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        client = stores.fast.client()
        client.delete_object(Bucket="fast", Key=stores.files[0])
        with pytest.raises(SnapshotGoneError, match="lineage plan"):
            table.scan().to_arrow()
        (mark,) = stores.keys(stores.fast, "fast")
        client.delete_object(Bucket="fast", Key=mark)
        client.delete_bucket(Bucket="fast")
        with pytest.raises(FastRootGoneError, match="no such bucket"):
            table.scan().to_arrow()


class TestDoctor:
    def test_root_that_is_whole_is_no_finding_and_stays_as_it_is(self, stores: FastStores) -> None:
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        there = stores.keys(stores.fast, "fast")
        assert table.doctor() == []
        assert stores.keys(stores.fast, "fast") == there

    def test_profile_that_this_host_lacks_is_named(self, stores: FastStores) -> None:
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        root = f"s3://fast/other?endpoint={stores.fast.endpoint}&profile=nobodys"
        with pytest.raises(FastRootGoneError, match="nobodys"):
            table.set_data_root(root, apply=True)
        # As another host has set it.
        change = partial(with_data_root, root=FastRoot.parse(root))
        table.run(change_properties(layout_of(table.root), change))
        (found,) = [it for it in table.doctor() if "fast" in it.what]
        assert "nobodys" in found.detail
        assert found.remedy.startswith("See AWS_PROFILE")
        with pytest.raises(FastRootGoneError, match="nobodys"):
            load(table, 2, day="2")
        assert values(table) == [1]

    def test_rule_that_deletes_what_the_log_names_is_named(self, stores: FastStores) -> None:
        table = opened(stores)
        load(table, 1, data_root=stores.data_root)
        rule = {"ID": "tidy", "Status": "Enabled", "Expiration": {"Days": 3}}
        for prefix, expected in (("other/", []), ("scratch/", ["tidy"])):
            stores.fast.client().put_bucket_lifecycle_configuration(
                Bucket="fast",
                LifecycleConfiguration={"Rules": [{**rule, "Filter": {"Prefix": prefix}}]},
            )
            what = "lifecycle rule expires the fast root"
            assert [it.subject for it in table.doctor() if it.what == what] == expected
