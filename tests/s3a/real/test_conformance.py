"""What no job of Spark's shows of Hadoop's committers: they are driven by hand, as configured."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from support.hadoop_committers import Application, Place
from zero_rename.s3a.hadoop.settings import CONFLICT_KEY, UUID_KEY

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
S3A = pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
#: Of the empty file that stands for one whose upload is not completed.
LENGTH = "x-hadoop-s3a-magic-data-length"
FILE = "day=1/part-00000.txt"


@dataclass
class Attempt:
    """One attempt of one task, with the committer that it made."""

    jvm: Any
    context: Any
    committer: Any

    def path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.committer.getWorkPath(), name)

    def write(self, name: str, body: bytes) -> None:
        path = self.path(name)
        out = path.getFileSystem(self.context.getConfiguration()).create(path)
        out.write(bytearray(body))
        out.close()


class Job:
    """A job of one committer, by the factory that Spark's protocol asks too."""

    def __init__(self, application: Application, place: Place, job: str | None) -> None:
        self.place = place
        self.jvm: Any = application.spark._jvm
        self.conf: Any = application.spark._jsparkSession.sessionState().newHadoopConf()
        if job:
            self.conf.set(UUID_KEY, job)

    @property
    def root(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(self.place.url)

    def attempt(self, task: int, attempt: int = 0) -> Attempt:
        mapreduce = self.jvm.org.apache.hadoop.mapreduce
        name = f"attempt_202611210000_0001_m_{task:06d}_{attempt}"
        context = mapreduce.task.TaskAttemptContextImpl(
            self.conf, mapreduce.TaskAttemptID.forName(name)
        )
        factory = self.jvm.org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory()
        return Attempt(self.jvm, context, factory.createOutputCommitter(self.root, context))

    def begin(self) -> Attempt:
        driver = self.attempt(0)
        driver.committer.setupJob(driver.context)
        return driver


@pytest.fixture
def job(application: Application, place: Place, committer: str) -> Iterator[Job]:
    with application.with_committer(committer):
        yield Job(application, place, str(uuid.uuid4()))


def thrown(error: pytest.ExceptionInfo[Py4JJavaError]) -> str:
    return error.value.java_exception.toString()


@S3A
class TestProtocol:
    def test_a_task_is_committed_once(self, job: Job) -> None:
        """S3A conformance 15, 16, 17, 31, 36, 37."""
        driver, task = job.begin(), job.attempt(1)
        task.committer.setupTask(task.context)
        task.write(FILE, b"rows")
        task.write("day=2/empty", b"")
        assert task.committer.needsTaskCommit(task.context)
        assert job.place.files() == []
        task.committer.commitTask(task.context)
        assert job.place.files() == []
        assert len(job.place.uploads()) == 2
        driver.committer.commitJob(driver.context)
        written = job.place.files()
        assert [path.partition("/")[0] for path in written] == ["day=1", "day=2"]
        assert [job.place.body(path) for path in written] == [b"rows", b""]
        with pytest.raises(Py4JJavaError) as again:
            task.committer.commitTask(task.context)
        assert "FileNotFoundException" in thrown(again)
        assert job.place.files() == written
        assert job.place.uploads() == []

    def test_attempts_work_apart(self, job: Job) -> None:
        """S3A conformance 8, 9."""
        first, second = job.attempt(1), job.attempt(1, 1)
        paths = {one.committer.getWorkPath().toString() for one in (first, second)}
        assert len(paths) == 2
        assert all(job.conf.get(UUID_KEY) in path for path in paths)

    def test_no_task_is_recovered(self, job: Job) -> None:
        """S3A conformance 42."""
        driver, task = job.begin(), job.attempt(1)
        task.committer.setupTask(task.context)
        task.write(FILE, b"rows")
        task.committer.commitTask(task.context)
        again = job.attempt(1)
        assert not again.committer.isRecoverySupported(again.context)
        with pytest.raises(Py4JJavaError) as refused:
            again.committer.recoverTask(again.context)
        assert "PathCommitException" in thrown(refused)
        driver.committer.abortJob(driver.context, _failed(job.jvm))
        assert job.place.files() == []

    def test_to_abort_nothing_does_nothing(self, job: Job) -> None:
        """S3A conformance 43, 44, 47: twice, too."""
        job.place.put("day=1/there", b"before")
        driver, task = job.begin(), job.attempt(1)
        for _ in range(2):
            task.committer.abortTask(task.context)
            driver.committer.abortJob(driver.context, _failed(job.jvm))
        assert job.place.files() == ["day=1/there"]
        assert job.place.uploads() == []
        assert not job.place.has("_SUCCESS")

    def test_an_aborted_task_leaves_nothing(self, job: Job) -> None:
        """S3A conformance 45, 49."""
        driver, first, second = job.begin(), job.attempt(1), job.attempt(2)
        for task, name in ((first, FILE), (second, "day=2/part-00001.txt")):
            task.committer.setupTask(task.context)
            task.write(name, b"rows")
        first.committer.abortTask(first.context)
        second.committer.commitTask(second.context)
        assert len(job.place.uploads()) == 1
        driver.committer.commitJob(driver.context)
        (written,) = job.place.files()
        assert written.startswith("day=2/")
        assert job.place.marker()["filenames"] == [f"/{job.place.prefix}/{written}"]
        assert job.place.uploads() == []


@pytest.mark.parametrize("committer", ["directory", "partitioned"])
def test_a_replace_deletes_when_the_job_commits(job: Job) -> None:
    """S3A conformance 69, 74: neither at set-up nor in a task."""
    job.conf.set(CONFLICT_KEY, "replace")
    job.place.put("day=1/there", b"before")
    driver, task = job.begin(), job.attempt(1)
    task.committer.setupTask(task.context)
    task.write(FILE, b"rows")
    task.committer.commitTask(task.context)
    assert job.place.files() == ["day=1/there"]
    driver.committer.commitJob(driver.context)
    (written,) = job.place.files()
    assert job.place.body(written) == b"rows"


@S3A
def test_no_committer_is_made_without_a_uuid(
    application: Application, place: Place, committer: str
) -> None:
    """S3A conformance 4."""
    with application.with_committer(committer), pytest.raises(Py4JJavaError) as refused:
        Job(application, place, None).attempt(0)
    assert "PathCommitException" in thrown(refused)
    assert place.objects() == []


@pytest.mark.parametrize("committer", ["magic"])
class TestMagicFiles:
    def test_temporary_files_are_elsewhere(self, job: Job) -> None:
        """S3A conformance 10."""
        task = job.attempt(1)
        temporary = task.committer.getTempTaskAttemptPath(task.context).toString()
        assert "__magic" in task.committer.getWorkPath().toString()
        assert "__magic" not in temporary
        assert "__base" not in temporary

    def test_the_empty_file_has_a_length_and_the_whole_one_has_not(
        self, application: Application, job: Job
    ) -> None:
        """S3A conformance 85."""
        driver, task = job.begin(), job.attempt(1)
        task.committer.setupTask(task.context)
        task.write(FILE, b"rows")
        (standing,) = [key for key in job.place.objects() if key.endswith(FILE)]
        assert metadata(job.place, standing) == {LENGTH: "4"}
        assert job.place.body(standing) == b""
        task.committer.commitTask(task.context)
        driver.committer.commitJob(driver.context)
        assert metadata(job.place, FILE) == {}
        assert job.place.body(FILE) == b"rows"

    def test_syncing_shows_nothing(self, job: Job) -> None:
        """S3A conformance 96, 97: not offered, and where it is called all the same, of no use."""
        path = job.jvm.org.apache.hadoop.fs.Path(job.root, FILE)
        out = path.getFileSystem(job.conf).create(path)
        assert not out.hasCapability("hsync")
        assert not out.hasCapability("hflush")
        out.write(bytearray(b"rows"))
        out.hsync()
        assert job.place.files() == []
        out.close()
        assert job.place.body(FILE) == b"rows"

    def test_an_aborted_file_never_appears(self, job: Job) -> None:
        """S3A conformance 98."""
        job.place.put(FILE, b"before")
        path = job.jvm.org.apache.hadoop.fs.Path(job.root, FILE)
        out = path.getFileSystem(job.conf).create(path, True)
        out.write(bytearray(b"rows"))
        out.abort()
        out.abort()
        out.close()
        with pytest.raises(Py4JJavaError):
            out.write(bytearray(b"more"))
        assert job.place.body(FILE) == b"before"
        assert job.place.uploads() == []


def metadata(place: Place, path: str) -> dict[str, str]:
    return place.client.head_object(Bucket=place.bucket, Key=f"{place.prefix}/{path}")["Metadata"]


def _failed(jvm: Any) -> Any:
    return jvm.org.apache.hadoop.mapreduce.JobStatus.State.FAILED
