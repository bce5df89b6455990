"""What verification finds in what jobs left, on markers that the real committers wrote.

``real/test_verified.py`` does the same behind the real jars.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from support.recorded import recorded
from zero_rename.committer.errors import InvalidInputError, VerificationError
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.requests import CompleteUpload, CreateUpload, Put, UploadPart
from zero_rename.s3a.verification.verify import Expectation, Verified, check_rows, verify_job

S3A = ("magic", "directory", "partitioned")
WRITE = "539536d7-c129-4939-8566-cdda9f8740fe"


class World:
    """A destination in memory with one job's marker and files, as the real committer left them."""

    def __init__(self, committer: str = "magic") -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.driver = MemoryDriver(self.store)
        self.document: dict[str, Any] = json.loads(recorded(f"{committer}.success"))
        self.keys = [name[1:] for name in self.document["filenames"]]
        self.root = TableRoot("bucket", self.keys[0].rpartition("/day=")[0])
        self.committer = committer
        self.job: str = self.document["jobId"]
        #: The job begins now; what was there before is older.
        self.put(f"{self.root.prefix}/day=1/part-0-old.parquet", 10)
        self.clock.advance(60)
        self.since_ms = int(self.clock.now * 1000)
        self.clock.advance(5)
        self.files(self.keys)
        self.marker()

    @property
    def counters(self) -> dict[str, int]:
        return self.document["iostatistics"]["counters"]

    def put(self, key: str, size: int = 0, body: bytes | None = None) -> None:
        self.store.apply(Put(key, b"x" * size if body is None else body))

    def files(self, keys: list[str]) -> None:
        """Files that add up to what the marker counts."""
        total = self.counters["committer_bytes_committed"]
        for index, key in enumerate(keys):
            share = total // len(keys)
            self.put(key, share if index else total - share * (len(keys) - 1))

    def mark(self, body: bytes) -> None:
        self.put(f"{self.root.prefix}/_SUCCESS", body=body)

    def marker(self, **changes: Any) -> None:
        self.mark(json.dumps(self.document | changes).encode())

    def upload(self, key: str) -> str:
        created = self.store.apply(CreateUpload(key))
        self.store.apply(UploadPart(key, created.upload_id, 1, b"x"))
        return created.upload_id

    @property
    def expectation(self) -> Expectation:
        return Expectation(self.committer, self.job, self.since_ms)

    def verify(self, report_dir: str | None = None, **changes: Any) -> Verified:
        expected = replace(self.expectation, **changes)
        return self.driver.run(verify_job(self.root, expected, report_dir=report_dir))

    def objection(self, report_dir: str | None = None, **changes: Any) -> str:
        with pytest.raises(VerificationError) as caught:
            self.verify(report_dir, **changes)
        assert caught.value.remedy
        assert caught.value.table == self.root.url
        return str(caught.value)


@pytest.mark.parametrize("committer", S3A)
class TestCommitted:
    def test_what_a_real_committer_left(self, committer: str) -> None:
        # S3A conformance 17, 18, 19, 20
        world = World(committer)
        found = world.verify()
        assert (found.uuid, found.committer, found.warnings) == (world.job, committer, ())
        assert found.keys == tuple(sorted(world.keys))
        assert found.files == len(world.keys)
        assert found.bytes == world.counters["committer_bytes_committed"]

    def test_a_marker_of_the_second_in_which_the_job_began(self, committer: str) -> None:
        world = World(committer)
        assert world.verify(since_ms=int(world.clock.now * 1000) + 999).files


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda world: world.store.objects.clear(), "0 files came"),
        (lambda world: world.marker(committer="zero_rename"), "this project's own"),
        (lambda world: world.marker(success=False), "says that the job failed"),
        (lambda world: world.mark(b"{"), "not what an S3A committer writes"),
        (lambda world: world.mark(b"[]"), "not what an S3A committer writes"),
        (lambda world: world.mark(b'{"name": "other"}'), "not what an S3A committer writes"),
        (lambda world: world.mark(b" " * 9_000_000), "not what an S3A committer writes"),
        (lambda world: world.put(world.keys[0], 1), "bytes, and"),
        (lambda world: world.marker(filenames=["/other/t/p.parquet"]), "job's destination"),
    ],
)
def test_what_is_wrong_is_told(change: Callable[[World], object], said: str) -> None:
    world = World()
    change(world)
    assert said in world.objection()


class TestMarker:
    def test_none(self) -> None:
        # S3A conformance 21
        world = World()
        del world.store.objects[f"{world.root.prefix}/_SUCCESS"]
        said = world.objection()
        assert "left no _SUCCESS marker, and 4 files came" in said
        assert "marksuccessfuljobs" in said
        assert "SPARK-35279" in said

    @pytest.mark.parametrize("committer", S3A)
    def test_an_empty_one_is_the_rename_committers(self, committer: str) -> None:
        world = World(committer)
        world.mark(b"")
        said = world.objection()
        assert f"classic rename committer ran, not {committer}" in said

    def test_an_empty_one_from_before(self) -> None:
        world = World()
        world.mark(b"")
        since = world.since_ms + 3_600_000
        assert "ran, not magic, and older than this job" in world.objection(since_ms=since)

    def test_one_from_before(self) -> None:
        # S3A conformance 1
        world = World()
        world.clock.advance(60)
        since = int(world.clock.now * 1000)
        said = world.objection(uuid=str(uuid.uuid4()), since_ms=since)
        assert "not of this one, and older than this job" in said

    def test_one_from_before_with_the_same_uuid(self) -> None:
        world = World()
        world.clock.advance(60)
        said = world.objection(since_ms=int(world.clock.now * 1000))
        assert "is of this UUID, and older than this job" in said

    def test_another_jobs(self) -> None:
        # S3A conformance 19
        said = World().objection(uuid=str(uuid.uuid4()))
        assert "not of this one" in said

    def test_one_that_names_no_job(self) -> None:
        """As of Hadoop before 3.3.1 (HADOOP-17318)."""
        world = World()
        del world.document["jobId"]
        world.marker()
        assert "_SUCCESS names no job; that of Hadoop before 3.3.1 never does" in world.objection()

    @pytest.mark.parametrize("committer", S3A)
    def test_another_committers(self, committer: str) -> None:
        # S3A conformance 12, 19
        world = World("magic" if committer != "magic" else "directory")
        ran = world.committer
        said = world.objection(committer=committer)
        assert f"The committer {ran!r} ran, and {committer!r} was asked for" in said

    def test_an_unknown_committer_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="zero_rename"):
            World().verify(committer="zero_rename")


class TestFiles:
    def test_one_is_not_there(self) -> None:
        world = World()
        del world.store.objects[world.keys[0]]
        said = world.objection()
        assert "1 file of the job not there any more" in said
        assert world.keys[0] in said

    def test_without_counters_the_names_are_all_there_is(self) -> None:
        world = World()
        world.marker(iostatistics={})
        assert world.verify().files == len(world.keys)

    def many(self) -> World:
        world = World()
        keys = [
            f"{world.root.prefix}/day={n % 7}/part-{n:05d}-{WRITE}.c000.snappy.parquet"
            for n in range(150)
        ]
        world.counters["committer_commits_completed"] = 150
        world.counters["committer_bytes_committed"] = 150_000
        world.files(keys)
        world.keys = keys
        world.marker(filenames=[f"/{key}" for key in keys[:100]])
        return world

    def test_over_a_hundred_are_found_by_the_writes_uuid(self) -> None:
        # S3A conformance 20
        world = self.many()
        found = world.verify()
        assert (found.files, found.bytes) == (150, 150_000)
        assert found.keys == tuple(sorted(world.keys))

    def test_over_a_hundred_and_an_unnamed_one_is_missing(self) -> None:
        world = self.many()
        del world.store.objects[world.keys[149]]
        assert "committed 150 files, and 149 are there" in world.objection()

    def test_over_a_hundred_and_an_unnamed_one_is_shorter(self) -> None:
        world = self.many()
        world.put(world.keys[149], 1)
        assert "committed 150,000 bytes" in world.objection()

    def test_the_committers_uuid_does_not_join_two_writes(self) -> None:
        world = World("directory")
        names = [f"part-{n:05d}-{WRITE}-{world.job}.c000.parquet" for n in range(120)]
        world.keys = [f"{world.root.prefix}/day=1/{name}" for name in names]
        world.counters.update(committer_commits_completed=120, committer_bytes_committed=120_000)
        world.files(world.keys)
        other = f"part-00000-{uuid.uuid4()}-{world.job}.c000.parquet"
        world.put(f"{world.root.prefix}/day=1/{other}", 7)
        world.marker(filenames=[f"/{key}" for key in world.keys[:100]])
        assert world.verify().files == 120

    def test_a_job_that_wrote_nothing(self) -> None:
        # S3A conformance 30
        world = World()
        for key in world.keys:
            del world.store.objects[key]
        world.counters.update(committer_commits_completed=0, committer_bytes_committed=0)
        world.marker(filenames=[])
        assert world.verify().files == 0

    def test_tasks_that_went_past_the_committer(self) -> None:
        # S3A conformance 29
        world = World()
        world.counters.update(committer_commits_completed=0, committer_bytes_committed=0)
        world.marker(filenames=[])
        said = world.objection()
        assert "Tasks wrote directly into the table" in said
        assert "commitProtocolClass" in said


class TestAJobWithoutFiles:
    """Beside another one, whose files come meanwhile."""

    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.counters.update(committer_commits_completed=0, committer_bytes_committed=0)
        world.marker(filenames=[])
        return world

    def test_for_which_spark_wrote_no_row(self, world: World) -> None:
        assert world.verify(rows=0).files == 0

    def test_for_which_spark_wrote_rows(self, world: World) -> None:
        assert "no file, though Spark wrote 8 rows" in world.objection(rows=8)
        for key in world.keys:
            del world.store.objects[key]
        assert "of files, none" in world.objection(rows=8)

    def test_whose_partition_received_none(self, world: World) -> None:
        assert world.verify(partitions=("day=3",)).files == 0
        assert "Tasks wrote directly" in world.objection(partitions=("day=1",))

    def test_whose_marker_is_the_other_jobs_by_now(self, world: World) -> None:
        report = json.dumps(world.document | {"filenames": []}).encode()
        world.put("reports/summary-job_2026_0001.json", body=report)
        names = [f"/{key}" for key in world.keys]
        # The last is one of over a hundred, which a marker does not name.
        world.marker(jobId=str(uuid.uuid4()), filenames=names[:-1])
        assert world.verify("s3a://bucket/reports").files == 0


class TestLeftOver:
    def test_its_tree_where_clean_up_is_off(self) -> None:
        # S3A conformance 28
        world = World()
        tree = f"{world.root.prefix}/__magic_job-{world.job}/"
        world.put(f"{tree}job-{world.job}/00/task_1.pendingset", body=recorded("magic.pendingset"))
        assert world.verify().keys == tuple(sorted(world.keys))

    @pytest.mark.parametrize("committer", S3A)
    def test_an_upload_of_a_repeated_attempt_is_a_warning(self, committer: str) -> None:
        # S3A conformance 18
        world = World(committer)
        world.upload(world.keys[0])
        (warning,) = world.verify().warnings
        assert "1 upload of the job is left" in warning

    @pytest.mark.parametrize("committer", S3A)
    def test_an_upload_whose_file_is_not_there_may_be_rows(self, committer: str) -> None:
        # S3A conformance 18
        world = World(committer)
        lost = world.keys[0].replace("part-0000", "part-0007")
        upload = world.upload(lost)
        assert "Their rows may be missing" in world.objection()
        world.store.apply(CompleteUpload(lost, upload, ("9dd4e461268c8034f5c8564e155c67a6",)))
        world.verify()

    def test_another_jobs_upload_is_a_warning(self) -> None:
        # S3A conformance 77
        world = World()
        world.upload(f"{world.root.prefix}/day=1/part-00000-{uuid.uuid4()}.parquet")
        (warning,) = world.verify().warnings
        assert "1 other upload is under way" in warning

    def test_stores_that_list_no_uploads_by_folder(self) -> None:
        world = World()
        behaviour = replace(world.store.behaviour, lists_uploads=False)
        world.store.behaviour = behaviour
        world.upload(world.keys[0].replace("part-0000", "part-0007"))
        assert "Their rows may be missing" in world.objection()


class TestReport:
    DIR = "s3a://bucket/reports"

    def report(
        self, world: World, change: Callable[[dict[str, Any]], None], folder: str = "reports"
    ) -> None:
        document = json.loads(json.dumps(world.document))
        change(document)
        world.put(f"{folder}/summary-job_2026_0001.json", body=json.dumps(document).encode())
        world.put(f"{folder}/summary-job_2026_0002.json", body=b"{")

    def test_one_that_says_it_completed(self) -> None:
        world = World()
        self.report(world, lambda report: report["diagnostics"].update(stage="completed"))
        assert world.verify(self.DIR).warnings == ()

    @pytest.mark.parametrize("folder", ["s3a://bucket/", "S3A://bucket/reports/"])
    def test_one_in_the_bucket_itself_or_by_another_spelling(self, folder: str) -> None:
        world = World()
        document = json.loads(json.dumps(world.document))
        document["diagnostics"].update(stage="completed")
        below = folder.partition("bucket/")[2]
        world.put(f"{below}summary-job_2026_0001.json", body=json.dumps(document).encode())
        world.marker(jobId=str(uuid.uuid4()))
        assert world.verify(folder).warnings == ()

    def test_one_that_says_it_failed_after_the_marker(self) -> None:
        # S3A conformance 107
        def failed(report: dict[str, Any]) -> None:
            report["success"] = False
            report["diagnostics"].update(stage="cleanup", exception="java.io.IOException: no")

        world = World()
        self.report(world, failed)
        said = world.objection(self.DIR)
        assert "failed at stage 'cleanup': java.io.IOException: no" in said

    @pytest.mark.parametrize("last", ["failed", "completed"])
    def test_the_last_of_a_job_counts(self, last: str) -> None:
        """A driver that was started again writes another one; the first stays."""
        world = World()
        names = {"failed": "summary-job_2026_0009.json", "completed": "summary-job_2026_0001.json"}
        for stage in sorted(names, key=lambda stage: stage == last):
            report = world.document | {"success": stage == "completed"}
            report["diagnostics"] = world.document["diagnostics"] | {"stage": stage}
            world.put(f"reports/{names[stage]}", body=json.dumps(report).encode())
            world.clock.advance(5)
        if last == "completed":
            assert world.verify(self.DIR).warnings == ()
        else:
            assert "failed at stage 'failed'" in world.objection(self.DIR)

    def test_two_writes_of_an_application_under_one_uuid(self) -> None:
        """Without save(): both committed, and the last one's files are not all that came."""
        world = World()
        for number in (1, 2):
            body = json.dumps(world.document).encode()
            world.put(f"reports/summary-job_2026_000{number}.json", body=body)
        assert "wrote more than once under the one UUID" in world.objection(self.DIR)

    def test_one_without_a_marker(self) -> None:
        def failed(report: dict[str, Any]) -> None:
            report["success"] = False
            report["diagnostics"].update(stage="commit", exception="java.io.IOException: no")

        world = World()
        self.report(world, failed)
        del world.store.objects[f"{world.root.prefix}/_SUCCESS"]
        assert "own report says that it failed at stage 'commit'" in world.objection(self.DIR)

    def test_one_in_a_folder_that_readers_skip(self) -> None:
        world = World()
        self.report(world, lambda report: None, "wh/_zero_rename/reports/r1")
        assert world.verify("s3://bucket/wh/_zero_rename/reports/r1/").warnings == ()

    @pytest.mark.parametrize("marker", ["missing", "another job's"])
    def test_one_stands_for_a_marker_that_is_gone(self, marker: str) -> None:
        world = World()
        self.report(world, lambda report: report["diagnostics"].update(stage="cleanup"))
        if marker == "missing":
            del world.store.objects[f"{world.root.prefix}/_SUCCESS"]
        else:
            world.marker(jobId=str(uuid.uuid4()))
        found = world.verify(self.DIR)
        assert (found.keys, found.warnings) == (tuple(sorted(world.keys)), ())
        assert f"The committer '{world.committer}' ran" in world.objection(
            self.DIR, committer="directory"
        )

    @pytest.mark.parametrize("folder", [DIR, "hdfs://nn/reports", "s3a://other/reports"])
    def test_none(self, folder: str) -> None:
        (warning,) = World().verify(folder).warnings
        assert folder in warning


class TestRows:
    @pytest.mark.parametrize(("wrote", "hold"), [(3, 3), (0, 0), (None, 3), (3, None)])
    def test_none_is_missing(self, wrote: int | None, hold: int | None) -> None:
        check_rows(TableRoot("bucket", "t"), "job", wrote, hold)

    @pytest.mark.parametrize(("wrote", "hold"), [(240, 230), (3, 4)])
    def test_the_numbers_differ(self, wrote: int, hold: int) -> None:
        with pytest.raises(VerificationError, match=f"wrote {wrote} rows, .* hold {hold}") as e:
            check_rows(TableRoot("bucket", "t"), "job", wrote, hold)
        assert (e.value.table, e.value.job) == ("s3://bucket/t", "job")
