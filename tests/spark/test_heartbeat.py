"""Heartbeats: the thread of the user's process, and the notes that workers leave for it."""

from __future__ import annotations

import logging
import os
import stat

import pyarrow as pa
import pytest

from support.waiting import STUCK
from zero_rename.committer import JobSpec, StoreUnreachableError, Table
from zero_rename.committer.format.handoff import OPEN_JOBS
from zero_rename.committer.format.layout import new_job_id
from zero_rename.committer.store.encryption import Encryption
from zero_rename.spark import heartbeat
from zero_rename.spark.heartbeat import Heartbeat


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(OPEN_JOBS, str(tmp_path))
    return tmp_path


class Sent:
    """Records the heartbeats; answers what it is told to."""

    def __init__(self):
        self.given = []
        self.answer: bool | Exception = True

    def __call__(self, job, table, encryption):
        self.given.append((job, table, encryption))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_notes_are_private_and_go_when_the_job_is_over(folder):
    job = new_job_id()
    heartbeat.announce(job, "s3://bucket/t")
    (note,) = folder.iterdir()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    heartbeat.withdraw(job)
    assert list(folder.iterdir()) == []
    heartbeat.withdraw(job)


def test_without_a_listener_nothing_is_noted(monkeypatch, tmp_path, caplog):
    monkeypatch.delenv(OPEN_JOBS, raising=False)
    heartbeat.announce(new_job_id(), "s3://bucket/t")
    monkeypatch.setenv(OPEN_JOBS, str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        heartbeat.announce(new_job_id(), "s3://bucket/t")
    assert "no heartbeats for job" in caplog.text


def test_signs_are_given_after_a_while_and_then_every_interval(folder):
    sent = Sent()
    thread = Heartbeat(folder, lambda: True, sent, interval=30)
    thread.look(100)
    job = new_job_id()
    encryption = Encryption.parse("SSE-KMS alias/lake")
    heartbeat.announce(job, "s3://bucket/t", encryption)
    thread.look(110)
    thread.look(114)
    assert sent.given == []  # a short job costs no request
    thread.look(115)
    assert sent.given == [(job, "s3://bucket/t", encryption)]
    thread.look(144)
    assert len(sent.given) == 1
    thread.look(145)
    assert len(sent.given) == 2


def test_signs_end_with_the_job(folder):
    sent = Sent()
    thread = Heartbeat(folder, lambda: True, sent, interval=1)
    heartbeat.announce(new_job_id(), "s3://bucket/t")
    sent.answer = False
    for now in (0, 5, 10):
        thread.look(now)
    assert list(folder.iterdir()) == []
    assert len(sent.given) == 1


def test_failures_are_logged_and_tried_again(folder, caplog):
    sent = Sent()
    thread = Heartbeat(folder, lambda: True, sent, interval=1)
    heartbeat.announce(new_job_id(), "s3://bucket/t")
    (folder / "broken.json").write_text("{")
    sent.answer = StoreUnreachableError("no answer")
    with caplog.at_level(logging.WARNING):
        for now in (0, 5, 6):
            thread.look(now)
    assert len(sent.given) == 2
    assert "no heartbeat this time: no answer" in caplog.text
    assert "cannot be used, broken.json" in caplog.text


def test_the_thread_ends_with_the_application(folder):
    alive = iter([True, False])
    thread = Heartbeat(folder, lambda: next(alive), Sent())
    assert thread.daemon
    thread.start()
    thread.join(STUCK)
    assert not thread.is_alive()


def test_the_thread_never_raises(folder, caplog):
    def broken():
        raise RuntimeError("the application is gone")

    thread = Heartbeat(folder, broken, Sent())
    with caplog.at_level(logging.ERROR):
        thread.run()
    assert "heartbeats have ended" in caplog.text


def test_a_sign_is_a_rewritten_open_record(folder, s3_bucket):
    url = f"s3://{s3_bucket.name}/t"
    opened = Table(url).open_job(JobSpec(pa.schema({"n": pa.int32()})))
    heartbeat.announce(opened.job, url)
    thread = Heartbeat(folder, lambda: True, interval=1)
    before = s3_bucket.read(opened.root.open_key(opened.job))
    thread.look(0)
    thread.look(5)
    assert s3_bucket.read(opened.root.open_key(opened.job)) != before
    Table(url).abort(opened)
    thread.look(6)
    assert list(folder.iterdir()) == []


@pytest.mark.spark
def test_jobs_of_a_registered_session_are_noted(spark, s3_bucket):
    """The worker that opens the job finds the folder; commit takes the note away again."""
    from zero_rename.spark import registration

    (thread,) = [t for t in registration._heartbeats.values() if t.is_alive()]
    assert stat.S_IMODE(os.stat(thread.folder).st_mode) == 0o700
    seen = []

    def look(now, look=thread.look):
        seen.extend(path.stem for path in thread.folder.glob("*.json"))
        look(now)

    thread.look = look
    try:
        frame = spark.range(0, 4, 1, 1).mapInArrow(_slow, "id long")
        frame.write.format("zero_rename").mode("append").save(f"s3://{s3_bucket.name}/t")
    finally:
        del thread.look
    table = Table(f"s3://{s3_bucket.name}/t")
    (marker,) = [table.marker()]
    assert marker is not None
    assert set(seen) == {marker.job}
    assert list(thread.folder.glob("*")) == []


def _slow(batches):
    """Longer than the thread takes between two looks."""
    import time

    time.sleep(2.5)
    yield from batches
