"""The plan as a function of the graph: chains and diamonds of the Tachyon paper, and any DAG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zero_rename.committer.format.job_spec import Mode, Owner
from zero_rename.lineage import JobNode, JobRun, LineageGraph, Plan, plan
from zero_rename.lineage.tables import Place

DAY = "day=1"


def url(name: str) -> str:
    return f"s3://lake/{name}"


def key(name: str) -> Place:
    """The job of a table of one partition."""
    return url(name), f"job-{name}"


def graph(
    reads: Mapping[str, Iterable[str]],
    target: Iterable[str],
    stale: Iterable[str] = (),
    lost: Iterable[str] = (),
) -> LineageGraph:
    """Tables of one partition each, by what they are computed from."""
    nodes = {
        key(name): JobNode(
            *key(name),
            frozenset({DAY}),
            frozenset((url(it), DAY) for it in sources),
            stale=("an input has moved",) if name in set(stale) else (),
            lost={DAY: (f"{name}/{DAY}/f",)} if name in set(lost) else {},
            run=JobRun(seconds=1.0),
        )
        for name, sources in reads.items()
    }
    return LineageGraph(frozenset((url(it), DAY) for it in target), nodes)


def names(found: Plan) -> list[set[str]]:
    return [{step.table.rpartition("/")[2] for step in layer} for layer in found.layers]


#: A1 to A9, each computed from the one before.
CHAIN = {f"A{n}": [f"A{n - 1}"] if n > 1 else [] for n in range(1, 10)}


def chain(*numbers: int) -> list[set[str]]:
    return [{f"A{n}"} for n in numbers]


def test_job_found_twice_is_refused_for_what_only_its_second_part_shows() -> None:
    """In a later step of the search, through files that a compaction has written."""
    first = JobNode(url("a"), "job", frozenset({"day=1"}))
    second = JobNode(
        url("a"),
        "job",
        frozenset({"day=2"}),
        unknown="not told",
        gone=("b",),
        self_made=("day=2",),
        mixed=("x", "y"),
    )
    for found in (first.beside(second), second.beside(first)):
        assert (found.unknown, found.gone, found.self_made) == ("not told", ("b",), ("day=2",))
        assert found.mixed == ("x", "y")


class TestChain:
    """What is there and fresh is not made again, in whichever order it was checkpointed."""

    @pytest.mark.parametrize(
        ("there", "again"),
        [
            # In the order of creation six are durable, then A4 to A9 are not.
            ({1, 2, 3}, (4, 5, 6, 7, 8, 9)),
            # The latest first: A6 to A9 are not, when those before were.
            ({1, 2, 3, 4, 5}, (6, 7, 8, 9)),
            # Of a chain whose end is there nothing is made again, whatever was lost before.
            ({9}, ()),
            # A7 is there, so what it was made from is not asked for.
            ({7}, (8, 9)),
        ],
    )
    def test_only_what_leads_from_what_is_there(
        self, there: set[int], again: tuple[int, ...]
    ) -> None:
        lost = [f"A{n}" for n in range(1, 10) if n not in there]
        found = plan(graph(CHAIN, ["A9"], lost=lost))
        assert names(found) == chain(*again)
        assert found.seconds == len(again)
        assert [table for table, _ in found.critical] == [url(f"A{n}") for n in again]

    @pytest.mark.parametrize("lost", range(1, 10))
    def test_one_that_is_lost_is_made_alone(self, lost: int) -> None:
        name = f"A{lost}"
        assert names(plan(graph(CHAIN, [name], lost=[name]))) == [{name}]
        assert names(plan(graph(CHAIN, ["A9"], lost=[name]))) == ([{name}] if lost == 9 else [])

    @pytest.mark.parametrize("stale", range(1, 10))
    def test_one_that_is_stale_goes_before_all_that_follow(self, stale: int) -> None:
        found = plan(graph(CHAIN, ["A9"], stale=[f"A{stale}"]))
        assert names(found) == chain(*range(stale, 10))


class TestDiamond:
    """D from B and C, which are both from A."""

    READS: ClassVar = {"A": (), "B": "A", "C": "A", "D": "BC"}

    def test_two_lost_parents_are_one_layer(self) -> None:
        found = plan(graph(self.READS, "D", lost="BCD"))
        assert (names(found), found.seconds) == ([{"B", "C"}, {"D"}], 2.0)

    def test_what_both_need_is_made_once(self) -> None:
        assert names(plan(graph(self.READS, "D", lost="ABCD"))) == [{"A"}, {"B", "C"}, {"D"}]

    def test_a_side_that_is_there_is_left(self) -> None:
        assert names(plan(graph(self.READS, "D", lost="BD"))) == [{"B"}, {"D"}]


class TestRefusals:
    READS: ClassVar = {"raw": (), "a": ["raw"], "b": ["a"]}

    def refused(self, found: LineageGraph, name: str) -> str:
        told = plan(found)
        (one,) = [it for it in told.refused if it.table == url(name)]
        assert all(step.table != url(name) for layer in told.layers for step in layer)
        return one.why

    def with_a(self, **more: Any) -> LineageGraph:
        made = graph(self.READS, "b", stale=["a"])
        return replace(made, nodes={**made.nodes, key("a"): replace(made.nodes[key("a")], **more)})

    def test_what_needs_a_refused_job_waits(self) -> None:
        found = plan(self.with_a(self_made=(DAY,)))
        assert (names(found), [it.table for it in found.waiting]) == ([], [url("b")])

    def test_a_job_that_read_what_it_wrote(self) -> None:
        assert "wrote itself" in self.refused(self.with_a(self_made=(DAY,)), "a")

    def test_a_job_whose_other_partitions_others_have_replaced(self) -> None:
        made = self.with_a(replaced={"day=2": "job-mended"})
        assert "day=2, which job-mended holds since" in self.refused(made, "a")

    def test_rows_of_several_jobs_in_one_file(self) -> None:
        assert "written again as one" in self.refused(self.with_a(mixed=("x", "y")), "a")

    def test_a_table_that_is_gone(self) -> None:
        made = self.with_a(gone=(url("old"),), unknown="s3://lake/old is gone")
        assert "s3://lake/old" in self.refused(made, "a")

    def test_a_lost_one_without_lineage(self) -> None:
        made = graph({"raw": ()}, ["raw"], lost=["raw"])
        node = replace(made.nodes[key("raw")], unknown="it was not told")
        assert self.refused(replace(made, nodes={node.key: node}), "raw") == "it was not told"

    def test_a_circle(self) -> None:
        found = plan(graph({"a": ["b"], "b": ["a"], "c": ["b"]}, "c", stale="a"))
        assert {it.table for it in found.refused} == {url("a"), url("b")}
        assert [it.table for it in found.waiting] == [url("c")]


def test_what_a_job_writes_besides_is_said() -> None:
    made = graph({"raw": (), "a": ["raw"]}, ["a"], stale=["a"])
    month = replace(made.nodes[key("a")], partitions=frozenset({DAY, "day=2"}))
    ((step,),) = plan(replace(made, nodes={**made.nodes, month.key: month})).layers
    assert (step.partitions, step.besides) == ((DAY,), ("day=2",))


@pytest.mark.parametrize("others", ["added", "replaced"])
def test_run_that_can_be_asked_for_any_partition_leaves_what_others_hold(others: str) -> None:
    made = graph({"raw": (), "a": ["raw"]}, ["a"], stale=["a"])
    run = replace(made.nodes[key("a")].run, mode=Mode.REPLACE)
    held: dict[str, Any] = {others: {"day=2": "job-other"}}
    month = replace(made.nodes[key("a")], partitions=frozenset({DAY, "day=2"}), run=run, **held)
    made = replace(made, nodes={**made.nodes, month.key: month})
    ((step,),) = plan(made, alone=True).layers
    assert (step.partitions, step.besides) == ((DAY,), ())
    assert "day=2" in plan(made).refused[0].why


@st.composite
def dags(draw: st.DrawFn) -> LineageGraph:
    count = draw(st.integers(1, 9))
    reads = {
        f"t{n}": draw(st.sets(st.sampled_from([f"t{it}" for it in range(n)]))) if n else set()
        for n in range(count)
    }
    some = st.sets(st.sampled_from(sorted(reads)))
    return graph(reads, draw(some), draw(some), draw(some))


@given(dags())
def test_any_dag(found: LineageGraph) -> None:
    told = plan(found)
    layers = [{(step.table, step.job) for step in layer} for layer in told.layers]
    again = set[Place]().union(*layers)
    assert not told.refused
    done: set[Place] = set()
    for layer in layers:
        assert layer
        for one in layer:
            # Each comes after all of its inputs that are made again, and is wrong or lost.
            assert found.parents[one] & again <= done
            assert one in found.wrong or found.nodes[one].lost
            # What it reads is there and right by then.
            for parent in found.parents[one] - again:
                assert parent not in found.wrong
                assert not found.nodes[parent].lost
        done |= layer
    # The targets are as their inputs are: none is left out, and none is made without need.
    for place in found.targets:
        for one in found.makers[place]:
            assert (one in again) is (one in found.wrong or bool(found.nodes[one].lost))
    asked = {maker for place in found.targets for maker in found.makers[place]}
    needed = asked.union(*(found.parents[one] for one in again))
    assert again <= needed
    # And then nothing is left to do.
    after = {one: replace(it, stale=(), lost={}) for one, it in found.nodes.items() if one in again}
    assert not plan(replace(found, nodes={**found.nodes, **after})).layers


class TestMany:
    """No part of a plan is quadratic: 8,000 jobs took two minutes where one was."""

    pytestmark = pytest.mark.timeout(60)
    COUNT = 30_000

    def jobs(self, reads: Mapping[int, Iterable[int]], stale: Iterable[int]) -> LineageGraph:
        """Partitions of one table, each by a job of its own; all are asked for."""
        table, moved = url("many"), set(stale)
        nodes = {
            (table, f"job-{n}"): JobNode(
                table,
                f"job-{n}",
                frozenset({f"n={n}"}),
                frozenset((table, f"n={it}") for it in sources),
                stale=("an input has moved",) if n in moved else (),
                run=JobRun(seconds=1.0),
            )
            for n, sources in reads.items()
        }
        return LineageGraph(frozenset((table, f"n={n}") for n in reads), nodes)

    def test_side_by_side(self) -> None:
        reads = {0: range(1, self.COUNT), **{n: () for n in range(1, self.COUNT)}}
        found = self.jobs(reads, range(1, self.COUNT))
        assert [len(layer) for layer in plan(found).layers] == [self.COUNT - 1, 1]
        assert len(found.partitions()) == self.COUNT

    def test_one_after_another(self) -> None:
        found = plan(self.jobs({n: [n - 1] if n else [] for n in range(self.COUNT)}, [0]))
        assert (len(found.layers), found.seconds) == (self.COUNT, self.COUNT)

    def test_behind_a_refused_one(self) -> None:
        made = self.jobs({n: [n - 1] if n else [] for n in range(self.COUNT)}, [0])
        first = replace(made.nodes[url("many"), "job-0"], mixed=("x", "y"))
        found = plan(replace(made, nodes={**made.nodes, first.key: first}))
        assert (len(found.refused), len(found.waiting)) == (1, self.COUNT - 1)

    def test_circles(self) -> None:
        """Of two each; what is between two circles is on none."""
        pairs = {n: [n + 1 - 2 * (n % 2)] for n in range(self.COUNT)}
        between = {**pairs, 0: [1, self.COUNT], self.COUNT: [2]}
        found = plan(self.jobs(between, range(self.COUNT)))
        assert len(found.refused) == self.COUNT
        assert [it.job for it in found.waiting] == [f"job-{self.COUNT}"]


@pytest.mark.parametrize(
    ("owner", "goes"),
    [(Owner(task_id="load", series="2026-01-01 2"), True), (Owner(series="stream-plan-0"), False)],
)
def test_batch_of_a_stream_outside_airflow_goes_by_no_plan(owner: Owner, goes: bool) -> None:
    """Its series says by which plan of Spark's it ran, not when a task was cleared."""
    assert JobRun(owner, "run", mode=Mode.REPLACE).goes_by_plans is goes
