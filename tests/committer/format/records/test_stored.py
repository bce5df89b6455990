"""Records as tables hold them: the files in ``data/`` are read to these very objects, and written
again with the same members. They are never made anew: a table that was written once is read for
ever."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.protocol import DAY1, DAY2, ROOT
from support.stored import without_additions
from zero_rename.committer import UNPARTITIONED, Mode, SuccessMarker
from zero_rename.committer.format.job_spec import Coordination, OnConflict, Owner, SuccessMarkers
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.committer.format.records.decision import (
    Decision,
    DecisionPart,
    PartReference,
    Verdict,
)
from zero_rename.committer.format.records.head import (
    FormerState,
    NamedManifest,
    PartitionHead,
    Slot,
)
from zero_rename.committer.format.records.manifest import Manifest
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.partition_decision import (
    NO_HEAD,
    PartitionDecision,
    StoredFile,
)
from zero_rename.committer.format.records.pending_file import PendingFile
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.format.records.success_marker import ManifestReference
from zero_rename.committer.format.records.table_record import TableRecord

DATA = Path(__file__).parent / "data"
JOB = "zr1-0123456789ABCDEFGHJKMNPQRS"
EARLIER = "zr1-01234567890000000000000000"
WRITE_ID = "01K00000000000000000000000"
OWNER = Owner("flights_daily", "scheduled__2026-01-01", "load", -1, 2, "app-1", "höst-1", 4711)
SCHEMA = pa.schema([("value", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.int32())])


def pending(partition: str, number: int) -> PendingFile:
    return PendingFile(
        key=ROOT.data_key(partition, number, JOB, 0),
        partition=partition,
        upload_id=f"2~upload-{number}",
        etags=("5d41402abc4b2a76b9719d911017c592", "7d793037a0760186574b0282f2f435e7"),
        size=16_777_217,
        rows=1_000_000 + number,
        checksum="sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    )


def stored(partition: str, name: str) -> StoredFile:
    return StoredFile(f"{ROOT.partition_prefix(partition)}{name}", "d41d8cd98f00b204", 0)


CHANGES = (
    PartitionDecision(
        partition=DAY1,
        base_version=3,
        replace=True,
        files=(pending(DAY1, 0), pending(DAY1, 1)),
        removals=(stored(DAY1, "a b+ü.parquet"), stored(DAY1, "part-0.parquet")),
        lost=(pending(DAY1, 2),),
    ),
    PartitionDecision(
        partition=DAY2,
        base_version=0,
        replace=False,
        files=(pending(DAY2, 0),),
        adopted=(stored(DAY2, "old.parquet"),),
        dropped_job=EARLIER,
    ),
)
DECISION = Decision(
    job=JOB,
    write_id=WRITE_ID,
    verdict=Verdict.COMMIT,
    mode=Mode.REPLACE,
    success_markers=SuccessMarkers.TABLE,
    idempotency_key="flights_daily/scheduled__2026-01-01/load/-1",
    run_version=7,
    owner=OWNER,
    partitions=CHANGES,
    decided_at=1_767_225_600.0,
)
OPEN = OpenRecord(
    job=JOB,
    write_id=WRITE_ID,
    owner=OWNER,
    mode=Mode.FAIL_IF_EXISTS,
    on_conflict=OnConflict.LAST_WINS,
    success_markers=SuccessMarkers.NONE,
    idempotency_key="run",
    partitions=(DAY1, "day=ü%2F"),
    replace_table=False,
    max_duration=86400.0,
    interval=15.5,
    opened_at=1_767_225_600.0,
)


def marker(body: bytes) -> SuccessMarker:
    return SuccessMarker.parse(body, ROOT.marker_key(DAY1))


def decision(body: bytes) -> Decision:
    return Decision.decode(body, ROOT.decision_key(JOB), ROOT, JOB)


#: By file: the record, and how it is read.
RECORDS: dict[str, tuple[Any, Callable[[bytes], Any]]] = {
    "decision.json": (DECISION, decision),
    "decision-without-head.json": (
        Decision(
            JOB,
            WRITE_ID,
            Verdict.COMMIT,
            partitions=(
                PartitionDecision(UNPARTITIONED, NO_HEAD, False, (pending(UNPARTITIONED, 0),)),
            ),
        ),
        decision,
    ),
    "decision-in-parts.json": (
        Decision(
            JOB,
            WRITE_ID,
            Verdict.COMMIT,
            parts=(PartReference(ROOT.decision_part_key(JOB, WRITE_ID, 0), "0cc175b9c0f1b6a8"),),
        ),
        decision,
    ),
    "decision-abort.json": (Decision.abort(JOB, WRITE_ID), decision),
    "decision-part.json": (
        DecisionPart(JOB, WRITE_ID, 1, CHANGES),
        lambda body: DecisionPart.decode(body, "part", ROOT, JOB),
    ),
    "head.json": (
        PartitionHead(
            name=DAY1,
            write_id=WRITE_ID,
            version=30,
            replace_version=4,
            last_job=JOB,
            decisions=(EARLIER, JOB),
            manifest=NamedManifest(ROOT.manifest_key(WRITE_ID), "92eb5ffee6ae2fec"),
            dropped=(EARLIER,),
            claim=JOB,
            trail=(FormerState("4a8a08f09d37b737", 28), FormerState("8277e0910d750195", 29)),
        ),
        lambda body: PartitionHead.decode(body, Slot.partition(ROOT, DAY1), ROOT),
    ),
    "head-run.json": (
        PartitionHead(name="run", write_id=WRITE_ID),
        lambda body: PartitionHead.decode(body, Slot.run(ROOT, "run"), ROOT),
    ),
    "manifest.json": (
        Manifest(
            DAY1,
            WRITE_ID,
            (
                DataFile(ROOT.data_key(DAY1, 0, JOB, 0), DAY1, 100, 7, "sha256:00", JOB),
                DataFile("flights/day=1/old.parquet", DAY1, 5, -1, "", ""),
            ),
        ),
        lambda body: Manifest.decode(body, ROOT.manifest_key(WRITE_ID), ROOT, DAY1),
    ),
    "open.json": (OPEN, lambda body: OpenRecord.decode(body, ROOT.open_key(JOB))),
    "table.json": (
        TableRecord(
            WRITE_ID,
            ("day",),
            SCHEMA,
            Coordination.STORE,
            StoreFacts("AmazonS3", complete_resurrects=True, conditional_delete=False),
        ),
        lambda body: TableRecord.decode(body, ROOT.table_key),
    ),
}
MARKER = SuccessMarker(
    job=JOB,
    committer="zero_rename",
    success=True,
    timestamp_ms=1_767_225_600_000,
    hostname="höst-1",
    filenames=tuple(f"/{file.key}" for file in CHANGES[0].files),
    manifest=ManifestReference(
        job=JOB,
        decision=ROOT.decision_key(JOB),
        etag="e1671797c52e15f7",
        files=2,
        bytes=33_554_434,
        rows=2_000_001,
        versions={DAY1: 4},
        decided_at=1_767_225_600.0,
        owner=OWNER,
        idempotency_key="flights_daily/scheduled__2026-01-01/load/-1",
    ),
)


@pytest.mark.parametrize("name", RECORDS)
class TestRecord:
    def test_is_read_to_this_object(self, name: str) -> None:
        record, read = RECORDS[name]
        assert read((DATA / name).read_bytes()) == record

    def test_is_written_with_the_same_members(self, name: str) -> None:
        record, _ = RECORDS[name]
        stored = json.loads((DATA / name).read_bytes())
        written = record.encode()
        if written.startswith(b"\x1f\x8b"):  # Lists of files are compressed, of late.
            written = gzip.decompress(written)
            stored["format"] = 2
        assert without_additions(json.loads(written), stored) == stored


def test_bounds_of_columns_are_kept_and_passed_over_by_who_does_not_know_them() -> None:
    """No new format: a former version reads such records, and says nothing of the bounds."""
    file = replace(pending(DAY1, 0), summary="id=i0,999&origin=sJFK,SFO,2")
    bounded = replace(DECISION, partitions=(PartitionDecision(DAY1, 0, False, (file,)),))
    (read,) = decision(bounded.encode()).files
    assert read == file
    members = json.loads(bounded.encode())
    assert members["format"] == 1
    assert members["partitions"][0]["files"][0].pop("summary") == file.summary
    assert decision(json.dumps(members).encode()).files == (pending(DAY1, 0),)


def test_a_marker_is_read_to_this_object() -> None:
    assert marker((DATA / "_SUCCESS").read_bytes()) == MARKER
