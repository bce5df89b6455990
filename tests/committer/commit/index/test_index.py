"""The table's index: few requests for many heads, and no answer that depends on it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.faults import Crash, at, beside, on
from support.memory_store import MemoryStore
from support.protocol import DAY1, ROOT, SCHEMA, World, die_before_applying
from zero_rename.committer import DamagedError, StoreRefusedError
from zero_rename.committer.commit.index.indexed_partition import decode_part, encode_part
from zero_rename.committer.commit.index.read_index import TableIndex
from zero_rename.committer.commit.snapshot import survey
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.format.job_spec import Mode, OnConflict
from zero_rename.committer.format.parquet.foreign_table import list_directory
from zero_rename.committer.store.requests import Get, Put, Refused

#: Partitions, and as many heads as a job leaves to readers.
DAYS = [f"day={number}" for number in range(100, 116)]
#: Requests of a reader of any table: its record and two listings; and its index: record and parts.
READ, INDEX = 3, 2


def parts(world: World) -> list[str]:
    return world.store.keys(ROOT.index_parts_prefix)


def requests_of_a_reader(world: World) -> int:
    world.driver.requests.clear()
    world.snapshot()
    return len(world.driver.requests)


def assert_true(world: World) -> None:
    """A reader through the index sees what one without sees."""
    plain = world.driver.run(survey(world.context)).snapshot
    found = world.snapshot()
    assert found.files == plain.files
    assert found.versions == plain.versions


@pytest.fixture
def world() -> World:
    world = World()
    world.load(*DAYS)
    assert world.write_index()
    return world


class TestReading:
    def test_takes_a_handful_of_requests(self, world: World) -> None:
        assert requests_of_a_reader(world) == READ + INDEX
        assert_true(world)

    def test_a_head_that_has_moved_is_read(self, world: World) -> None:
        world.load(DAYS[3], mode=Mode.REPLACE)
        world.load(DAY1)
        # Two heads, and a decision each.
        assert requests_of_a_reader(world) == READ + INDEX + 4
        assert_true(world)

    def test_a_claim_is_settled_as_without_it(self, world: World) -> None:
        opened = world.open(Mode.REPLACE)
        die_before_applying(world, opened, world.write(opened, DAYS[0], DAYS[1]))
        world.advance(1)
        world.write_index()
        found = world.snapshot()
        assert {it.job for it in found.files if it.partition in DAYS[:2]} == {opened.job}
        assert_true(world)

    def test_columns_that_came_meanwhile_are_read_with_the_files_that_have_them(
        self, world: World
    ) -> None:
        """The table's record is read before the index, which another process writes in between."""
        other = World(world.store)
        wider = SCHEMA.append(pa.field("note", pa.string()))

        def evolves() -> None:
            other.load(DAYS[0], schema=wider, schema_mode="merge")
            assert other.write_index()

        world.driver.fault = beside(Get, evolves, ROOT.table_key, applied=True, times=1)
        found = world.snapshot()
        assert found.schema.names == wider.names
        assert found.versions[DAYS[0]] == 2

    def test_of_few_partitions_goes_without(self, world: World) -> None:
        world.driver.requests.clear()
        world.snapshot([DAYS[0]])
        assert all(r.key != ROOT.index_key for r in world.driver.requests if isinstance(r, Get))

    def test_of_some_partitions_reads_their_parts_only(self) -> None:
        world = World().with_context(limits=Limits(files_per_object=4, heads_besides_index=3))
        world.load(*DAYS)
        world.write_index()
        world.driver.requests.clear()
        assert len(world.snapshot(DAYS[:3]).files) == 3
        read = [
            r.key for r in world.driver.requests if isinstance(r, Get) and r.key in parts(world)
        ]
        assert len(parts(world)) == 4
        assert len(read) == 1

    @pytest.mark.parametrize(
        "harm",
        [
            lambda body: None,
            lambda body: body[: len(body) // 2],
            lambda body: b"",
            lambda body: b"{}",
            lambda body: b'{"format": 1, "kind": "index", "write_id": "w", "parts": 3}',
        ],
    )
    @pytest.mark.parametrize("which", ["record", "part"])
    def test_what_is_lost_or_damaged_is_done_without(
        self, world: World, which: str, harm: Callable[[bytes], bytes | None]
    ) -> None:
        key = ROOT.index_key if which == "record" else parts(world)[0]
        body = harm(world.store.objects.pop(key).body)
        if body is not None:
            world.store.apply(Put(key, body))
        assert len(world.snapshot().files) == len(DAYS)
        assert_true(world)
        assert world.write_index()
        assert requests_of_a_reader(world) == READ + INDEX

    def test_a_part_that_names_files_elsewhere_is_done_without(self, world: World) -> None:
        key = parts(world)[0]
        rows = pq.read_table(pa.BufferReader(world.store.objects[key].body))
        names = [name.replace("day=100", "day=1") for name in rows["key"].to_pylist()]
        sink = pa.BufferOutputStream()
        place = rows.schema.get_field_index("key")
        pq.write_table(rows.set_column(place, rows.schema.field(place), [names]), sink)
        world.store.apply(Put(key, sink.getvalue().to_pybytes()))
        assert_true(world)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["load", "index", "replace", "open"]),
            st.lists(st.sampled_from(DAYS[:4]), min_size=1, max_size=3, unique=True),
        ),
        max_size=12,
    )
)
def test_no_answer_depends_on_it(history: list[tuple[str, list[str]]]) -> None:
    limits = Limits(heads_besides_index=0, files_per_object=3, decisions_per_head=2)
    world = World().with_context(limits=limits)
    world.load(DAY1)
    for what, days in history:
        match what:
            case "load":
                world.load(*days)
            case "replace":
                world.load(*days, mode=Mode.REPLACE, on_conflict=OnConflict.LAST_WINS)
            case "index":
                world.write_index()
            case "open":
                opened = world.open()
                die_before_applying(world, opened, world.write(opened, *days))
        if what != "open":
            assert_true(world)


class TestWriting:
    def test_the_job_that_makes_many_heads_does_it(self) -> None:
        world = World()
        world.load(*DAYS)
        assert len(parts(world)) == 1
        assert requests_of_a_reader(world) == READ + INDEX
        assert_true(world)

    def test_of_two_that_make_many_heads_the_later_one_does_it_for_both(self) -> None:
        world = World()
        other, days = World(world.store), [f"day={number}" for number in range(200, 216)]
        world.driver.fault = beside(Put, lambda: other.load(*days), ROOT.index_key, times=1)
        world.load(*DAYS)
        index = TableIndex.decode(world.store.objects[ROOT.index_key].body, ROOT)
        assert parts(world) == [part.key for part in index.parts]
        assert requests_of_a_reader(world) == READ + INDEX
        assert_true(world)

    def test_a_job_does_it_where_many_heads_have_changed(self) -> None:
        world = World()
        world.load(*DAYS[:-2])
        world.load(*DAYS[-2:])
        assert parts(world) == []
        world.advance(1)
        world.load(DAY1)
        assert len(parts(world)) == 1
        assert requests_of_a_reader(world) == READ + INDEX

    def test_and_not_where_few_have(self, world: World) -> None:
        world.advance(1)
        index = world.store.objects[ROOT.index_key]
        for day in DAYS[: Limits().heads_besides_index - 1]:
            world.load(day)
        assert world.store.objects[ROOT.index_key] == index

    def test_objects_whose_partitions_have_not_changed_stay(self) -> None:
        world = World().with_context(limits=Limits(files_per_object=4))
        world.load(*DAYS)
        world.write_index()
        before = set(parts(world))
        world.load(DAYS[-1], mode=Mode.REPLACE)
        world.write_index()
        after = set(parts(world))
        assert len(before) == len(after) == 4
        assert len(before & after) == 3
        assert_true(world)

    def test_of_two_at_once_one_gives_way_and_leaves_nothing(self, world: World) -> None:
        world.load(DAYS[0])
        other = World(world.store)
        world.driver.fault = beside(Put, other.write_index, ROOT.index_key, times=1)
        assert not world.write_index()
        index = TableIndex.decode(world.store.objects[ROOT.index_key].body, ROOT)
        assert parts(world) == [part.key for part in index.parts]
        assert_true(world)

    def test_a_job_that_may_not_write_it_is_committed_all_the_same(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = World()
        world.driver.fault = on(Put, StoreRefusedError("AccessDenied"), ROOT.index_parts_prefix)
        world.load(*DAYS)
        assert len(world.jobs_of(DAYS[0])) == 1
        world.assert_clean()
        assert "index was not written; the job is committed" in caplog.text

    def test_one_that_dies_while_it_writes_harms_nobody(self, world: World) -> None:
        world.load(DAYS[0])
        for last in range(1, 30):
            world.driver.fault = at(last, Crash)
            try:
                world.write_index()
                break
            except Crash:
                world.driver.fault = None
                assert_true(world)
        else:
            pytest.fail("it never ended")

    def test_a_refusal_leaves_the_former_index(self, world: World) -> None:
        world.load(DAYS[0])
        world.driver.fault = lambda request, apply: (
            Refused("AccessDenied") if isinstance(request, Put) else apply(request)
        )
        assert not world.write_index()
        world.driver.fault = None
        assert_true(world)


def test_a_file_takes_less_than_a_tenth_of_a_kilobyte() -> None:
    world = World(MemoryStore())
    for _ in range(20):
        world.load(*DAYS)
    files = world.snapshot().files
    assert world.write_index()
    size = sum(len(world.store.objects[key].body) for key in parts(world))
    assert size < 100 * len(files)


@pytest.mark.parametrize("lacks", [["content"], ["summary", "content"]])
def test_an_index_as_former_versions_wrote_it_is_read(world: World, lacks: list[str]) -> None:
    index = TableIndex.decode(world.store.objects[ROOT.index_key].body, ROOT)
    (part,) = index.parts
    stored = pq.read_table(pa.BufferReader(world.store.objects[part.key].body))
    former = pa.BufferOutputStream()
    pq.write_table(stored.drop_columns(lacks), former)
    body = former.getvalue().to_pybytes()
    whole = decode_part(world.store.objects[part.key].body, part.key, ROOT, part.rows)
    assert decode_part(body, part.key, ROOT, part.rows) == whole


def test_a_part_reads_back_what_was_written(world: World) -> None:
    index = TableIndex.decode(world.store.objects[ROOT.index_key].body, ROOT)
    part = index.parts[0]
    body = world.store.objects[part.key].body
    assert encode_part(ROOT, decode_part(body, part.key, ROOT, part.rows)) == body


def test_a_purge_removes_what_a_dead_writer_left_and_not_the_index(world: World) -> None:
    left = ROOT.index_part_key("left")
    world.store.apply(Put(left, b"half"))
    named = set(parts(world)) - {left}
    world.advance(8 * 24 * 3600)
    report = world.purge()
    assert [entry.key for entry in report.entries] == [left]
    assert set(parts(world)) == named
    assert_true(world)


def test_a_table_that_has_an_index_and_no_record_is_still_known_as_ours(world: World) -> None:
    """A table whose ``table.json`` is lost is no directory of another committer's."""
    del world.store.objects[ROOT.table_key]
    with pytest.raises(DamagedError, match=r"table\.json is gone"):
        world.driver.run(list_directory(ROOT))
