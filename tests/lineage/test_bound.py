"""The bound: what would take longer to be made again than somebody is ready to wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest
from conftest import Bucket

from support.command_line import as_json, invoke
from zero_rename.lineage import LineageGraph, at_risk, risks_of

from .test_delta_tables import DeltaLake
from .test_plan import CHAIN, DAY, graph, key, url

pytestmark = pytest.mark.memory_s3


def fast(made: LineageGraph, names: Collection[str]) -> LineageGraph:
    """The same, with the files of some tables in a fast root alone."""
    nodes = {
        it: replace(node, fast=node.partitions) if it in {key(name) for name in names} else node
        for it, node in made.nodes.items()
    }
    return replace(made, nodes=nodes)


def risks(made: LineageGraph, most: float, durable: Iterable[str] | None = None) -> dict:
    named = None if durable is None else [url(name) for name in durable]
    found = at_risk(made, most, named)
    return {it.table.rpartition("/")[2]: it.seconds for it in found}


@pytest.mark.parametrize(
    ("lacking", "most", "expected"),
    [
        # A4 to A9 are not durable; each took a second.
        (range(4, 10), 5, {"A9": 6.0}),
        (range(4, 10), 3, {"A7": 4.0, "A8": 5.0, "A9": 6.0}),
        (range(4, 10), 6, {}),
        # One that is durable in between is where the way begins.
        ((4, 5, 7, 8, 9), 1, {"A5": 2.0, "A8": 2.0, "A9": 3.0}),
        ((), 0, {}),
    ],
)
def test_the_way_back_to_what_is_durable(
    lacking: Iterable[int], most: float, expected: dict[str, float]
) -> None:
    made = fast(graph(CHAIN, CHAIN), [f"A{n}" for n in lacking])
    assert risks(made, most) == expected


def test_ways_side_by_side_count_once() -> None:
    made = fast(graph({"A": (), "B": "A", "C": "A", "D": "BC"}, "D"), "BCD")
    assert risks(made, 1) == {"D": 2.0}


def test_as_if_some_tables_alone_were_durable() -> None:
    assert risks(graph(CHAIN, CHAIN), 2, durable=["A3", "A6"]) == {"A9": 3.0}
    assert risks(graph(CHAIN, ["A9"]), 2, durable=["A3"]) == {"A9": 6.0}
    assert risks(graph(CHAIN, ["A9"]), 2, durable=["A9"]) == {}


def test_durable_tables_count_in_any_spelling() -> None:
    made = graph(CHAIN, ["A9"])
    for said in (f"{url('A3')}/", url("A3").replace("s3://", "s3a://")):
        assert [it.seconds for it in at_risk(made, 2, iter([said]))] == [6.0]
        assert at_risk(made, 2, said) == at_risk(made, 2, [said])


def test_durable_tables_without_a_bound_are_refused() -> None:
    refused = invoke("lineage", "stale", url("A9"), "--durable", url("A3"))
    assert (refused.exit_code, "--at-risk" in refused.stderr) == (2, True)


def test_code_version_with_a_bound_is_refused() -> None:
    words = ("lineage", "stale", url("A9"), "--at-risk", "1h", "--code-version", "2")
    refused = invoke(*words)
    assert (refused.exit_code, "--code-version" in refused.stderr) == (2, True)


def test_what_cannot_be_made_again_is_at_risk_whatever_the_bound() -> None:
    made = fast(graph({"raw": (), "a": ["raw"]}, ["a"]), ["raw", "a"])
    raw = replace(made.nodes[key("raw")], unknown="it was not told")
    found = at_risk(replace(made, nodes={**made.nodes, raw.key: raw}), 1e9)
    assert [(it.partition, it.seconds) for it in found] == [(DAY, None)]


class TestTables:
    """Weeks whose files lie in a data root, made of days that are durable."""

    @pytest.fixture
    def lake(self, s3_bucket: Bucket) -> DeltaLake:
        made = DeltaLake(s3_bucket, ("weekly",))
        made.load(1, 8)
        for week in (0, 1):
            made.week(week, data_root=f"s3://{s3_bucket.name}/scratch")
        return made

    def test_what_is_not_durable_yet(self, lake: DeltaLake) -> None:
        (told,) = risks_of(lake.weekly, -1.0)
        assert told.startswith("at risk: 2 partitions not durable yet would take up to")
        assert "week=0, week=1" in told
        assert risks_of(lake.weekly, 3600.0) == []
        lake.weekly.checkpoint(apply=True)
        assert risks_of(lake.weekly, -1.0) == []

    def test_what_cannot_be_made_again(self, lake: DeltaLake) -> None:
        lake.write(lake.weekly, "week", {"x": [1], "week": [1]}, inputs=())
        (told,) = risks_of(lake.weekly, 3600.0)
        assert "1 partition not durable yet cannot be made again: week=1, " in told

    def test_command(self, lake: DeltaLake) -> None:
        weekly = lake.weekly.root.url
        words = ["lineage", "stale", weekly, "--at-risk", "1h"]
        assert invoke(*words).exit_code == 0
        # Nothing says what the days were made from, and these are to be durable then.
        assert as_json(*words, "--durable", weekly) == []
        found = as_json(*words, "--durable", url("other"), code=1)
        assert [it["seconds"] for it in found] == [None, None]
