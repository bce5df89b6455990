"""An application that commits as S3A's committers do, without Spark: for the submit operator.

It writes the objects and records that ``save()`` and a committer leave, up to a stage that the
test names, and then dies there.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from zero_rename.committer import Table, TableRoot
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import (
    FAILED,
    WRITTEN,
    TryRecord,
    WriteRecord,
    run_of,
    write_uuid,
)

#: Where the application may stop: killed, or because Spark failed.
STAGES = ("begun", "files", "reported", "marked", "written")
APPLICATION = "from support.s3a_stand_in import main\nmain()\n"


def main(open_table: Callable[[str], Table] = Table) -> None:
    """Write as ``TEST_STAGE``, ``TEST_FAILS``, ``TEST_WRITES`` and ``TEST_FOLDER`` say."""
    stage = os.environ.get("TEST_STAGE", "written")
    fails = os.environ.get("TEST_FAILS") == "1"
    writes = int(os.environ.get("TEST_WRITES", "1"))
    url, run = os.environ["ZERO_RENAME_TABLE"], os.environ["ZERO_RENAME_S3A_RUN"]
    partitions = json.loads(os.environ.get("ZERO_RENAME_PARTITIONS", "[]"))
    replacing = os.environ.get("ZERO_RENAME_MODE") == "replace"
    paused = os.environ.get("TEST_PAUSED")
    if paused:
        # An earlier try's application wakes up, and commits first.
        earlier = Write(open_table(url), paused, 1, None, 1, 1, False, try_number="1")
        earlier.carry_out("written", False)
    number = 0
    for _ in range(writes):
        # All but partitioned replace partition by partition.
        by_folder = replacing and os.environ["ZERO_RENAME_COMMITTER"] != "partitioned"
        targets = partitions if by_folder else [None]
        for part, target in enumerate(targets, 1):
            number += 1
            last = number == writes * len(targets)
            one = Write(open_table(url), run, number, target, part, len(targets), replacing)
            one.carry_out(stage if last else "written", fails and last)


class Write:
    """One write, and what it leaves."""

    def __init__(
        self,
        table: Table,
        run: str,
        number: int,
        partition: str | None,
        part: int,
        parts: int,
        replacing: bool,
        try_number: str | None = None,
    ) -> None:
        self.table = table
        self.try_number = try_number or os.environ["ZERO_RENAME_TRY_NUMBER"]
        self.replacing = replacing
        destination = table.root.url + (f"/{partition}" if partition else "")
        among = [] if partition else json.loads(os.environ.get("ZERO_RENAME_PARTITIONS", "[]"))
        self.record = WriteRecord(
            uuid=write_uuid(run, number),
            number=number,
            committer=os.environ["ZERO_RENAME_COMMITTER"],
            destination=destination,
            mode=os.environ.get("ZERO_RENAME_MODE", "append"),
            partition=partition,
            part=part,
            parts=parts,
            among=tuple(among),
        )

    def carry_out(self, stage: str, fails: bool) -> None:
        reached = STAGES.index(stage)
        self._enter(self.record)
        keys: dict[str, int] = {}
        if reached >= 1:
            keys = self._files()
        if reached >= 2:
            self._report(keys)
        if reached >= 3:
            self._mark(keys)
        if reached >= 4 and not fails:
            self._enter(self._in(WRITTEN))
            return
        if fails:
            self._enter(self._in(FAILED))
        sys.exit(9)

    def _in(self, state: str) -> WriteRecord:
        rows = int(os.environ.get("TEST_ROWS", "1"))
        return replace(self.record, state=state, rows=rows if state == WRITTEN else None)

    def _enter(self, write: WriteRecord) -> None:
        """Enter the write into the try's record, wherever that is."""
        known = self._run(ledger.find_try(self.table.root, write.uuid))
        if known is None:
            return

        def entered(found: TryRecord, now: float) -> TryRecord:
            ended_at = now if write.state == WRITTEN else 0.0
            self.record = replace(write, opened_at=write.opened_at or now, ended_at=ended_at)
            return replace(found.with_write(self.record), beat_at=now)

        self._run(ledger.change(self.table.root, known.record, entered))

    def _files(self) -> dict[str, int]:
        """One file of one row, named as the committer names it."""
        staging = self.record.committer in ("directory", "partitioned")
        name = f"part-00000-{self.record.uuid if staging else 'spark'}.parquet"
        folder = self.record.partition or os.environ.get("TEST_FOLDER", "day=1")
        root = self.table.root
        if self.replacing:
            for file in self._listed(f"{root.prefix}/{folder}/"):
                self._client.delete_object(Bucket=root.bucket, Key=file)
        target = io.BytesIO()
        pq.write_table(pa.table({"flight": [self.try_number]}), target)
        key = f"{root.prefix}/{folder}/{name if staging else self.record.uuid[:4] + name}"
        self._client.put_object(Bucket=root.bucket, Key=key, Body=target.getvalue())
        return {key: len(target.getvalue())}

    def _report(self, keys: dict[str, int]) -> None:
        root, record = self.table.root, self.record
        if os.environ.get("TEST_EMPTY_MARKER"):
            return  # A renaming committer leaves none.
        folder = ledger.report_prefix(root, run_of(record.uuid), record.number)
        body = self._summary(keys)
        self._client.put_object(Bucket=root.bucket, Key=f"{folder}/summary-j.json", Body=body)

    def _mark(self, keys: dict[str, int]) -> None:
        root = TableRoot.parse(self.record.destination)
        body = b"" if os.environ.get("TEST_EMPTY_MARKER") else self._summary(keys)
        self._client.put_object(Bucket=root.bucket, Key=f"{root.prefix}/_SUCCESS", Body=body)

    def _summary(self, keys: dict[str, int]) -> bytes:
        committer = os.environ.get("TEST_COMMITTER", self.record.committer)
        return marker(self.record.uuid, committer, keys)

    @property
    def _client(self) -> Any:
        return self.table.driver.clients.client

    def _listed(self, prefix: str) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self.table.root.bucket, Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def _run(self, step: Any) -> Any:
        return self.table.driver.run(step)


def marker(job: str, committer: str, keys: dict[str, int]) -> bytes:
    """A ``_SUCCESS`` of an S3A committer."""
    counters = {
        "committer_commits_completed": len(keys),
        "committer_bytes_committed": sum(keys.values()),
    }
    document = {
        "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
        "success": True,
        "timestamp": 1_700_000_000_000,
        "hostname": "host",
        "committer": committer,
        "jobId": job,
        "jobIdSource": "fs.s3a.committer.uuid",
        "filenames": [f"/{key}" for key in keys],
        "iostatistics": {"counters": counters},
    }
    return json.dumps(document).encode()
