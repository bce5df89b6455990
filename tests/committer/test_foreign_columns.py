"""Files that other programs wrote into a table's folder: none is read, adopted or written again
without all of its columns."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from support.no_columns import no_columns
from zero_rename import Table
from zero_rename.committer import DamagedError, FindingKind, TableMismatchError

pytestmark = pytest.mark.memory_s3

ROOT = "wh/flights"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def days(*ids: int, day: int) -> pa.Table:
    """Rows of a day."""
    return pa.table({"id": ids, "day": [day] * len(ids)}, schema=SCHEMA)


class Place:
    """A folder that other programs write into."""

    def __init__(self, bucket: Any) -> None:
        self.bucket = bucket
        self.url = f"s3://{bucket.name}/{ROOT}"

    @property
    def table(self) -> Table:
        """As another process sees it: nothing is remembered."""
        return Table(self.url, client=self.bucket.client)

    @property
    def table_of_before(self) -> Table:
        """As by a version that reads no footers."""
        table = self.table
        table._context = replace(table._context, read_columns=no_columns)
        return table

    def put(self, path: str, body: bytes = b"{}") -> str:
        key = f"{ROOT}/{path}"
        self.bucket.client.put_object(Bucket=self.bucket.name, Key=key, Body=body)
        return key

    def parquet(self, path: str, columns: dict[str, Any], **options: Any) -> str:
        target = io.BytesIO()
        pq.write_table(pa.table(columns), target, **options)
        return self.put(path, target.getvalue())

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table.to_arrow().to_pylist(), key=lambda row: row["id"])

    def data(self) -> list[str]:
        listed = self.bucket.client.list_objects_v2(Bucket=self.bucket.name, Prefix=f"{ROOT}/")
        return [it["Key"] for it in listed["Contents"] if "/_" not in it["Key"]]

    def adopted_before(self) -> None:
        """Adopt the files of day 1 by a job, as of a version that reads no footers."""
        with self.table_of_before.job(SCHEMA, partition_by=["day"]) as job:
            job.write(days(100, day=1))


def _load(table: Table, rows: pa.Table, **policy: Any) -> None:
    with table.job(rows.schema, **policy) as job:
        job.write(rows)


@pytest.fixture
def place(s3_bucket: Any) -> Place:
    return Place(s3_bucket)


@pytest.fixture
def noted(place: Place) -> Place:
    """Nine files of a partition, neither the oldest nor the newest with a column of its own."""
    for number in range(9):
        columns = {"id": [number]} | ({"note": ["keep me"]} if number == 4 else {})
        place.parquet(f"day=1/f{number}.parquet", columns)
    return place


NOTES = [{"id": n, "day": 1, "note": "keep me" if n == 4 else None} for n in range(9)]
#: What writes the rows of a partition again, and leaves those of the test as they are.
REWRITES: dict[str, Callable[[Table], object]] = {
    "compact": lambda table: table.compact(apply=True),
    "merge": lambda table: table.merge(days(99, day=1), on=["id"], schema_mode="merge"),
    "delete": lambda table: table.delete([("id", "=", 0)]),
    "delete_of_all": lambda table: table.delete([("id", ">=", 0)]),
}


CHANGES = {verb: change for verb, change in REWRITES.items() if verb != "compact"}


class TestColumnOfOneFile:
    def test_reading_without_adopting_shows_it(self, noted: Place) -> None:
        assert noted.rows() == NOTES

    @pytest.mark.parametrize("verb", ["compact", "merge", "delete"])
    def test_rows_written_again_after_adoption_keep_it(self, noted: Place, verb: str) -> None:
        noted.table.adopt(apply=True)
        assert noted.table.verify() == []
        REWRITES[verb](noted.table)
        assert [row for row in noted.rows() if row["id"] == 4] == [NOTES[4]]
        assert noted.table.verify() == []

    def test_first_job_that_lacks_it_is_refused_by_file_and_column(self, noted: Place) -> None:
        with (
            pytest.raises(TableMismatchError, match=r"f4\.parquet: note is not in the table"),
            noted.table.job(SCHEMA, partition_by=["day"]),
        ):
            pass
        assert not noted.table.exists()

    def test_first_job_with_schema_mode_merge_takes_it_over(self, noted: Place) -> None:
        with noted.table.job(SCHEMA, partition_by=["day"], schema_mode="merge") as job:
            job.write(days(99, day=2))
        assert noted.rows() == [*NOTES, {"id": 99, "day": 2, "note": None}]

    @pytest.mark.parametrize("verb", CHANGES)
    def test_rows_are_not_written_again_where_an_older_version_hides_it(
        self, noted: Place, verb: str
    ) -> None:
        noted.adopted_before()
        before = noted.data()
        with pytest.raises(TableMismatchError, match="note is not in the table") as caught:
            REWRITES[verb](noted.table)
        assert caught.value.key == f"{ROOT}/day=1/f4.parquet"
        assert noted.data() == before

    def test_compaction_leaves_its_partition_where_an_older_version_hides_it(
        self, noted: Place
    ) -> None:
        noted.adopted_before()
        for number in range(4):
            with noted.table.job() as job:
                job.write(days(200 + number, day=2))
        before = noted.data()
        left, done = noted.table.compact(apply=True)
        assert (left.partition, left.action) == ("day=1", "left")
        assert "note is not in the table" in left.reason
        assert f"{ROOT}/day=1/f4.parquet" in left.reason
        assert (done.partition, done.action) == ("day=2", "compacted")
        assert [it for it in noted.data() if "day=1" in it] == [
            it for it in before if "day=1" in it
        ]
        assert len(noted.table.files("day=2")) == 1

    def test_copy_is_refused_where_an_older_version_hides_it(
        self, noted: Place, s3_bucket: Any
    ) -> None:
        noted.adopted_before()
        new = Table(f"s3://{s3_bucket.name}/wh/copy", client=s3_bucket.client)
        with pytest.raises(TableMismatchError, match="note is not in the table"):
            noted.table.copy(new)
        assert not new.exists()

    def test_verify_names_it_and_adopt_shows_it_where_an_older_version_hides_it(
        self, noted: Place
    ) -> None:
        noted.adopted_before()
        (finding,) = noted.table.verify()
        assert (finding.kind, finding.key) == (FindingKind.COLUMNS, f"{ROOT}/day=1/f4.parquet")
        assert finding.detail.startswith("note is not in the table")
        assert noted.table.adopt().columns == ("note string",)
        assert noted.table.verify() == [finding]
        assert noted.table.adopt(apply=True).columns == ("note string",)
        assert noted.table.verify() == []
        assert noted.table.compact(apply=True)
        assert noted.rows() == [*NOTES, {"id": 100, "day": 1, "note": None}]
        assert noted.table.adopt(apply=True).columns == ()


class TestExistingTable:
    @pytest.fixture
    def table(self, place: Place) -> Table:
        schema = pa.schema([("id", pa.int32()), ("day", pa.int32())])
        with place.table.job(schema, partition_by=["day"]) as job:
            job.write(pa.table({"id": [1], "day": [1]}, schema=schema))
        return place.table

    def test_adopted_files_bring_columns_and_wider_types(self, place: Place, table: Table) -> None:
        place.parquet("day=2/a.parquet", {"id": [2**40], "note": ["x"]})
        report = table.adopt()
        assert report.columns == ("id int64", "note string")
        assert table.schema.names == ["id", "day"]
        report = table.adopt(apply=True)
        assert [(it.partition, it.action) for it in report.entries] == [("day=2", "adopted")]
        assert place.rows() == [
            {"id": 1, "day": 1, "note": None},
            {"id": 2**40, "day": 2, "note": "x"},
        ]
        with place.table.job() as job:
            job.write(days(3, day=3).append_column("note", pa.array(["y"])))
        assert place.table.verify() == []

    def test_wider_integers_whose_values_fit_leave_the_type(
        self, place: Place, table: Table
    ) -> None:
        place.parquet("day=2/a.parquet", {"id": pa.array([7, None], pa.int64())})
        assert table.adopt(apply=True).columns == ()
        assert place.table.schema.field("id").type == pa.int32()
        assert place.table.to_arrow(partitions=["day=2"]).column("id").to_pylist() == [7, None]

    def test_file_of_another_type_leaves_its_partition(self, place: Place, table: Table) -> None:
        place.parquet("day=2/a.parquet", {"id": [2]})
        key = place.parquet("day=2/b.parquet", {"id": ["two"]})
        place.parquet("day=3/a.parquet", {"id": [3]})
        report = table.adopt(apply=True)
        assert [(it.partition, it.action) for it in report.entries] == [
            ("day=2", "left"),
            ("day=3", "adopted"),
        ]
        reason = f"{key} does not fit: id is string there, in the table int32"
        assert report.entries[0].reason == reason
        assert [row["id"] for row in place.rows()] == [1, 3]

    def test_file_that_is_not_parquet_leaves_its_partition(
        self, place: Place, table: Table
    ) -> None:
        key = place.put("day=2/part-0", b"id\n1\n")
        (entry,) = table.adopt(apply=True).entries
        assert entry.action == "left"
        assert "cannot be read as Parquet" in entry.reason
        assert key in entry.reason

    def test_file_that_comes_while_footers_are_read_is_looked_at(
        self, place: Place, table: Table
    ) -> None:
        place.parquet("day=2/a.parquet", {"id": [2]})
        came: list[str] = []

        def come(done: int, total: int) -> None:
            if not came:
                came.append(place.parquet("day=2/b.parquet", {"id": [3], "note": ["x"]}))

        report = table.adopt(apply=True, progress=come)
        assert report.columns == ("note string",)
        assert [row["note"] for row in place.rows()] == [None, None, "x"]


class TestUnadoptedTable:
    def test_append_to_a_partition_with_a_file_of_other_columns_is_refused(
        self, place: Place
    ) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        with place.table.job(SCHEMA, partition_by=["day"]) as job:
            job.write(days(2, day=2))
        place.parquet("day=1/b.parquet", {"id": [3], "note": ["x"]})
        with (
            pytest.raises(TableMismatchError, match=r"b\.parquet: note is not in the table"),
            place.table.job() as job,
        ):
            job.write(days(4, day=1))
        assert [row["id"] for row in place.rows()] == [1, 2, 3]
        place.table.adopt(apply=True)
        with place.table.job() as job:
            job.write(days(4, day=1).append_column("note", pa.array(["y"])))
        assert [row["note"] for row in place.rows()] == [None, None, "x", "y"]


class TestUnnamedFile:
    """Another program wrote it after the partition got a head, so no reader has read it."""

    @pytest.mark.parametrize("verb", REWRITES)
    def test_rows_written_again_leave_it_where_it_is(self, place: Place, verb: str) -> None:
        for number in range(3):
            with place.table.job(SCHEMA, partition_by=["day"]) as job:
                job.write(days(number, day=1))
        key = place.parquet("day=1/late.parquet", {"id": [50]})
        REWRITES[verb](place.table)
        assert key in place.data()
        (finding,) = place.table.verify()
        assert (finding.kind, finding.key) == (FindingKind.UNNAMED, key)

    def test_rows_merged_into_an_emptied_partition_leave_it_where_it_is(self, place: Place) -> None:
        with place.table.job(SCHEMA, partition_by=["day"]) as job:
            job.write(days(1, day=1))
        place.table.delete([("id", "=", 1)])
        key = place.parquet("day=1/late.parquet", {"id": [50]})
        place.table.merge(days(2, day=1), on=["id"])
        assert key in place.data()
        assert [row["id"] for row in place.rows()] == [2]

    @pytest.mark.parametrize("across", [False, True])
    def test_rows_merged_into_a_partition_without_a_head_are_refused_beside_it(
        self, place: Place, across: bool
    ) -> None:
        with place.table.job(SCHEMA, partition_by=["day"]) as job:
            job.write(days(1, day=1))
        key = place.parquet("day=2/late.parquet", {"id": [50]})
        with pytest.raises(TableMismatchError, match=r"day=2/late\.parquet.* adopt"):
            place.table.merge(days(50, day=2), on=["id"], across_partitions=across)
        assert key in place.data()
        place.table.adopt(apply=True)
        place.table.merge(days(50, 51, day=2), on=["id"], across_partitions=across)
        assert [row["id"] for row in place.rows()] == [1, 50, 51]

    def test_replace_of_the_partition_removes_it(self, place: Place) -> None:
        for mode in ("append", "replace"):
            with place.table.job(SCHEMA, partition_by=["day"], mode=mode) as job:
                job.write(days(1, day=1))
            key = place.parquet("day=1/late.parquet", {"id": [50]})
        with place.table.job(mode="replace") as job:
            job.write(days(2, day=1))
        assert key not in place.data()


class TestCase:
    @pytest.fixture
    def mixed(self, place: Place) -> Place:
        place.parquet("day=1/a.parquet", {"id": [1], "k": ["lower"]})
        place.parquet("day=1/b.parquet", {"ID": [2], "K": ["upper"]})
        return place

    def pairs(self, mixed: Place) -> list[tuple[Any, ...]]:
        names = {name.lower(): name for name in mixed.table.schema.names}
        assert names.keys() == {"id", "k", "day"}
        return sorted(
            (row[names["id"]], row[names["k"]]) for row in mixed.table.to_arrow().to_pylist()
        )

    def test_columns_of_another_case_are_read_as_the_tables(self, mixed: Place) -> None:
        assert self.pairs(mixed) == [(1, "lower"), (2, "upper")]

    def test_compaction_keeps_columns_of_another_case(self, mixed: Place) -> None:
        mixed.table.adopt(apply=True)
        mixed.table.compact(apply=True)
        assert all(not key.endswith(("a.parquet", "b.parquet")) for key in mixed.data())
        assert self.pairs(mixed) == [(1, "lower"), (2, "upper")]

    def test_filter_finds_rows_by_a_column_of_another_case(self, mixed: Place) -> None:
        with mixed.table.job(
            pa.schema([("id", pa.int64()), ("k", pa.string()), ("day", pa.int32())]),
            partition_by=["day"],
        ):
            pass
        found = mixed.table.scan(filter=pc.field("k") == "upper", columns=["id"]).to_arrow()
        assert found.column("id").to_pylist() == [2]

    @pytest.fixture
    def nested(self, place: Place) -> Place:
        """Structs whose fields one file has in another case and order, alone, in lists and maps."""
        for number, (net, gross) in enumerate((("net", "gross"), ("Net", "Gross"))):
            fields = [(net, pa.int32()), (gross, pa.int64())]
            kind = pa.struct(fields if number == 0 else fields[::-1])
            value = {net: 20 + number, gross: 24 + number}
            place.parquet(
                f"day=1/{'ab'[number]}.parquet",
                {
                    "id": [number],
                    "s": pa.array([value], kind),
                    "l": pa.array([[value, None]], pa.list_(kind)),
                    "m": pa.array([[("k", value)]], pa.map_(pa.string(), kind)),
                },
            )
        return place

    @pytest.mark.parametrize("compacted", [False, True])
    def test_fields_of_structs_in_another_case_are_read_as_the_tables(
        self, nested: Place, compacted: bool
    ) -> None:
        if compacted:
            nested.table.adopt(apply=True)
            (done,) = nested.table.compact(apply=True)
            assert done.action == "compacted"
        rows = nested.table.to_arrow(columns=["id", "s", "l", "m"]).to_pylist()
        shown = {
            row["id"]: [
                {name.lower(): value for name, value in it.items()}
                for it in (row["s"], row["l"][0], row["m"][0][1])
            ]
            for row in rows
        }
        assert shown == {n: [{"net": 20 + n, "gross": 24 + n}] * 3 for n in (0, 1)}
        assert all(row["l"][1] is None for row in rows)

    def test_file_with_two_fields_of_a_struct_that_differ_by_case_is_refused(
        self, place: Place
    ) -> None:
        key = place.parquet("day=1/a.parquet", {"id": [1], "s": [{"x": 1, "X": 2}]})
        with pytest.raises(TableMismatchError, match="'x' and 'X' in 's'") as caught:
            place.table.to_arrow()
        assert caught.value.key == key

    def test_file_with_two_columns_that_differ_by_case_is_refused(self, place: Place) -> None:
        key = place.parquet("day=1/a.parquet", {"k": [1], "K": [2]})
        with pytest.raises(TableMismatchError, match="'k' and 'K'") as caught:
            place.table.to_arrow()
        assert caught.value.key == key


class TestRequests:
    def test_each_footer_is_read_once(self, place: Place, s3_bucket: Any) -> None:
        keys = {place.parquet(f"day={n % 3}/f{n}.parquet", {"id": [n]}) for n in range(30)}
        s3_bucket.counter.reset()
        assert len(place.table.adopt(apply=True).entries) == 3
        read = [key for operation, key in s3_bucket.counter.log() if operation == "GetObject"]
        assert sorted(key for key in read if key in keys) == sorted(keys)

    def test_job_of_an_adopted_table_reads_no_footer(self, place: Place, s3_bucket: Any) -> None:
        keys = {place.parquet(f"day=1/f{n}.parquet", {"id": [n]}) for n in range(5)}
        place.table.adopt(apply=True)
        s3_bucket.counter.reset()
        with place.table.job() as job:
            job.write(days(9, day=1))
        assert not [key for _, key in s3_bucket.counter.log() if key in keys]


class TestPartitionColumnsInFiles:
    """As Polars writes them."""

    def write(self, place: Place, frame: pl.DataFrame, folder: Path, *keys: str) -> None:
        frame.write_parquet(folder, partition_by=list(keys))
        for file in folder.rglob("*.parquet"):
            place.put(file.relative_to(folder).as_posix(), file.read_bytes())

    @pytest.mark.parametrize("statistics", [True, False])
    def test_polars_own_output_is_read_adopted_and_compacted(
        self, place: Place, tmp_path: Path, statistics: bool
    ) -> None:
        frame = pl.DataFrame(
            {"id": [1, 2, 3, 4], "day": ["01", "01", "02", None], "n": [7, 7, 8, None]}
        )
        self.write(place, frame, tmp_path / "out", "day", "n")
        if not statistics:
            for file in (tmp_path / "out").rglob("*.parquet"):
                path = file.relative_to(tmp_path / "out").as_posix()
                table = pq.ParquetFile(file).read()
                place.parquet(
                    path,
                    dict(zip(table.column_names, table.columns, strict=True)),
                    write_statistics=False,
                )
        expected = sorted(frame.to_dicts(), key=lambda row: row["id"])
        assert place.table.schema.field("day").type == pa.string()
        assert place.table.schema.field("n").type == pa.int64()
        assert place.rows() == expected
        assert {it.action for it in place.table.adopt(apply=True).entries} == {"adopted"}
        place.table.merge(
            pa.table({"id": [1], "day": ["01"], "n": [7]}), on=["id"], when_matched="ignore"
        )
        place.table.delete([("id", "=", 2)])
        assert place.rows() == [row for row in expected if row["id"] != 2]
        assert place.table.verify() == []

    @pytest.mark.parametrize("statistics", [True, False])
    def test_file_with_another_value_than_its_directory_is_refused(
        self, place: Place, statistics: bool
    ) -> None:
        place.parquet("day=1/a.parquet", {"id": [1], "day": [1]})
        key = place.parquet(
            "day=2/a.parquet", {"id": [1, 2], "day": [2, 3]}, write_statistics=statistics
        )
        with pytest.raises(TableMismatchError, match="day is 3 in rows of the file, and 2 by") as e:
            place.table.to_arrow()
        assert e.value.key == key
        with pytest.raises(TableMismatchError, match=r"day=2/a\.parquet"):
            place.table.adopt(apply=True)

    def test_adopted_file_with_another_value_is_not_written_again(self, place: Place) -> None:
        place.parquet("day=1/a.parquet", {"id": [1], "day": [1]})
        place.parquet("day=1/b.parquet", {"id": [2], "day": [3]})
        place.adopted_before()
        (left,) = place.table.compact(apply=True)
        assert left.action == "left"
        assert "day is 3 in rows of the file, and 1 by" in left.reason
        assert f"{ROOT}/day=1/b.parquet" in place.data()


LOGS = {
    "_delta_log/00000000000000000000.json": "Delta Lake",
    ".hoodie/hoodie.properties": "Apache Hudi",
    "metadata/00001-4b8f.metadata.json": "Apache Iceberg",
    "metadata/version-hint.text": "Apache Iceberg",
    "_spark_metadata/0": "Spark's streaming file sink",
}


class TestOtherFormats:
    @pytest.mark.parametrize(("log", "name"), LOGS.items())
    def test_their_folders_are_refused_for_reading_adopting_and_writing(
        self, place: Place, log: str, name: str
    ) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        place.put(log)

        def load() -> None:
            with place.table.job(SCHEMA, partition_by=["day"], mode="replace"):
                pass

        for verb in (
            lambda: place.table.to_arrow(),
            lambda: place.table.adopt(),
            lambda: place.table.adopt(apply=True),
            lambda: place.table.verify(),
            load,
        ):
            with pytest.raises(TableMismatchError, match=f"is a table of {name}") as caught:
                verb()
            assert "Read it by" in str(caught.value)
        assert not place.table.exists()

    def test_partition_folder_of_a_delta_table_is_refused(self, place: Place) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        place.put("_delta_log/00000000000000000000.json")
        part = Table(f"{place.url}/day=1", client=place.bucket.client)
        with pytest.raises(TableMismatchError, match=r"wh/flights is a table of Delta Lake"):
            part.to_arrow()
        with (
            pytest.raises(TableMismatchError, match=r"wh/flights is a table of Delta Lake"),
            part.job(pa.schema([("id", pa.int64())])),
        ):
            pass

    @pytest.mark.parametrize("verb", ["compact", "merge", "delete", "delete_of_all"])
    def test_files_of_theirs_that_an_older_version_adopted_are_not_written_again(
        self, place: Place, verb: str
    ) -> None:
        for number in range(4):
            place.parquet(f"day=1/f{number}.parquet", {"id": [number]})
        place.adopted_before()
        place.put("_delta_log/00000000000000000000.json")
        before = place.data()
        with pytest.raises(TableMismatchError, match="is a table of Delta Lake"):
            REWRITES[verb](place.table)
        assert place.data() == before

    @pytest.mark.parametrize(
        "verb",
        {
            "read": lambda table: table.to_arrow(),
            "adopt": lambda table: table.adopt(),
            "keep_rows": lambda table: table.keep_rows("day=1", keep=["newest"], apply=True),
            "replace": lambda table: _load(table, days(1, day=1), mode="replace"),
            "replace_table": lambda table: _load(
                table, days(1, day=2), mode="replace", replace_table=True
            ),
        }.items(),
        ids=lambda verb: verb[0],
    )
    def test_files_of_theirs_that_an_older_version_adopted_are_neither_read_nor_replaced(
        self, place: Place, verb: tuple[str, Callable[[Table], object]]
    ) -> None:
        place.parquet("day=1/f.parquet", {"id": [0]})
        place.adopted_before()
        place.adopted_before()
        log = place.put("_delta_log/00000000000000000000.json")
        before = place.data()
        with pytest.raises(TableMismatchError, match="is a table of Delta Lake"):
            verb[1](place.table)
        assert place.data() == before
        (finding,) = place.table.verify()
        assert (finding.kind, finding.key) == (FindingKind.FORMAT, log)

    def test_append_beside_their_files_that_nobody_adopted_is_refused(self, place: Place) -> None:
        place.parquet("day=1/f.parquet", {"id": [0]})
        _load(place.table, days(2, day=2), partition_by=["day"])
        place.put("_delta_log/00000000000000000000.json")
        with pytest.raises(TableMismatchError, match="is a table of Delta Lake"):
            _load(place.table, days(1, day=1))
        with pytest.raises(TableMismatchError, match="is a table of Delta Lake"):
            place.table.to_arrow()

    def test_folder_named_metadata_that_is_not_icebergs_is_no_hindrance(self, place: Place) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        place.put("metadata/notes.json")
        assert place.rows() == [{"id": 1, "day": 1}]


class TestErrorsOfForeignFiles:
    def test_file_that_is_not_parquet_is_not_said_to_be_changed(self, place: Place) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        place.adopted_before()
        body = b"PAR1 and no more"
        size = len(
            place.bucket.client.get_object(Bucket=place.bucket.name, Key=f"{ROOT}/day=1/a.parquet")[
                "Body"
            ].read()
        )
        place.put("day=1/a.parquet", body.ljust(size, b"."))
        with pytest.raises(DamagedError, match="No job of this package wrote it") as caught:
            place.table.to_arrow()
        assert "Verify the table; something else has written" not in str(caught.value)
        (finding,) = place.table.verify()
        assert finding.kind == FindingKind.DAMAGED

    def test_file_of_another_size_is_not_said_to_be_changed_by_something_else(
        self, place: Place
    ) -> None:
        place.parquet("day=1/a.parquet", {"id": [1]})
        place.adopted_before()
        place.put("day=1/a.parquet", b"PAR1")
        with pytest.raises(DamagedError, match="No job of this package wrote the file") as caught:
            place.table.to_arrow()
        assert "something else has written" not in str(caught.value)
