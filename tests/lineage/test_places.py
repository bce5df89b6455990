"""Tables of either layout in folders that are called as partitions are, and tables that were made
anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from conftest import Bucket

from support.command_line import invoke
from zero_rename import Table
from zero_rename.committer import Content, FileOptions, Owner, StoreRefusedError, TableNotFoundError
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.lineage import LineageState as State
from zero_rename.lineage import look_up, plan
from zero_rename.lineage.bound import risks_of
from zero_rename.tables import DeltaTable

from .test_delta_tables import DeltaLake
from .test_lineage import Lake

pytestmark = pytest.mark.memory_s3

#: Where a table may lie.
PLACES = ("wh/source=crm/flights", "wh/source=crm", "source=crm/flights", "a=1/b/c=2/flights")


@pytest.fixture(autouse=True)
def _nothing_read() -> Iterator[None]:
    forget_reads()
    yield
    forget_reads()


@pytest.mark.parametrize("kind", [Table, DeltaTable])
@pytest.mark.parametrize("place", PLACES)
def test_table_in_a_folder_called_as_a_partition_is_found(
    kind: Any, place: str, s3_bucket: Bucket
) -> None:
    table = kind(f"s3://{s3_bucket.name}/{place}")
    rows = pa.table({"x": [1, 1], "day": [1, 2]})
    with table.job(rows.schema, partition_by=["day"], code_version="3") as job:
        job.write(rows)
    url = table.root.url
    assert [it.partition for it in look_up([url]).partitions()] == ["day=1", "day=2"]
    ((found,),) = (look_up([f"{url}/day=2"]).partitions(),)
    assert (found.table, found.partition, found.code_versions) == (url, "day=2", ("3",))
    assert look_up([url], code_versions={url: "4"}).partitions()[0].state is State.STALE
    for said in ("4", f"{url}=4", f"{url.replace('s3://', 'S3A://')}=4"):
        told = invoke("lineage", "stale", f"{url}/day=2", "--code-version", said)
        assert told.exit_code == 1
        assert "code version 3, now 4" in " ".join(told.output.split())


def test_place_without_a_table_is_named_by_the_folder_above_its_partition(
    s3_bucket: Bucket,
) -> None:
    url = f"s3://{s3_bucket.name}/wh/flights"
    with pytest.raises(TableNotFoundError) as caught:
        look_up([f"{url}/day=1"])
    assert caught.value.table == url


@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_durable_in_such_a_folder_is_told(place: str, s3_bucket: Bucket) -> None:
    table = DeltaTable(f"s3://{s3_bucket.name}/{place}")
    rows = pa.table({"x": [1], "day": [1]})
    fast = f"s3://{s3_bucket.name}/fast"
    with table.job(rows.schema, partition_by=["day"], data_root=fast) as job:
        job.write(rows)
    (told,) = risks_of(table, 0.0)
    assert "day=1" in told


@pytest.mark.parametrize("kind", [Lake, DeltaLake])
@pytest.mark.parametrize("loads", [1, 2])
def test_input_that_was_deleted_and_made_anew_is_held_by_its_rows(
    kind: type[Lake], loads: int, s3_bucket: Bucket
) -> None:
    """Its versions begin anew, and may be those that were read."""
    lake = kind(s3_bucket)

    def load(x: int) -> None:
        for _ in range(loads):
            lake.load(0, x=x)

    load(1)
    lake.week(0)
    for x, state in ((1, State.FRESH), (77, State.STALE)):
        for it in s3_bucket.client.list_objects_v2(Bucket=s3_bucket.name)["Contents"]:
            if it["Key"].startswith("daily/"):
                s3_bucket.delete(it["Key"])
        forget_reads()
        lake.daily = type(lake.daily)(lake.daily.root.url)
        load(x)
        assert lake.states(lake.weekly) == {"week=0": state}


@pytest.mark.parametrize("content", Content)
@pytest.mark.parametrize("moves_on", [False, True])
def test_checkpoint_of_an_input_makes_nothing_stale(
    content: Content, moves_on: bool, s3_bucket: Bucket
) -> None:
    """Its files are the same bytes elsewhere, also where the table has another root by then."""
    lake = DeltaLake(s3_bucket, content=content)
    root = f"s3://{s3_bucket.name}/fast"
    lake.load(0, data_root=root)
    lake.load(1)
    lake.week(0)
    before = look_up([lake.weekly.root.url]).partitions()
    if moves_on:
        lake.daily.set_data_root(None, apply=True)
    assert len(lake.daily.checkpoint(apply=True)) == 2
    assert lake.daily.not_durable() == []
    forget_reads()
    assert look_up([lake.weekly.root.url]).partitions() == before
    assert before[0].state is State.FRESH
    # And a week that has read the copies is fresh, whatever was read before.
    lake.week(0)
    assert lake.states(lake.weekly) == {"week=0": State.FRESH}
    lake.load(1, x=5)
    assert lake.states(lake.weekly) == {"week=0": State.STALE}


@pytest.mark.parametrize("kind", [Table, DeltaTable])
def test_input_in_a_bucket_that_is_no_more_is_gone(kind: Any, s3_bucket: Bucket) -> None:
    """What was made of other inputs is told all the same."""
    lake, client, other = Lake(s3_bucket), s3_bucket.client, f"{s3_bucket.name}-other"
    client.create_bucket(Bucket=other)
    table = kind(f"s3://{other}/raw", client=client)
    rows = pa.table({"x": [1], "day": [1]})
    with table.job(rows.schema, partition_by=["day"]) as job:
        job.write(rows)
    client.put_object(Bucket=other, Key="x.csv", Body=b"1")
    scan = table.scan()
    scan.to_arrow()
    lake.load(1, inputs=[scan])
    lake.load(2, inputs=[f"s3://{other}/x.csv"])
    lake.load(3, inputs=lake.raw(b"1"))
    for it in client.list_objects_v2(Bucket=other)["Contents"]:
        client.delete_object(Bucket=other, Key=it["Key"])
    client.delete_bucket(Bucket=other)
    found = look_up([lake.daily.root.url])
    states = {it.partition: it.state for it in found.partitions()}
    assert states == {"day=1": State.UNKNOWN, "day=2": State.STALE, "day=3": State.FRESH}
    assert plan(found).layers[0][0].partitions == ("day=2",)
    with pytest.raises(StoreRefusedError, match="no such bucket"):
        look_up([f"s3://{other}/raw"])


@pytest.mark.parametrize("kind", [Lake, DeltaLake])
def test_run_is_refused_whose_compacted_partition_others_have_added_to(
    kind: type[Lake], s3_bucket: Bucket
) -> None:
    """Only another partition of the run is asked for; it would be run whole."""
    lake = kind(s3_bucket)
    files = FileOptions(content="rows", rows_per_file=1000)  # pyrefly: ignore[bad-argument-type]
    rows = pa.table({"x": [0] * 3001, "day": [2] * 3000 + [1]})
    policy: dict[str, Any] = {"owner": Owner(application="by hand"), "inputs": lake.raw(b"1")}
    with lake.daily.job(
        rows.schema, partition_by=["day"], mode="overwrite", files=files, **policy
    ) as job:
        job.write(rows)
    lake.raw(b"2")
    url = lake.daily.root.url
    lake.daily.compact(["day=2"], apply=True)
    ((step,),) = plan(look_up([f"{url}/day=1"])).layers
    assert step.besides == ("day=2",)
    added = lake.load(2, x=66, mode="append")
    found = plan(look_up([f"{url}/day=1"]))
    assert found.layers == ()
    assert f"day=2, to which {added} has added rows since" in found.refused[0].why
