"""``make bench`` without its clock: who is left out and why, what ratios are of, the page."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from torture.servers import of_moto

from bench import hosts as hosts_module
from bench import measure, own_peers
from bench import rows as made
from bench.__main__ import measured, profiled
from bench.goals import GOALS, seconds
from bench.hosts import HostProcesses
from bench.measure import Bench
from bench.papers import by_kind, tables_of_papers
from bench.peers import BY_NAME, PEERS, Peer
from bench.processes import Host, HostError, _Used, cpu_between
from bench.profiles import digest
from bench.report import markdown, missed, ratios
from bench.results import Row, Run, Table
from bench.spark_peers import SparkSide
from bench.store import behind_proxy, price
from bench.workloads import (
    BY_SPARK_HEADS,
    HEADS,
    LOCAL,
    OURS,
    PAPERS,
    PARQUET,
    WORKLOADS,
    Workload,
    slug,
)
from docs.extensions.tables import between
from support.faulty_server import FaultyServer, always, s3_error
from support.moto_server import S3Server
from tools.bootstrap import SetupError
from tools.environments import BENCH_PEERS
from tools.pinned_environment import PinnedEnvironment


def run(number: int, took: float, throttled: int = 0, **more: float) -> Run:
    return Run(number, took, {"driver": took}, {"workers": 100}, {"PutObject": 1000}, throttled)


def row(peer: str, *took: float, throttled: int | None = None) -> Row:
    """Its runs, one a round; one of them throttled."""
    return Row(peer, [run(n, it, int(n == throttled)) for n, it in enumerate(took)])


def table(name: str, *rows: Row) -> Table:
    return Table(next(it for it in WORKLOADS if it.name == name), list(rows))


class TestRatios:
    def test_they_are_of_one_round_so_that_a_slower_machine_is_nobodys(self) -> None:
        ours, theirs = row(OURS, 9, 1, 10, 100), row("magic", 9, 3, 30, 300)
        ours.runs.pop(2)  # Round 2 has nobody to be compared with.

        assert theirs.ratio(ours, seconds) == 3

    def test_the_first_run_is_cold_and_counts_where_there_is_no_other(self) -> None:
        slow = row("rename v1", 40)

        assert slow.ratio(row(OURS, 8, 2, 2), seconds) == 5
        assert row("magic", 40, 6).ratio(row(OURS, 8, 2, 2), seconds) == 3

    def test_a_throttled_run_is_not_averaged(self) -> None:
        theirs = row("magic", 9, 4, 400, throttled=2)

        assert theirs.ratio(row(OURS, 9, 2, 2), seconds) == 2
        shown = markdown([table("64 files", row(OURS, 9, 2, 2), theirs)], "", {})
        assert "magic (1 of 3 runs throttled, not counted)" in shown

    def test_the_line_of_json_has_those_of_the_run_and_the_goals(self) -> None:
        of = table("64 files", row(OURS, 9, 2), row("magic", 9, 6), row("delta-rs"))

        said = json.loads(ratios([of]))

        assert said["ratios"] == {"64 files": {"magic": {"seconds": 3, "cpu": 3, "requests": 1}}}
        assert said["goals"] == {"64 files: seconds of magic": 3}
        assert [goal.title for goal in missed([of])] == ["64 files: seconds of magic"]


class TestPage:
    def test_it_is_written_between_its_marks(self) -> None:
        page = "above\n<!-- bench -->\nold\n<!-- end of bench -->\nbelow\n"
        of = table("8 files", row(OURS, 9, 13, 13), row(LOCAL, 9, 10, 10))

        written = between(page, "bench", markdown([of], "On a machine.", {}))

        assert written.startswith("above\n<!-- bench -->\nOn a machine.\n")
        assert written.endswith("<!-- end of bench -->\nbelow\n")
        assert "old" not in written
        assert "| at most 1.3 | 1.30 | met |" in written
        assert between(written, "bench", "x") == between(page, "bench", "x")

    def test_a_missed_goal_has_its_profile_there(self) -> None:
        stacks = "main (a.py:1);write (committer/b.py:2);compress (c.py:3) 30\nmain (a.py:1) 10\n"

        page = markdown([], "", {GOALS[0].title: "\n".join(digest(stacks))})

        assert "| 75% | `compress (c.py)` | `write (committer/b.py)` |" in page

    def test_the_real_page_has_the_marks(self) -> None:
        page = Path(__file__).parents[2] / "docs" / "performance.md"

        for name in ("bench", "growth"):
            assert between(page.read_text("utf-8"), name, "what was measured")

    def test_dear_requests_and_free_ones(self) -> None:
        assert price({"UploadPart": 1000, "GetObject": 1000}) == pytest.approx(0.0054)
        assert price({"AbortMultipartUpload": 1000, "DeleteObjects": 9}) == 0


#: A host that answers all but one peer, at once.
_HOST = """
import json, sys, time
print("{}", flush=True)
for line in sys.stdin:
    time.sleep(60 if json.loads(line)["peer"] == "hangs" else 0)
    print('{"seconds": 0.1, "rows": null}', flush=True)
"""


class _Hosts(HostProcesses):
    def start(self, kind: str) -> Host:
        return Host([sys.executable, "-c", _HOST], {}, self._folder / "log", 60)


class TestPapers:
    def test_each_request_is_of_a_kind(self) -> None:
        found = by_kind({"GetObject": 2, "GET bucket": 1, "UploadPart": 3, "DeleteObjects": 1})

        assert found == {"GET": 3, "PUT": 3, "DELETE": 1}
        with pytest.raises(KeyError):
            by_kind({"PATCH object": 1})

    def test_ratios_are_to_tables_that_are_read_by_heads(self) -> None:
        writers = [row("rename v1", 9, 8), row(HEADS, 9, 2)]
        readers = [row(PARQUET, 9, 3), row(BY_SPARK_HEADS, 9, 2)]
        tables = [Table(it, readers if it.verb == "read" else writers) for it in PAPERS]
        for row_of_write in writers:
            row_of_write.bytes = 500
            row_of_write.runs = [replace(it, written=400) for it in row_of_write.runs]

        page = tables_of_papers(tables, "On a machine.")

        name = "rename v1: over zero-rename, read by heads"
        assert f"| {name} | 1.50 | 4.00 | 4.00 | 4.00 | 4.00 | 1.50 |" in page
        assert "| rename v1 | 0 | 0 | 1000 | 0 | 0 | 0 | 0 | 1000 |" in page
        assert "| rename v1 | 1.60 |" in page

    def test_the_real_page_has_the_marks(self) -> None:
        page = Path(__file__).parents[2] / "docs" / "papers.md"

        assert between(page.read_text("utf-8"), "papers", "what was measured")


class TestPeers:
    def test_one_that_cannot_be_installed_and_one_that_fails_are_rows(
        self, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nowhere(_: object) -> None:
            raise SetupError("deltalake is not to be had")

        monkeypatch.setattr(PinnedEnvironment, "ensure", nowhere)
        monkeypatch.setattr(hosts_module, "BENCH_PEERS", replace(BENCH_PEERS, title="nobody's"))
        monkeypatch.setenv("PATH", str(tmp_path))
        ours, delta = BY_NAME["zero-rename, plain Python"], BY_NAME["delta-rs"]
        rclone = BY_NAME["rclone cleanup"]
        with (
            behind_proxy(of_moto(s3_server)) as store,
            HostProcesses(store.behind, tmp_path) as hosts,
        ):
            bench = Bench(store, hosts, rounds=1, longest=60)
            saved = bench.measure(Workload("few", "Few"), [delta, ours])
            aborted = bench.measure(Workload("abort", "Abort", "abort", tasks=3), [rclone, ours])

        by_name = {row.peer: row for row in saved.rows}
        assert "not installed: deltalake is not to be had" in by_name["delta-rs"].why
        assert len(by_name[ours.name].runs) == 2
        assert by_name[ours.name].files == 2
        assert by_name[ours.name].runs[1].requests["CompleteMultipartUpload"] == 1
        page = markdown([saved, aborted], "", {})
        assert "| delta-rs | failed: not installed" in page
        assert "| rclone cleanup | failed: FileNotFoundError" in page
        assert aborted.row(ours.name)

    def test_one_that_would_take_longer_than_a_run_may_is_not_begun(
        self, s3_server: S3Server, tmp_path: Path
    ) -> None:
        """By what it took for fewer files, not in minutes of waiting."""
        ours = BY_NAME["zero-rename, plain Python"]
        with (
            behind_proxy(of_moto(s3_server)) as store,
            HostProcesses(store.behind, tmp_path) as hosts,
        ):
            bench = Bench(store, hosts, rounds=0, longest=60)
            fewer = bench.measure(Workload("some", "Some", tasks=32), [ours])
            more = bench.measure(Workload("many", "Many", tasks=32_000_000), [ours])

        assert fewer.row(ours.name)
        assert not more.row(ours.name)
        assert "left out: 32 files took" in more.rows[0].why

    def test_one_that_hangs_takes_its_workload_s_time_and_not_the_next_one_s(
        self, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measure, "_LEAST", 0.5)
        verbs = {"append": own_peers.write()}
        hangs, answers = Peer("hangs", "python", verbs), Peer("answers", "python", verbs)
        few = Workload("few", "Few", seconds=2)
        began = time.monotonic()
        with (
            behind_proxy(of_moto(s3_server)) as store,
            _Hosts(store.behind, tmp_path) as hosts,
        ):
            bench = Bench(store, hosts, rounds=3, longest=60, end=time.monotonic() + 8)
            found = list(measured(bench, [few, replace(few, name="more")], [hangs, answers]))

        assert time.monotonic() - began < 20
        for table in found:
            assert [len(it.runs) > 1 for it in table.rows] == [False, True]
            assert table.rows[0].why.startswith("failed: took longer than")

    def test_one_that_the_store_refuses_costs_its_own_row_alone(
        self, s3_server: S3Server, tmp_path: Path
    ) -> None:
        refused = Peer("a name too long for a bucket " * 3, "python", {"append": own_peers.write()})
        answers = replace(refused, name="answers")
        with behind_proxy(of_moto(s3_server)) as store, _Hosts(store.behind, tmp_path) as hosts:
            bench = Bench(store, hosts, rounds=1, longest=60)
            found = bench.measure(Workload("few", "Few"), [refused, answers])

        assert "InvalidBucketName" in found.rows[0].why
        assert len(found.rows[1].runs) == 2

    def test_a_profile_without_a_host_is_none(self, s3_server: S3Server, tmp_path: Path) -> None:
        slow = table("8 files", row(OURS, 9, 5), row(LOCAL, 9, 1))
        with behind_proxy(of_moto(s3_server)) as store, _Hosts(store.behind, tmp_path) as hosts:
            hosts._broken["spark"] = HostError("took longer than 180 s")
            found = profiled([slow], Bench(store, hosts, rounds=1, longest=60), hosts)

        assert list(found.values()) == ["No profile: took longer than 180 s."]

    def test_a_row_says_that_its_rounds_were_cut(self) -> None:
        cut = replace(row("magic", 9, 3, 3), cut=True)

        shown = markdown([table("64 files", row(OURS, 9, 2, 2), cut)], "", {})

        assert "| magic (3 runs, then the time was up) |" in shown

    def test_a_merge_is_checked_and_what_it_writes_is_counted(
        self, s3_server: S3Server, tmp_path: Path
    ) -> None:
        ours = [BY_NAME[f"zero-rename, plain Python{it}"] for it in ("", ", read by heads")]
        merge = next(it for it in WORKLOADS if it.verb == "merge").scaled(0.04)
        with (
            behind_proxy(of_moto(s3_server)) as store,
            HostProcesses(store.behind, tmp_path) as hosts,
        ):
            bench = Bench(store, hosts, rounds=1, longest=60)
            found = bench.measure(merge, ours)

        for row in found.rows:
            assert (row.why, row.found) == ("", merge.rows + 2 * (merge.rows // 1000))
            assert 0 < row.runs[1].written < row.bytes / 2, "one partition in twelve is written"

    def test_a_table_that_a_merge_left_otherwise_is_refused(self) -> None:
        merge = Workload("few", "Few", "merge", rows=2000, partitions=24, ordered=True, round=1)
        whole = made.expected(merge)

        assert made.check(merge, whole.sort_by([("d", "descending")])) == 2000 + 2 * 2
        for other in (whole.slice(1), made.expected(replace(merge, round=2)).slice(2)):
            with pytest.raises(LookupError, match="not these 2004"):
                made.check(merge, other)

    def test_a_merge_brings_one_row_in_a_hundred_into_one_partition_in_twelve(self) -> None:
        merge = next(it for it in WORKLOADS if it.verb == "merge")
        brought = made.source(merge)

        assert (merge.partitions, brought.num_rows) == (365, merge.rows // 100)
        assert len(brought["day"].unique()) == 30

    def test_bytes_are_counted_as_they_are_stored_copies_and_parts_too(
        self, s3_server: S3Server
    ) -> None:
        with behind_proxy(of_moto(s3_server)) as store:
            store.make_bucket("bytes")
            client = store.behind.client()
            client.put_object(Bucket="bytes", Key="a b", Body=b"12345")
            store.delay(0)
            client.copy_object(
                Bucket="bytes", Key="c", CopySource={"Bucket": "bytes", "Key": "a b"}
            )
            upload = client.create_multipart_upload(Bucket="bytes", Key="d")["UploadId"]
            given = {"Bucket": "bytes", "Key": "d", "UploadId": upload}
            part = client.upload_part(**given, PartNumber=1, Body=b"123")
            parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
            client.complete_multipart_upload(**given, MultipartUpload={"Parts": parts})
            assert store.traffic().written == 5 + 3
            client.copy_object(Bucket="bytes", Key="e", CopySource="bytes/d")
            assert store.traffic().written == 5 + 3 + 3

    def test_answers_that_ask_to_slow_down_are_counted(self) -> None:
        with (
            FaultyServer(always(s3_error(503, "SlowDown"))) as throttling,
            behind_proxy(of_moto(S3Server(throttling.endpoint))) as store,
        ):
            store.delay(0)
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"{store.behind.endpoint}/bucket/key", timeout=60)

            seen = store.traffic()
        assert (seen.throttled, seen.requests) == (1, {"GetObject": 1})

    def test_each_workload_has_somebody_and_each_peer_something(self) -> None:
        taken = {(w.name, p.name) for w in WORKLOADS for p in PEERS if p.takes(w)}
        of_papers = {w.name for w in PAPERS for p in PEERS if p.takes(w)}

        assert {workload for workload, _ in taken} == {it.name for it in WORKLOADS}
        assert {peer for _, peer in taken} == set(BY_NAME)
        assert of_papers == {it.name for it in PAPERS}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", [OURS, "zero-rename, format()"])
def test_who_was_primed_starts_no_pool_of_workers_in_its_run(
    spark: Any, s3_bucket: Any, name: str
) -> None:
    """Spark ends Python workers that were idle for a minute, which the other peers take. Each pool
    of them has a daemon, which is the JVM's child."""
    jvm = psutil.Process(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    side, few = SparkSide.__new__(SparkSide), Workload("few", "Few")
    side.spark, side._frame, side.made = spark, (None, None), None
    peer, url = BY_NAME[name], f"s3://{s3_bucket.name}/{slug(name)}"

    peer.verbs["prime"](side, few, f"{url}-prime")
    primed = {it.pid for it in jvm.children()}
    peer.verbs["append"](side, few, url)

    assert primed, "no daemon is there"
    assert {it.pid for it in jvm.children()} <= primed


class TestProcesses:
    def test_a_process_that_ended_is_counted_once(self) -> None:
        """It was counted until then; who waited for it has inherited all it used."""
        before = {1: _Used("jvm", 0, 5, 0), 2: _Used("workers", 1, 3, 0)}
        after = {1: _Used("jvm", 0, 6, 4)}

        assert cpu_between(before, after) == {"jvm": 2}
        nobody_waited = {1: _Used("jvm", 0, 6, 0)}
        assert cpu_between(before, nobody_waited) == {"jvm": 1}
