"""Jobs of the magic and staging committers as a dead driver leaves them, made request by request.

The files are as Hadoop 3.5 writes them (tests/s3a/data has real ones).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.s3a_stand_in import marker
from zero_rename.committer.format.job_spec import NOBODY, Owner
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import (
    CompleteUpload,
    Created,
    CreateUpload,
    Done,
    Put,
    UploadPart,
)
from zero_rename.s3a.runs.try_record import TryRecord

ROOT = TableRoot("bucket", "wh/flights")
JOB = "6f1d2c3b-4a59-4e8f-9b7a-0c1d2e3f0000"
OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
WRITE = "11111111-2222-4333-8444-555555555555"


def a_try(uuid: str = JOB, owner: Owner = NOBODY, **changes: Any) -> TryRecord:
    """A try's record, under a key of its own unless told otherwise."""
    given: dict[str, Any] = {"idempotency_key": f"load/{uuid}", "committer": "magic", "mode": None}
    return TryRecord(uuid, owner=owner, **{**given, **changes})


@dataclass
class MadeFile:
    """A file of which all parts are uploaded."""

    key: str
    upload_id: str
    etags: list[str]
    body: bytes

    def commit(self, bucket: str, job: str, task: str, /, **changes: Any) -> dict[str, Any]:
        """As one of a pending set's commits."""
        return {
            "version": 2,
            "filename": None,
            "uri": f"s3a://{bucket}/{self.key}",
            "uploadId": self.upload_id,
            "bucket": bucket,
            "destinationKey": self.key,
            "created": 1_700_000_000_000,
            "saved": 1_700_000_000_000,
            "date": "Tue Nov 14 22:13:20 UTC 2023",
            "jobId": job,
            "taskId": task,
            "text": "",
            "etags": [
                {"etag": etag, "checksumAlgorithm": None, "checksum": None} for etag in self.etags
            ],
            "extraData": {},
            "length": len(self.body),
            **changes,
        }


@dataclass
class MagicJob:
    """A job of the magic committer, driven by a test.

    :param perform: carries out one request.
    """

    perform: Callable[[Any], Any]
    root: TableRoot = ROOT
    uuid: str = JOB
    write: str = WRITE
    folder: str = ""
    files: list[MadeFile] = field(default_factory=list)
    tasks: int = 0

    @property
    def destination(self) -> str:
        return f"{self.root.prefix}/{self.folder}".rstrip("/")

    @property
    def tree(self) -> str:
        return f"{self.destination}/__magic_job-{self.uuid}/"

    @property
    def attempt(self) -> str:
        return f"{self.tree}job-{self.uuid}/00/"

    def put(self, key: str, body: bytes = b"") -> None:
        assert isinstance(self.perform(Put(key, body)), Done)

    def begin(self) -> MagicJob:
        self.put(self.tree)
        return self

    def upload(self, path: str, parts: Sequence[bytes] = (b"one", b"two")) -> MadeFile:
        """An upload under way, all of whose parts are there."""
        key = f"{self.destination}/{path}"
        created = self.perform(CreateUpload(key))
        assert isinstance(created, Created)
        etags = []
        for number, part in enumerate(parts, 1):
            body = part + f" of {path}".encode()
            etags.append(self.perform(UploadPart(key, created.upload_id, number, body)).etag)
        body = b"".join(part + f" of {path}".encode() for part in parts)
        return MadeFile(key, created.upload_id, etags, body)

    def name(self, task: int, partition: str = "day=1") -> str:
        return f"{partition}/part-{task:05d}-{self.write}.c000.snappy.parquet"

    def running(self, task: int, partition: str = "day=1", attempt: int = 0) -> MadeFile:
        """A file that a task attempt has closed, the attempt not being committed."""
        made = self.upload(self.name(task, partition))
        base = f"{self.attempt}tasks/attempt_202311142213_0001_m_{task:06d}_{attempt}/__base"
        commit = made.commit(self.root.bucket, "", "")
        self.put(f"{base}/{self.name(task, partition)}")
        self.put(f"{base}/{self.name(task, partition)}.pending", json.dumps(commit).encode())
        return made

    def task(
        self, task: int, partitions: Sequence[str] = ("day=1", "day=2"), **changes: Any
    ) -> list[MadeFile]:
        """A committed task with a file in each partition.

        :param changes: members of the first commit that are to be otherwise.
        """
        made = [self.upload(self.name(task, partition)) for partition in partitions]
        attempt = f"attempt_202311142213_0001_m_{task:06d}_{task}"
        commits = [
            file.commit(self.root.bucket, self.uuid, attempt, **(changes if index == 0 else {}))
            for index, file in enumerate(made)
        ]
        self.pending_set(task, commits, attempt)
        self.files += made
        self.tasks += 1
        return made

    def pending_set(
        self,
        task: int,
        commits: Sequence[dict[str, Any]],
        attempt: str = "",
        job: str | None = None,
    ) -> None:
        document = {
            "version": 2,
            "jobId": self.uuid if job is None else job,
            "commits": list(commits),
            "extraData": {"task.attempt.id": attempt},
            "iostatistics": {},
        }
        self.put(self.set_key(task), json.dumps(document).encode())

    def set_key(self, task: int) -> str:
        return f"{self.attempt}task_202311142213_0001_m_{task:06d}.pendingset"

    def complete(self, *files: MadeFile) -> None:
        """What the driver came to before it died."""
        for made in files:
            done = self.perform(CompleteUpload(made.key, made.upload_id, tuple(made.etags)))
            assert isinstance(done, Done)

    @property
    def keys(self) -> list[str]:
        return sorted(made.key for made in self.files)


@dataclass
class StagingJob(MagicJob):
    """A job of a staging committer: its pending sets are in a folder on this machine's disk.

    :param staging: ``fs.s3a.committer.staging.tmp.path``.
    """

    staging: Path = Path()

    @property
    def place(self) -> Path:
        return self.staging / "somebody" / self.uuid / "staging-uploads" / "_temporary" / "0"

    def begin(self) -> StagingJob:
        self.place.mkdir(parents=True)
        return self

    def name(self, task: int, partition: str = "day=1") -> str:
        return f"{partition}/part-{task:05d}-{self.write}-{self.uuid}.c000.snappy.parquet"

    def running(self, task: int, partition: str = "day=1", attempt: int = 0) -> MadeFile:
        made = self.upload(self.name(task, partition))
        name = f"attempt_202311142213_0001_m_{task:06d}_{attempt}"
        path = self.place / "_temporary" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self.document([made.commit(self.root.bucket, "", "", created=0)]))
        return made

    def pending_set(
        self,
        task: int,
        commits: Sequence[dict[str, Any]],
        attempt: str = "",
        job: str | None = None,
    ) -> None:
        nobody = {"jobId": "", "taskId": "", "created": 0}
        (self.place / Path(self.set_key(task)).name).write_bytes(
            self.document([{**commit, **nobody} for commit in commits])
        )

    def set_key(self, task: int) -> str:
        return str(self.place / f"task_202311142213_0001_m_{task:06d}")

    def document(self, commits: Sequence[dict[str, Any]]) -> bytes:
        return json.dumps({"version": 3, "jobId": "", "commits": list(commits)}).encode()


class World:
    """A table of S3A jobs in memory, and its clock."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store if store is not None else MemoryStore(self.clock)
        self.driver = MemoryDriver(self.store)
        self.root = ROOT

    def job(self, **given: Any) -> MagicJob:
        return MagicJob(self.store.apply, **given).begin()

    def staging_job(self, staging: Path, **given: Any) -> StagingJob:
        return StagingJob(self.store.apply, staging=staging, **given).begin()

    def put_marker(self, job: str) -> None:
        """Another job commits: its ``_SUCCESS`` takes the place of whatever was there."""
        self.store.apply(Put(f"{ROOT.prefix}/_SUCCESS", marker(job, "magic", {})))

    def visible(self) -> list[str]:
        """What readers who list see: Spark's rule."""
        return [
            key
            for key in self.store.keys(f"{ROOT.prefix}/")
            if not any(p.startswith(("_", ".")) for p in key[len(ROOT.prefix) + 1 :].split("/"))
            and not key.endswith("/")
        ]

    def magic(self) -> list[str]:
        return [key for key in self.store.objects if "__magic" in key]

    def assert_clean(self) -> None:
        assert self.magic() == []
        assert self.store.upload_keys(ROOT.prefix) == []
