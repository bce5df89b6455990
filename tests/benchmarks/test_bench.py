"""``make bench`` and ``make fast-tier`` without their clocks: who is left out and why, what ratios
are of, the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fast_tier
import pytest
from fast_tier import COPIED, STAGES, Pipeline, source
from torture.servers import of_moto

from bench import hosts as hosts_module
from bench import measure
from bench import rows as made
from bench.goals import GOALS, compared, seconds
from bench.hosts import HostProcesses
from bench.measure import Bench, turns
from bench.papers import by_kind, tables_of_papers
from bench.peers import BY_NAME, PEERS
from bench.processes import _Used, cpu_between
from bench.profiles import digest
from bench.report import markdown, missed, ratios
from bench.results import Comparison, Measurement, Row
from bench.store import behind_proxy, price
from bench.workloads import (
    BY_SPARK_DELTA,
    DELTA_ON_4_1,
    DELTA_TOGETHER_ON_4_1,
    ICEBERG,
    LOCAL,
    OURS,
    OURS_DELTA,
    PAPERS,
    PARQUET,
    PLAIN,
    PLAIN_DELTA,
    TOGETHER_ON_4_1,
    WORKLOADS,
    Workload,
)
from docs.extensions.tables import between
from support.moto_server import S3Server, running
from tools.bootstrap import SetupError
from tools.environments import BENCH_PEERS, SPARK_4_1, PinnedEnvironment
from zero_rename.committer.store.driver import _StepsRun


def run(number: int, took: float, throttled: int = 0, **more: float) -> Measurement:
    return Measurement(
        number, took, {"driver": took}, {"workers": 100}, {"PutObject": 1000}, throttled
    )


def row(peer: str, *took: float, throttled: int | None = None) -> Row:
    """Its runs, one a round; one of them throttled."""
    return Row(peer, [run(n, it, int(n == throttled)) for n, it in enumerate(took)])


def table(name: str, *rows: Row) -> Comparison:
    return Comparison(next(it for it in WORKLOADS if it.name == name), list(rows))


def test_profile_leaves_out_a_driver_that_waits_for_answers() -> None:
    waits = f"{_StepsRun._wait.__qualname__} (committer/store/driver.py:290)"
    lines = digest(f"main (job.py:1);{waits} 90\nmain (job.py:1);work (job.py:2) 10\n")
    assert "_wait" not in "\n".join(lines)
    assert "work (job.py)" in "\n".join(lines)


def test_profile_of_a_missed_goal_is_of_the_peer_of_ours_that_missed_it() -> None:
    titles = {goal.title: goal.ours for goal in GOALS}
    assert titles["64 files: seconds of magic"] == OURS
    assert titles["merge on Spark 4.1, as a Delta table: our seconds in Iceberg's"] == DELTA_ON_4_1
    assert all("zero-rename" in peer for peer in titles.values())


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

    def test_dear_requests_and_free_ones(self) -> None:
        assert price({"UploadPart": 1000, "GetObject": 1000}) == pytest.approx(0.0054)
        assert price({"AbortMultipartUpload": 1000, "DeleteObjects": 9}) == 0


class TestPapers:
    def test_each_request_is_of_a_kind(self) -> None:
        found = by_kind({"GetObject": 2, "GET bucket": 1, "UploadPart": 3, "DeleteObjects": 1})

        assert found == {"GET": 3, "PUT": 3, "DELETE": 1}
        with pytest.raises(KeyError):
            by_kind({"PATCH object": 1})

    def test_ratios_are_to_delta_tables_of_this_package(self) -> None:
        writers = [row("rename v1", 9, 8), row(OURS_DELTA, 9, 2)]
        readers = [row(PARQUET, 9, 3), row(BY_SPARK_DELTA, 9, 2)]
        tables = [Comparison(it, readers if it.verb == "read" else writers) for it in PAPERS]
        for row_of_write in writers:
            row_of_write.bytes = 500
            row_of_write.runs = [replace(it, written=400) for it in row_of_write.runs]

        page = tables_of_papers(tables, "On a machine.")

        name = "rename v1: over zero-rename, as a Delta table"
        assert f"| {name} | 1.50 | 4.00 | 4.00 | 4.00 | 4.00 | 1.50 |" in page
        assert "| rename v1 | 0 | 0 | 1000 | 0 | 0 | 0 | 0 | 1000 |" in page
        assert "| rename v1 | 1.60 |" in page


@pytest.fixture(scope="module")
def bench(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Of one round, on a store that is counted."""
    folder = tmp_path_factory.mktemp("hosts")
    with behind_proxy(of_moto(s3_server)) as store, HostProcesses(store.behind, folder) as hosts:
        yield Bench(store, hosts, rounds=1, longest=60)


class TestPeers:
    def test_one_that_cannot_be_installed_and_one_that_fails_are_rows(
        self, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nowhere(_: object) -> None:
            raise SetupError("deltalake is not to be had")

        monkeypatch.setattr(PinnedEnvironment, "ensure", nowhere)
        monkeypatch.setattr(hosts_module, "BENCH_PEERS", replace(BENCH_PEERS, title="nobody's"))
        nobodys = replace(SPARK_4_1, title="nobody's"), None
        monkeypatch.setitem(hosts_module.OTHER_SPARKS, "spark-4.1", nobodys)
        monkeypatch.setenv("PATH", str(tmp_path))
        ours, delta = BY_NAME["zero-rename, plain Python"], BY_NAME["delta-rs"]
        rclone = BY_NAME["rclone cleanup"]
        with (
            behind_proxy(of_moto(s3_server)) as store,
            HostProcesses(store.behind, tmp_path) as hosts,
        ):
            bench = Bench(store, hosts, rounds=1, longest=60)
            saved = bench.measure(Workload("few", "Few"), [delta, BY_NAME[ICEBERG], ours])
            aborted = bench.measure(Workload("abort", "Abort", "abort", tasks=3), [rclone, ours])

        by_name = {row.peer: row for row in saved.rows}
        assert "not installed: deltalake is not to be had" in by_name["delta-rs"].why
        assert len(by_name[ours.name].runs) == 2
        assert by_name[ours.name].files == 2
        assert by_name[ours.name].runs[1].requests["CompleteMultipartUpload"] == 1
        page = markdown([saved, aborted], "", {})
        assert "| delta-rs | failed: not installed" in page
        assert f"| {ICEBERG} | failed: not installed" in page
        assert "| rclone cleanup | failed: FileNotFoundError" in page
        assert aborted.row(ours.name)

    def test_uploads_of_another_workload_are_not_taken_for_those_of_an_abort(
        self, bench: Bench
    ) -> None:
        ours = BY_NAME[PLAIN]
        bench.store.make_bucket(ours.bucket)
        bench.store.upload(ours.bucket, f"s3://{ours.bucket}/recovery", 2)
        (aborted,) = bench.measure(Workload("abort", "Abort", "abort", tasks=3), [ours]).rows
        bench.store.bucket(ours.bucket).abort_uploads()

        assert (aborted.why, len(aborted.runs)) == ("", 2)

    def test_those_that_a_goal_compares_have_their_rounds_before_the_others_begin(self) -> None:
        replaced = next(it for it in WORKLOADS if it.name == "replace")
        taking = [peer for peer in PEERS if peer.takes(replaced)]
        rounds = [[it.name for it in one] for one in turns(replaced, taking, 2)]
        first = {DELTA_ON_4_1, DELTA_TOGETHER_ON_4_1, ICEBERG, TOGETHER_ON_4_1}

        assert compared("replace") == first
        assert [set(it) == first for it in rounds] == [True, True, True, False, False, False]
        assert not first & set(rounds[3]), "the others' first runs are cold"
        assert [set(it) == {peer.name for peer in taking} for it in rounds[4:]] == [True, True]
        assert rounds[0] != rounds[1], "each round begins with another one"

    def test_each_peer_has_a_bucket_of_its_own_with_a_valid_name(self) -> None:
        buckets = {it.bucket for it in PEERS}

        assert len(buckets) == len(PEERS)
        assert all(re.fullmatch("[a-z0-9-]{3,63}", it) for it in buckets)

    def test_rows_of_each_goal_are_of_a_peer_that_takes_the_workload(self) -> None:
        by_name = {it.name: it for it in WORKLOADS}
        for goal in GOALS:
            assert BY_NAME[goal.above].takes(by_name[goal.workload]), goal.title
            below = by_name[goal.other_workload or goal.workload]
            assert BY_NAME[goal.below].takes(below), goal.title

    def test_a_merge_is_checked_by_each_peers_rounds_and_what_it_writes_is_counted(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = [BY_NAME[PLAIN], BY_NAME[PLAIN_DELTA]]
        monkeypatch.setattr(measure, "turns", lambda *_: [ours, ours, ours[1:]])
        merge = next(it for it in WORKLOADS if it.verb == "merge").scaled(0.04)
        found = bench.measure(merge, ours)

        for row, rounds in zip(found.rows, (2, 3), strict=True):
            assert (row.why, row.found) == ("", merge.rows + rounds * (merge.rows // 1000))
            assert 0 < row.runs[1].written < row.bytes / 2, "one partition in twelve is written"

    def test_a_table_that_a_merge_left_otherwise_is_refused(self) -> None:
        merge = Workload("few", "Few", "merge", rows=2000, partitions=24, ordered=True, round=1)
        whole = made.expected(merge)

        assert made.check(merge, whole.sort_by([("d", "descending")])) == 2000 + 2 * 2
        for other in (whole.slice(1), made.expected(replace(merge, round=2)).slice(2)):
            with pytest.raises(LookupError, match="not these 2004"):
                made.check(merge, other)

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

    def test_each_workload_has_somebody_and_each_peer_something(self) -> None:
        taken = {(w.name, p.name) for w in WORKLOADS for p in PEERS if p.takes(w)}
        of_papers = {w.name for w in PAPERS for p in PEERS if p.takes(w)}

        assert {workload for workload, _ in taken} == {it.name for it in WORKLOADS}
        assert {peer for _, peer in taken} == set(BY_NAME)
        assert of_papers == {it.name for it in PAPERS}


class TestProcesses:
    def test_a_process_that_ended_is_counted_once(self) -> None:
        """It was counted until then; who waited for it has inherited all it used."""
        before = {1: _Used("jvm", 0, 5, 0), 2: _Used("workers", 1, 3, 0)}
        after = {1: _Used("jvm", 0, 6, 4)}

        assert cpu_between(before, after) == {"jvm": 2}
        nobody_waited = {1: _Used("jvm", 0, 6, 0)}
        assert cpu_between(before, nobody_waited) == {"jvm": 1}


def test_the_ways_by_a_fast_store_are_what_they_are_called(
    s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = source(COPIED, 0)
    kept: dict[str, int] = {}
    with running() as quick:
        quick.client().create_bucket(Bucket="fast")
        s3_env.client().create_bucket(Bucket="lake")
        root = f"s3://fast/lake?endpoint={quick.endpoint}"
        places = {"durable": None, "fast": root, "lost": root}
        lines = {
            name: Pipeline(s3_env.client(), name, rows, place) for name, place in places.items()
        }
        for it in lines.values():
            it.begin()
        checkpoint = Pipeline.checkpoint

        def counted(self: Pipeline) -> None:
            for name in STAGES:
                kept[name] = len(self.table(name).not_durable())
            checkpoint(self)

        monkeypatch.setattr(fast_tier.Pipeline, "checkpoint", counted)
        found = fast_tier.measured(lines["durable"], lines["fast"], lines["lost"], 1)
        assert kept == dict.fromkeys(STAGES, COPIED)
        assert len(found) == 4
        assert lines["fast"].table(STAGES[-1]).not_durable() == []
        for name in STAGES:
            assert lines["lost"].table(name).not_durable() == []
            for line in lines.values():
                assert line.table(name).scan().to_arrow().sort_by("x") == rows.sort_by("x")
