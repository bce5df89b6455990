"""``save()`` with the real committers: the same call, the same rows, whichever the word."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.faulty_server import FaultyServer
from support.hadoop_committers import Application, Place
from support.refusing_store import (
    RETAINING,
    carries_bytes,
    demanding_encryption,
    has_checksum,
    makes_an_object,
    names_encryption,
)
from zero_rename.committer import (
    DestinationExistsError,
    JobFencedError,
    OutcomeUnknownError,
    SettingsRefusedError,
    TableMismatchError,
    UnfinishedCommitError,
    VerificationError,
)
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger, try_record
from zero_rename.s3a.runs.try_record import FAILED, WRITTEN, TryRecord, WriteRecord, run_uuid
from zero_rename.spark import save
from zero_rename.spark.job_tags import Operations
from zero_rename.spark.s3a import recorded_write as s3a_writer

COMMITTERS = tuple(Committer)
#: A file system that another test has made keeps the endpoint that it was made with.
UNCACHED = {"fs.s3a.impl.disable.cache": "true"}
ONCE = "flights/run/load"
#: Of a bucket with Object Lock, as docs/s3a.md has it.
CHECKSUMS = "fs.s3a.create.checksum.algorithm"
pytestmark = pytest.mark.thinned(committer=("magic", "partitioned"))


@pytest.fixture(autouse=True)
def _environment(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's driver finds the store as boto3 does anywhere."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "ZERO_RENAME_"))]:
        monkeypatch.delenv(name)
    for name, value in application.store.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=COMMITTERS)
def committer(request: Any, application: Application) -> Iterator[str]:
    with application.with_committer(request.param):
        yield str(request.param)


def load(place: Place, frame: Any, committer: str, **given: Any) -> None:
    save(frame, place.root.url, partition_by=["day"], committer=committer, **given)


def ids(application: Application, place: Place) -> dict[int, list[int]]:
    """Rows by day, read through S3A."""
    found: dict[int, list[int]] = {}
    for number, day in application.rows(place):
        found.setdefault(day, []).append(number)
    return found


def days(application: Application, *pairs: tuple[int, int]) -> Any:
    """A frame of ids with their days."""
    return application.spark.createDataFrame(list(pairs), "id bigint, day int")


class TestEveryCommitter:
    def test_adds_rows(self, application: Application, place: Place, committer: str) -> None:
        load(place, days(application, (1, 1), (2, 2)), committer)
        load(place, days(application, (3, 1)), committer, mode="append")
        assert ids(application, place) == {1: [1, 3], 2: [2]}

    def test_replaces_the_partitions_named_also_by_no_row(
        self, application: Application, own_place: Place, committer: str
    ) -> None:
        load(own_place, days(application, (1, 1), (2, 2), (3, 3), (5, 3)), committer)
        again = days(application, (4, 3))
        load(own_place, again, committer, mode="overwrite", partitions=["day=2", "day=3"])
        assert ids(application, own_place) == {1: [1], 3: [4]}
        assert own_place.uploads() == []
        found = own_place.client.list_objects_v2(Bucket=own_place.bucket)["Contents"]
        assert [e["Key"] for e in found if "_zero_rename" in e["Key"]] == []

    def test_says_so_when_it_could_not_be_emptied(
        self, application: Application, place: Place, deletes_denied: None
    ) -> None:
        with application.with_committer("partitioned"):
            load(place, days(application, (1, 1), (2, 2)), "partitioned")
            again, named = days(application, (3, 1)), ["day=1", "day=2"]
            with pytest.raises(UnfinishedCommitError, match=r"day=2.* could not be emptied"):
                load(place, again, "partitioned", mode="overwrite", partitions=named)
        assert ids(application, place) == {1: [3], 2: [2]}

    @pytest.mark.parametrize("mode", ["overwrite", "append"])
    def test_refuses_rows_of_other_partitions(
        self, application: Application, place: Place, committer: str, mode: str
    ) -> None:
        with pytest.raises(Exception, match="none of the partitions day=2"):
            load(
                place, days(application, (1, 1), (2, 2)), committer, mode=mode, partitions=["day=2"]
            )
        assert place.files() == []

    def test_fails_where_there_are_rows(
        self, application: Application, place: Place, committer: str
    ) -> None:
        frame = days(application, (1, 1))
        load(place, frame, committer, mode="fail-if-exists")
        with pytest.raises(Exception, match=r"data already|PathExists|exists") as refused:
            load(place, frame, committer, mode="fail-if-exists")
        if committer != "partitioned":
            assert isinstance(refused.value, DestinationExistsError)
        assert ids(application, place) == {1: [1]}


def test_what_only_hadoop_knows_of_the_store(
    application: Application, own_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endpoint without a scheme and keys, both of the bucket, and nothing in the environment."""
    store = application.store.environment()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    said = {
        "endpoint": application.store.endpoint.partition("://")[2],
        "connection.ssl.enabled": "false",
        "access.key": store["AWS_ACCESS_KEY_ID"],
        "secret.key": store["AWS_SECRET_ACCESS_KEY"],
    }
    own = {f"fs.s3a.bucket.{own_place.bucket}.{key}": value for key, value in said.items()}
    with application.with_committer("magic", own):
        load(own_place, days(application, (1, 1)), "magic")
    assert ids(application, own_place) == {1: [1]}


def test_rows_that_share_a_file_are_missed(
    application: Application, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour that a clock change repeats: two partition values, one folder, one file's name."""
    times = "timestamp '2026-10-25 00:30:00 UTC' + make_interval(0, 0, 0, 0, id % 2) as at"
    frame = application.spark.range(0, 20, 1, 1).selectExpr("id", times)
    zone = {"spark.sql.session.timeZone": "Europe/Berlin"}
    with application.with_committer("magic", zone):
        with pytest.raises(SettingsRefusedError, match="column at is a timestamp"):
            save(frame, place.root.url, partition_by=["at"], committer="magic")
        assert place.files() == []
        monkeypatch.setattr(s3a_writer, "check_timestamps", lambda *_: None)
        with pytest.raises(VerificationError, match=r"Spark wrote 20 rows, .* hold 10"):
            save(frame, place.root.url, partition_by=["at"], committer="magic")


def test_an_overwrite_of_whatever_rows_arrive(application: Application, place: Place) -> None:
    """Partitioned does it at job commit, the others are refused."""
    own = place.below("partitioned")
    with application.with_committer("partitioned"):
        load(own, days(application, (1, 1), (2, 2)), "partitioned")
        load(own, days(application, (3, 2)), "partitioned", mode="overwrite")
    assert ids(application, own) == {1: [1], 2: [3]}
    for committer in ("magic", "directory"):
        refused = pytest.raises(SettingsRefusedError, match="overwrite-unnamed-partitions")
        with application.with_committer(committer), refused:
            load(place, days(application, (1, 1)), committer, mode="overwrite")


class TestOnRecord:
    """As an operator's try."""

    @pytest.fixture
    def run(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
        run = run_uuid()
        given = {
            "ZERO_RENAME_TABLE": place.root.url,
            "ZERO_RENAME_COMMITTER": "magic",
            "ZERO_RENAME_IDEMPOTENCY_KEY": ONCE,
            "ZERO_RENAME_S3A_RUN": run,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        self.put_try(place, run, 1)
        return run

    @staticmethod
    def put_try(place: Place, run: str, number: int) -> None:
        record = TryRecord(run, ONCE, Owner(try_number=number), "magic", None)
        place.driver.run(ledger.open_try(place.root, record))

    @staticmethod
    def writes(place: Place, run: str) -> tuple[WriteRecord, ...]:
        known = place.driver.run(ledger.find(place.root, ONCE, run))
        assert known is not None
        return known.record.writes

    def test_each_write_has_a_uuid_of_its_own(
        self, application: Application, place: Place, run: str
    ) -> None:
        with application.with_committer("magic", uuid=run):
            save(days(application, (1, 1)), partition_by=["day"])
            save(days(application, (2, 1)), partition_by=["day"])
        records = self.writes(place, run)
        assert [write.state for write in records] == [WRITTEN] * 2
        first, second = (write.uuid for write in records)
        assert len({first, second, run}) == 3
        assert place.marker()["jobId"] == second
        reports = [place.driver.run(ledger.read_report(place.root, w)) for w in records]
        assert [(r.marker.job, r.marker.success) for r in reports if r] == [
            (first, True),
            (second, True),
        ]
        assert {write.destination for write in records} == {place.root.url}

    def test_bucket_that_demands_encryption_takes_files_and_records_by_one_setting(
        self, application: Application, place: Place, run: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = Encryption(Algorithm.SSE_S3)
        with FaultyServer(demanding_encryption("AES256"), application.store.endpoint) as store:
            endpoint = {f"fs.s3a.bucket.{place.bucket}.endpoint": store.endpoint, **UNCACHED}
            with application.with_committer("magic", endpoint, encryption=said.algorithm):
                save(days(application, (1, 1), (2, 2)), partition_by=["day"])
        writes = [got for got in store.received if makes_an_object(got)]
        assert any("/_zero_rename/" in got.path for got in writes)
        assert any("__magic" in got.path for got in writes)
        assert [got.path for got in writes if not names_encryption(got, "AES256")] == []
        assert [write.state for write in self.writes(place, run)] == [WRITTEN]
        assert ids(application, place) == {1: [1], 2: [2]}

    def test_bucket_that_retains_objects_takes_files_and_records_by_one_setting(
        self, application: Application, place: Place, run: str
    ) -> None:
        with FaultyServer(RETAINING, application.store.endpoint) as store:
            bucket = f"fs.s3a.bucket.{place.bucket}"
            said = {f"{bucket}.endpoint": store.endpoint, CHECKSUMS: "CRC32", **UNCACHED}
            with application.with_committer("magic", said):
                save(days(application, (1, 1), (2, 2)), partition_by=["day"])
        bare = [got.path for got in store.received if carries_bytes(got) and not has_checksum(got)]
        assert [path for path in bare if "/_zero_rename/" not in path] == []
        assert ids(application, place) == {1: [1], 2: [2]}

    def test_parts_of_one_call_are_counted(
        self, application: Application, place: Place, run: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ZERO_RENAME_MODE", "replace")
        monkeypatch.setenv("ZERO_RENAME_PARTITIONS", json.dumps(["day=1", "day=2"]))
        with application.with_committer("magic"):
            save(days(application, (1, 1)), partition_by=["day"])
        records = self.writes(place, run)
        assert [(r.partition, r.part, r.parts) for r in records] == [
            ("day=1", 1, 2),
            ("day=2", 2, 2),
        ]
        assert json.loads(place.body("day=2/_SUCCESS"))["jobId"] == records[1].uuid

    def test_a_failed_write_says_so(self, application: Application, place: Place, run: str) -> None:
        frame = days(application, (1, 1)).selectExpr("raise_error('no') as id", "day")
        with application.with_committer("magic"), pytest.raises(Exception, match="no"):
            save(frame, partition_by=["day"])
        (write,) = self.writes(place, run)
        assert write.state == FAILED

    def test_a_try_that_was_superseded_writes_nothing(
        self, application: Application, place: Place, run: str
    ) -> None:
        while True:  # The store's clock counts whole seconds.
            self.put_try(place, run_uuid(), 2)
            tries = place.driver.run(ledger.tries_of(place.root, ONCE))
            if tries[-1].record.opened_at > tries[0].record.opened_at:
                break
        with application.with_committer("magic"), pytest.raises(JobFencedError, match="attempt 2"):
            save(days(application, (1, 1)), partition_by=["day"])
        assert place.files() == []

    def test_a_later_try_ends_a_write_under_way(
        self,
        application: Application,
        place: Place,
        run: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Spark's jobs are cancelled, and the job aborts as any failed one does."""
        monkeypatch.setattr(try_record, "HEARTBEAT_INTERVAL", 0.2)
        begun, go_on = str(tmp_path / "begun"), str(tmp_path / "go-on")

        def waits(batches: Iterator[Any]) -> Iterator[Any]:
            import os
            import time

            for batch in batches:
                open(begun, "w").close()
                while not os.path.exists(go_on):
                    time.sleep(0.05)
                yield batch

        def retry() -> None:
            while not os.path.exists(begun):
                time.sleep(0.05)
            self.put_try(place, run_uuid(), 2)

        later = threading.Thread(target=retry)
        later.start()
        frame = days(application, (1, 1)).mapInArrow(waits, "id bigint, day int")
        try:
            with application.with_committer("magic"), pytest.raises(JobFencedError) as fenced:
                save(frame, partition_by=["day"])
        finally:
            Path(go_on).touch()
            later.join()
        assert "(attempt 2)" in str(fenced.value)
        assert (place.files(), place.has("_SUCCESS")) == ([], False)
        (write,) = self.writes(place, run)
        assert write.state == FAILED

    def test_a_commit_that_had_begun_goes_through_and_says_so(
        self, application: Application, place: Place, run: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The later try begins when Spark's jobs have ended: there is nothing to cancel."""
        monkeypatch.setattr(try_record, "HEARTBEAT_INTERVAL", 0.05)
        cancelled = threading.Event()
        monkeypatch.setattr(Operations, "cancel", lambda _: cancelled.set())

        def at_the_end(*_: Any) -> tuple[str, ...]:
            self.put_try(place, run_uuid(), 2)
            assert cancelled.wait(60)
            return ()

        monkeypatch.setattr(s3a_writer._Application, "_empty_the_rest", at_the_end)
        with application.with_committer("magic"), pytest.raises(OutcomeUnknownError) as told:
            save(days(application, (1, 1)), partition_by=["day"])
        assert "went through. Its rows may be in the table twice" in str(told.value)
        assert ids(application, place) == {1: [1]}
        (write,) = self.writes(place, run)
        assert write.state == WRITTEN


class TestRefusals:
    def test_a_table_of_zero_rename(self, application: Application, place: Place) -> None:
        place.put("_zero_rename/table.json", b"{}")
        refused = pytest.raises(SettingsRefusedError, match="native-table")
        with application.with_committer("magic"), refused:
            load(place, days(application, (1, 1)), "magic")

    def test_a_folder_of_another_format(self, application: Application, place: Place) -> None:
        place.put("_delta_log/00000000000000000000.json", b"{}")
        refused = pytest.raises(TableMismatchError, match="is a table of Delta Lake")
        with application.with_committer("magic"), refused:
            load(place, days(application, (1, 1)), "magic")
        assert len(place.objects()) == 1

    def test_a_session_that_has_another_committer(
        self, application: Application, place: Place
    ) -> None:
        refused = pytest.raises(SettingsRefusedError, match="committer-name")
        with application.with_committer("directory"), refused:
            load(place, days(application, (1, 1)), "magic")
        assert place.objects() == []

    def test_half_a_configuration(self, application: Application, place: Place) -> None:
        protocol = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
        wrong = {"spark.sql.sources.commitProtocolClass": protocol}
        refused = pytest.raises(SettingsRefusedError, match="commit-protocol-missing")
        with application.with_committer("magic", wrong), refused:
            load(place, days(application, (1, 1)), "magic")
