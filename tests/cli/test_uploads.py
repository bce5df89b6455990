"""``zero-rename uploads`` on real servers: live jobs survive, dead ones leave nothing."""

from __future__ import annotations

import json
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from torture.servers import Store, of_moto, of_server

from support.command_line import as_json, invoke
from support.plain_bucket import PlainBucket
from support.shared_servers import shared_server
from zero_rename import JobSpec, Table
from zero_rename.committer import JobFencedError, OpenedJob, Owner, StoreRefusedError, TaskResult
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.driver import connect
from zero_rename.committer.store.requests import AbortUpload, Delete, Unknown
from zero_rename.s3a.runs.ledger import open_try
from zero_rename.s3a.runs.try_record import TryRecord, run_uuid

DATA = pa.table({"value": [1, 2, 3], "day": [1, 1, 2]})
#: Dead uploads; ``UPLOADS=1000`` is what the figure in docs/commands.md was tried with.
COUNT = int(os.environ.get("UPLOADS", "120"))


@dataclass(frozen=True)
class Place(PlainBucket):
    """A bucket of one's own on some server; the environment points at it.

    :param ran_on: for the table at the end of a run.
    """

    ran_on: str

    def table(self, name: str) -> Table:
        return Table(f"s3://{self.name}/{name}")

    def begin(self, keys: list[str]) -> None:
        def one(key: str) -> None:
            self.client.create_multipart_upload(Bucket=self.name, Key=key)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(one, keys))


def place_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"uploads-{uuid.uuid4().hex[:12]}"
    client = store.client()
    client.create_bucket(Bucket=bucket)
    return Place(bucket, client, store.ran_on)


def server_named(name: str, request: pytest.FixtureRequest) -> Store:
    if name == "moto":
        return of_moto(request.getfixturevalue("s3_server"))
    return of_server(shared_server(request.config, name))


@pytest.fixture(params=["moto", "ceph"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where native tables can be."""
    return place_on(server_named(request.param, request), monkeypatch)


@pytest.fixture
def moto(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
    return place_on(of_moto(s3_server), monkeypatch)


def lines(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    result = invoke("uploads", *arguments, "--json")
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def written(table: Table, **policy: Any) -> tuple[OpenedJob, TaskResult]:
    """A job with its files written and nothing decided."""
    opened = table.open_job(JobSpec(DATA.schema, partition_by=("day",), **policy))
    writer = table.task_writer(opened, 0, 0)
    writer.write(DATA)
    return opened, writer.close()


def closed_job(table: Table) -> str:
    with table.job(DATA.schema, partition_by=["day"]) as job:
        job.write(DATA)
    assert job.committed is not None
    return job.committed.job


def wait_until_dead(table: Table, job: str) -> None:
    """Until the store's clock, which tells seconds, says that a job was silent for too long."""
    end = time.monotonic() + 30
    while {it.job: str(it.outcome) for it in table.plan_recovery()}[job] != "would-abort":
        assert time.monotonic() < end
        time.sleep(0.05)


def test_dead_uploads_go_and_three_live_jobs_stay(place: Place) -> None:
    lives = [(place.table(name), *written(place.table(name))) for name in ("a", "b", "c/d")]
    slow = place.table("slow")
    fenced, unread = written(slow, max_duration=0.5)
    wait_until_dead(slow, fenced.job)
    ours = closed_job(place.table("wh/flights"))
    kinds = (
        f"wh/flights/day={{}}/part-{{}}-{ours}-0009.parquet",
        "wh/flights/day={}/part-{}-2f9a.snappy.parquet",
        "tmp/spark-{}/part-{}",
    )
    keys = [kinds[n % 3].format(n % 7, n) for n in range(COUNT)]
    place.begin(keys)
    url = f"s3://{place.name}"
    would = lines("abort", url, "--older-than", "0")
    assert len(place.uploads()) == COUNT + 3 * 2 + 2
    assert sum(it["action"] == "would-abort" for it in would) == COUNT + 2
    done = lines("abort", url, "--older-than", "0", "--apply")
    assert sum(it["action"] == "aborted" for it in done) == COUNT + 2
    assert {it["job"] for it in done if it["action"] == "kept"} == {it[1].job for it in lives}
    assert len(place.uploads()) == 3 * 2
    for table, opened, result in lives:
        assert table.commit(opened, [result]).rows == 3
        assert table.verify() == []
    with pytest.raises(JobFencedError):
        slow.commit(fenced, [unread])
    assert place.uploads() == []
    assert [it for it in (*(it[0] for it in lives), slow) if it.open_jobs()] == []


def test_keys_of_any_letters_are_aborted(place: Place) -> None:
    """Signed as each of them wants it."""
    names = ["a b", "ä+%2F~(1)*'!=&?#;:@$,", "中", "day=1/part-0", "plain", "\u00a0"]
    place.begin([f"other/{name}-{number}" for name in names for number in range(3)])
    done = lines("abort", f"s3://{place.name}", "--older-than", "0", "--apply")
    assert ({entry["action"] for entry in done}, len(done)) == ({"aborted"}, 3 * len(names))
    assert place.uploads() == []


def test_runs_of_hadoops_committers_that_are_at_work_are_spared(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3Mock holds no native tables; whether a run lives, the operator's record beside says."""
    place = place_on(server_named("s3mock", request), monkeypatch)
    names = ("source=crm/y", "source=erp", "x")
    live = [f"wh/{name}/day=1/part-0" for name in names]
    for name in names:
        record = TryRecord(run_uuid(), "run", Owner(), "magic", None)
        connect(place.name).run(open_try(TableRoot(place.name, f"wh/{name}"), record))
    dead = [f"wh/dead/day={n % 9}/part-{n}" for n in range(COUNT)] + ["wh/x2/1", "top", "wh/2"]
    place.begin(live + dead)
    done = lines("abort", f"s3://{place.name}", "--older-than", "0", "--apply")
    assert {it["key"]: it["reason"] for it in done if it["action"] == "kept"} == {
        key: f"an S3A run is at work on s3://{place.name}/{key.rsplit('/', 2)[0]}" for key in live
    }
    assert sum(it["action"] == "aborted" for it in done) == len(dead)
    assert sorted(place.uploads()) == live


class TestCommands:
    def test_what_they_hold_and_cost(self, moto: Place) -> None:
        opened, _ = written(moto.table("flights"))
        answer = moto.client.create_multipart_upload(Bucket=moto.name, Key="flights/big")
        moto.client.upload_part(
            Bucket=moto.name, Key="flights/big", UploadId=answer["UploadId"], PartNumber=1,
            Body=b"x" * 2**20,
        )  # fmt: skip
        url = f"s3://{moto.name}/flights"
        found = {it["key"]: it for it in lines("list", url)}
        assert (found["flights/big"]["bytes"], found["flights/big"]["parts"]) == (2**20, 1)
        assert found["flights/big"]["whose"] == "foreign"
        assert {it["whose"] for key, it in found.items() if opened.job in key} == {"ours"}
        printed = invoke("uploads", "list", url, "--foreign", "--price", "1024")
        assert "1,048,576 bytes: 1.00 a month at 1024.0 per GiB" in printed.stderr
        assert "flights/big" in printed.stdout
        assert opened.job not in printed.stdout
        assert [it["bytes"] for it in lines("list", url, "--no-sizes")] == [None] * 3

    def test_an_age_is_wanted_and_nothing_is_done_without_apply(self, moto: Place) -> None:
        moto.begin(["flights/x"])
        url = f"s3://{moto.name}/flights"
        refused = invoke("uploads", "abort", url, "--apply")
        assert refused.exit_code == 2
        assert "--older-than" in refused.stderr
        assert invoke("uploads", "abort", url, "--older-than", "soon").exit_code == 2
        assert invoke("uploads", "list", "flights").exit_code == 2
        dry = invoke("uploads", "abort", url, "--older-than", "1d")
        assert "--apply does it" in dry.stderr
        assert moto.uploads() == ["flights/x"]
        # moto dates every upload to 2010.
        assert lines("abort", url, "--older-than", "36500d", "--apply") == []
        (entry,) = lines("abort", url, "--older-than", "0", "--apply")
        assert entry["action"] == "aborted"
        assert moto.uploads() == []
        assert invoke("uploads", "list", url).stdout == "No unfinished upload was found there.\n"

    @pytest.mark.parametrize(("count", "code"), [("2", 0), ("3", 1)])
    def test_they_are_counted(self, moto: Place, count: str, code: int) -> None:
        moto.begin(["flights/x", "flights/y", "flights2/z"])
        words = ("uploads", "expect", count, f"s3://{moto.name}/flights")
        result = invoke(*words)
        assert result.exit_code == code
        assert result.stdout == f"Expected {count} uploads, found 2.\n"
        assert as_json(*words, code=code) == {"expected": int(count), "found": 2}

    def test_by_job(self, moto: Place) -> None:
        table = moto.table("flights")
        first, second = closed_job(table), closed_job(table)
        keys = [f"flights/day=1/part-1-{job}-9.parquet" for job in (first, second)]
        moto.begin(keys)
        url = f"{table.root.url}/day=1"
        (entry,) = lines("abort", url, "--older-than", "0", "--job", first, "--apply")
        assert (entry["key"], entry["table"]) == (keys[0], table.root.url)
        assert moto.uploads() == [keys[1]]

    def test_one_that_stays_is_told_by_the_exit_code(
        self, moto: Place, answered_by: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moto.begin(["flights/x"])
        stays = Unknown("503")
        answered_by(lambda request: stays if isinstance(request, AbortUpload) else None)
        monkeypatch.setattr("zero_rename.committer.store.backoff.Backoff.delay", lambda *_: 0.0)
        url = f"s3://{moto.name}/flights"
        result = invoke("uploads", "abort", url, "--older-than", "0", "--apply", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout.splitlines()[0])["action"] == "failed"
        assert "run it again" in result.stderr

    def test_a_dead_job_that_is_not_settled_is_told_by_the_exit_code(
        self, moto: Place, answered_by: Any
    ) -> None:
        """Its uploads are gone, and its open record is not."""
        table = moto.table("flights")
        dead, _ = written(table, max_duration=0.0)
        refusing = [True]

        def answer(request: Any) -> None:
            if refusing[0] and request == Delete(table.root.open_key(dead.job)):
                raise StoreRefusedError("No right to delete.")

        answered_by(answer)
        result = invoke(
            "uploads", "abort", table.root.url, "--older-than", "0", "--apply", "--json"
        )
        actions = [json.loads(line)["action"] for line in result.stdout.splitlines()]
        assert (actions, moto.uploads()) == (["aborted", "aborted"], [])
        assert result.exit_code == 1
        assert f"{dead.job}: failed" in result.stderr
        refusing[0] = False
        assert [str(it.outcome) for it in table.recover()] == ["aborted"]
