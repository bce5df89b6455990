"""Records of tries and recoveries as they lie beside tables: the files in ``data/records`` are read
to these very objects, and written again with the same members. They are never made anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.memory_store import MemoryDriver, MemoryStore
from support.recorded import recorded
from support.stored import without_additions
from zero_rename.committer import RecordDamagedError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.store.requests import Put
from zero_rename.s3a.recovery.plan import (
    Direction,
    StandingDirection,
    decide,
    direction_key,
    read_direction,
)
from zero_rename.s3a.runs.try_record import COMMITTED, WRITTEN, TryRecord, WriteRecord

RUN = "0b1c2d3e-0000-4000-8000-000000000000"
OWNER = Owner("flights_daily", "scheduled__2026-01-01", "load", -1, 2)
ONCE = "flights_daily/scheduled__2026-01-01/load/-1"
AT = 1_767_225_600.0
#: By file.
RECORDS = {
    "try.json": TryRecord(
        uuid=RUN,
        idempotency_key=ONCE,
        owner=OWNER,
        committer="magic",
        mode="overwrite",
        partitions=("day=1", "day=ü"),
        state=COMMITTED,
        opened_at=AT,
        report={"job": RUN, "rows": None, "files": 2, "partitions": [{"version": 1}], "s": 1.5},
        replaced=(f"{RUN[:-4]}0001",),
    ),
    "try-open.json": TryRecord(
        uuid=RUN,
        idempotency_key=ONCE,
        owner=OWNER,
        committer="partitioned",
        mode="overwrite",
        opened_at=AT,
        beat_at=AT + 30,
        recovered=(f"{RUN[:-4]}0001",),
        writes=(
            WriteRecord(
                uuid=f"{RUN[:-4]}0001",
                number=1,
                committer="partitioned",
                destination="s3://bucket/flights/day=1",
                mode="overwrite",
                partition="day=1",
                part=1,
                parts=2,
                emptied=("day=2",),
                state=WRITTEN,
                opened_at=AT,
                ended_at=AT + 20,
                rows=240,
                among=("day=1",),
            ),
            WriteRecord(f"{RUN[:-4]}0002", 2, "magic", "s3://bucket/flights", "append"),
        ),
    ),
}


def members(body: bytes) -> dict[str, Any]:
    return {**json.loads(body), "write_id": None}


@pytest.mark.parametrize("name", RECORDS)
class TestRecord:
    def test_is_read_to_this_object(self, name: str) -> None:
        assert TryRecord.decode(recorded(f"records/{name}"), "k") == RECORDS[name]

    def test_is_written_with_the_same_members(self, name: str) -> None:
        stored = members(recorded(f"records/{name}"))
        for write in stored["writes"]:  # Of renaming overwrites, which are no more.
            write.pop("dynamic", None)
            write.pop("reports", None)  # Of reports in the session's own folder.
        written = members(RECORDS[name].encode("w"))
        assert without_additions(written, stored) == stored


def test_one_that_does_not_say_its_writes_is_refused() -> None:
    """Taken for none they would be made again."""
    said = json.loads(recorded("records/try.json"))
    del said["writes"]
    with pytest.raises(RecordDamagedError) as told:
        TryRecord.decode(json.dumps(said).encode(), "the key")
    assert (told.value.key, told.value.field) == ("the key", "writes")


class TestDirection:
    TREE = "flights/__magic_job-0b1c/"

    def test_is_read_to_this_object(self) -> None:
        driver = MemoryDriver(MemoryStore())
        put = Put(direction_key(self.TREE), recorded("records/direction.json"))
        etag = driver.store.apply(put).etag
        found = driver.run(read_direction(self.TREE))
        assert found == StandingDirection(Direction(RUN, True, "all tasks committed"), etag)

    def test_is_written_with_the_same_members(self) -> None:
        driver = MemoryDriver(MemoryStore())
        wanted = Direction(RUN, True, "all tasks committed")
        assert driver.run(decide(self.TREE, wanted, None)).said is wanted
        body = driver.store.objects[direction_key(self.TREE)].body
        assert members(body) == members(recorded("records/direction.json"))
