"""Annotations of Parquet's that Arrow has no plain type for: read and kept, or refused by name."""

from __future__ import annotations

import base64
import io
import json
import uuid
import zlib
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Bucket

from zero_rename import Table
from zero_rename.committer import FindingKind, TableMismatchError, UnsupportedTypeError

pytestmark = pytest.mark.memory_s3

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

#: As parquet-java and Spark 4.3 write them, compressed.
MADE = {
    "enum": (
        "eNpNUsFOwkAQnW6b2hguJO6mS3rohQYJNhQoxaQXPZjGcGg8cfDSwpKQtIC1KP+hH+DRE4n+gwevXv0Zpy0q2WZm"
        "3/TtmzebDS9uHAq0gev77ePp2KAEoUo1AAIAsiRjzMQMi21cn++7f46650DBkWVQMMXJRvA64bqMh6pICWcAZVEp"
        "f1epLHOLAL+CQogbTKNBwWRqAUI6KYEGyLwNpJQqQGtNokuiqY3HeMbFfYJe1LFfIEVXksV9TklFOxKJSMUy35MZ"
        "4QbvWGDQGndV0DjqUKyygAWW5pdOy8Cg9bdHHzgpGgAfTQF7JrTBXiXahkqoiU5HUlL2/e1Xik7YxAr9atAqouwB"
        "OhTWDi4B2K5o8SXRS2AvEiOWhukE78HQ64/ZIheZna5mIrGXUSpwxm2UrhMB+vU6yu42Ij9LM/NBZPeL1dJ0bMez"
        "u2Yr3iySmTmPpt2pNxi6/Z5w+v1YxOe9UeTNh5EnXC92nW488LzIOeUdAwA/2EoAIb6PH0U/Y1g="
    ),
    "bson": (
        "eNodUM1Kw0AQnqxQQ+ml4CxZ2UMQGiJoyDZNt0IvQg4iPRTfYLfdQiBJa2w1r9RH8DE8Cr6HVycy/x8z3zCzfnxR"
        "CMhJzp+/X0OJjMoB+gAMAC48j3wnxkwEXtcbMsEBhOQ+Fn3CGRB09+TVSNlowgLPTuLVD41xJqSQEUgciXwAPo1b"
        "JJQXvIj8JZGRcoj/I1HSYuKCJVECb/Car/AGqJlFPi+u+qXB+KMtj65N6v3WVUljahdcus7Uh8pB8Hww7evJHe/r"
        "Nnx37Vu5b0KVKJ2kYWxPZbUNd2aTbvRsnmdTp7LMOvswXRi9mxvtcm1zldqZ1kbdCinpgG+yNT3oDzOlN0k="
    ),
    "geometry": (
        "eNqVUk1Lw0AQnQSUCL0U3HUjeyiLllbikvQrWgQVPKgnqbeK6CbdajH9SlJFSv+R+Gv8A/4D714cbYui9OCcZt97"
        "M/Nm2LPDhkeAlIhDnt+fXlc4MfFpEQvAZgQADAOyxsbbPkzjwM6aSCA6jx/UApyYNsV2nFqk+ZnQLUDIOc4kAxXf"
        "XSXhre4qYgLJbAIzwigj2PJ54+So7mI1NW1u8zxwkrE3LTRlhMSkJr2mzby1t2DiAphC4V969IzHQLOwh545X5sL"
        "fidwsPZdg3KgLwZZpwGJAY2aeYs2V3Fxh7F+fCPVQOHK8mt7ea/jpNPvsaWKLEsXWPGPIhlGEpPhSKcy7j/Irk5V"
        "S6WKBWORPg60qIskjUdhKhzR7uiolYj6xVj0VPeTChGdqW50H2vjx8L0uEVkeqMoUkGEbFtFiXbEvLmojyeTywmw"
        "09no7W6cm3nNedLzpZsrBKNO1Mq1VeiGfqVWLZe0Vy4HOtgt7Si/XVO+rvpB1XODiu8rr2hzjhd6x0uf4a/7AHxy"
        "e/M="
    ),
    "geography": (
        "eNqVkstKw0AUhk8CQoRuBGeYSBZhqKWVODS9GC0FlSJeECx1VxGdpNNaTG9JqkjpG4lP4wsIPoB7N55qFUG6cFZn"
        "/vMz5zs/U99vuARIgTjk6f3xZdkiOl4NYgCYjACApsGKln7bha+zZ67o2ED1+/xqLdCJblJ8zqIGac4KugEoOUep"
        "eCij26s4uFE9SXQgqXVgWhCm0mz57LBWqTXOt0szBqC6aZlWBiySMtcNJNMColOdXtNmxqguGLtAppD9lx/BMREk"
        "hiqCA33WyBr1SQQ4Xc8YtLmKKzmMDaKOkEOJy4jPvcSdiuLuoM+WSqIo8sByfxzxKBRYjMYqEdHgXvRUIlsykWw0"
        "4cnDUPEKj5NoHCTc4e2uClsxr1xMeF/2Zq0A1bmrowadSA5vHrI/uTn2ef3ooHFc2z/NobE/DkPph2huyzBWDv+e"
        "xSuT6fRyCuxkTrLZi+w5uu0K1xN5O+uPu2HLbssgH3ilrXKxoNxi0Vf+TmFbeu0t6amy55fdvF/yPOnmTMvC5F4x"
        "zTp+rw+cxH06"
    ),
    "variant": (
        "eNp1VEtrE1EUPvfm4bQGnz2XOxJKGGhIoQ55NJk2hKLQRZEsgjtRKTeTiQYnaTqTVCUEXJcuutSNO9G/4S6KP8Ct"
        "uOlKQUFceu9k0k6qDhfmfud85zuvYRq37xYQ8BoyfPvlZLKQRiqhhhrAQiYBAIQAEdKUwiv46+enr4tTRlIxkktU"
        "MmIg8SUp8fvV62cR7wUeU16i3Mto4PvvH94kI/7LG4GfAoHpo1+lOk8ECWdvpDpTDqJzkEdBeg6uVoCGsdqp0tk1"
        "UJAcSdLTTMNtpccWFajjVgBAgUMSRROCDTaNPtpJ+X3hPdn17cdOV1YEZeDExuSDVOa6yoKpFeBa1xmIlhgIBSlP"
        "HAh36ECZ8ouD532ntRvgMFZgfI6F8ZV5HjCqp/V6FtKY0lc00HPEPk2AlFF2i21ntVo4pPDFIDeHZR+oZk+hJvsF"
        "9jmGN9hLikWYCpeTU+VEWJuUrbKtbL1WodFQ2SH7oUI/UlyOhu4QO1o0EeeEDsl5pemqgB3FMc1OKOYCufh/5OYn"
        "J0XrrJGdkNrZbs9usvd/WCPJN4MvANi7ODJ2HMMdYC+kZlZjx3RJEtc43/MemaIv5JbNYOHmgeP5nb0eT6ybJTMP"
        "fPUvhr/vmvKyP3QGprf31JztiN8bGap6o2r4A29oD4w1o91x3JZvVO+PjJ7oKpctrSHrQHgd0VO03tB1RdOVxrZw"
        "fWfNmGka1dF4/HAM/E6Y8WbXy4QlZgpmwTLzmVxz2HFbmbaw87a1XimXik6hVGo6zc3ihrDaFWE5ZatZLuSb65Yl"
        "Cqt6PQ1weuCbnFBD/hD+AGsrv4M="
    ),
}


def made(name: str) -> bytes:
    return zlib.decompress(base64.b64decode(MADE[name]))


def by_duckdb(folder: Path, *columns: str) -> bytes:
    """A file of one row, as DuckDB writes it."""
    path = folder / "made.parquet"
    duckdb.execute(f"copy (select {', '.join(columns)}) to '{path}' (format parquet)")
    return path.read_bytes()


def put(bucket: Bucket, *bodies: bytes) -> Table:
    for number, body in enumerate(bodies):
        bucket.put(f"t/f{number}.parquet", body)
    return Table(f"s3://{bucket.name}/t")


def annotated_leaves(bucket: Bucket, table: Table) -> set[str]:
    """Each leaf of a table's files with its annotation."""
    found = set()
    for file in table.files():
        schema = pq.read_metadata(io.BytesIO(bucket.read(file.key))).schema
        leaves = (schema.column(number) for number in range(len(schema)))
        found |= {f"{leaf.path}: {leaf.logical_type}" for leaf in leaves}
    return found


COLUMNS = (
    "1::int as id",
    f"'{ID}'::uuid as u",
    """'{"a": 1}'::json as j""",
    f"['{ID}'::uuid, null] as us",
    f"{{'u': '{ID}'::uuid, 'n': 1}} as s",
    f"map {{'k': '{ID}'::uuid}} as m",
)
ROW = {
    "id": 1,
    "u": ID.bytes,
    "j": '{"a": 1}',
    "us": [ID.bytes, None],
    "s": {"u": ID.bytes, "n": 1},
    "m": [("k", ID.bytes)],
}
LEAVES = {"u: UUID", "j: JSON", "us.list.element: UUID", "s.u: UUID", "m.key_value.value: UUID"}


class TestUuidAndJson:
    def test_columns_of_duckdb_are_read_before_and_after_adoption(
        self, s3_bucket: Bucket, tmp_path: Path
    ) -> None:
        table = put(s3_bucket, by_duckdb(tmp_path, *COLUMNS))
        assert table.to_arrow().to_pylist() == [ROW]
        table.adopt(apply=True)
        assert table.to_arrow().to_pylist() == [ROW]
        assert table.verify() == []

    def test_compaction_keeps_annotations(self, s3_bucket: Bucket, tmp_path: Path) -> None:
        body = by_duckdb(tmp_path, *COLUMNS)
        table = put(s3_bucket, body, body)
        table.adopt(apply=True)
        (done,) = table.compact(apply=True)
        assert done.action == "compacted"
        assert annotated_leaves(s3_bucket, table) >= LEAVES
        assert table.to_arrow().to_pylist() == [ROW] * 2
        again = duckdb.read_parquet(self.file(s3_bucket, table, tmp_path))
        assert [str(kind) for kind in again.types[1:4]] == ["UUID", "JSON", "UUID[]"]

    def file(self, bucket: Bucket, table: Table, folder: Path) -> str:
        (file,) = table.files()
        path = folder / "again.parquet"
        path.write_bytes(bucket.read(file.key))
        return str(path)

    def test_jobs_take_arrows_own_types_and_write_the_annotations(self, s3_bucket: Bucket) -> None:
        table = Table(f"s3://{s3_bucket.name}/own")
        ids = pa.array([ID.bytes, None], pa.uuid())
        rows = pa.table(
            {
                "id": [1, 2],
                "u": ids,
                "j": pa.array(['{"a": 1}', None], pa.json_()),
                "us": pa.ListArray.from_arrays([0, 2, 2], ids),
            }
        )
        with table.job(rows.schema) as job:
            job.write(rows)
        assert annotated_leaves(s3_bucket, table) >= {"u: UUID", "j: JSON", "us.list.element: UUID"}
        table.merge(rows.slice(0, 1), on=["u"], when_matched="update", when_not_matched="insert")
        table.delete([("id", "=", 2)])
        (row,) = table.to_arrow().to_pylist()
        assert row == {"id": 1, "u": ID.bytes, "j": '{"a": 1}', "us": [ID.bytes, None]}
        assert annotated_leaves(s3_bucket, table) >= {"u: UUID", "j: JSON", "us.list.element: UUID"}

    def test_text_that_one_file_does_not_call_json_is_not_called_so(
        self, s3_bucket: Bucket, tmp_path: Path
    ) -> None:
        plain = by_duckdb(tmp_path, "1 as id", "'no JSON' as j", "{'j': 'none either'} as s")
        marked = by_duckdb(tmp_path, "2 as id", "'{}'::json as j", "{'j': '{}'::json} as s")
        table = put(s3_bucket, plain, marked)
        table.adopt(apply=True)
        table.compact(apply=True)
        assert annotated_leaves(s3_bucket, table) >= {"j: String", "s.j: String"}

    def test_other_extension_types_of_rows_are_refused(self, s3_bucket: Bucket) -> None:
        schema = pa.schema([("b", pa.bool8())])
        with (
            pytest.raises(UnsupportedTypeError, match="'b'"),
            Table(f"s3://{s3_bucket.name}/own").job(schema),
        ):
            pass


def test_enum_is_read_as_text_and_written_as_text(s3_bucket: Bucket) -> None:
    table = put(s3_bucket, made("enum"), made("enum"))
    assert table.to_arrow().to_pylist() == [{"e": "red", "l": ["blue"]}] * 2
    table.adopt(apply=True)
    table.compact(apply=True)
    assert table.to_arrow().to_pylist() == [{"e": "red", "l": ["blue"]}] * 2
    assert annotated_leaves(s3_bucket, table) == {"e: String", "l.list.element: String"}


class TestRefused:
    KINDS = ("interval", "geometry", "geography", "bson", "variant", "variant of Spark")

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def body(self, kind: str, tmp_path: Path) -> bytes:
        if kind == "interval":
            return by_duckdb(tmp_path, "interval 1 day as c")
        if kind == "variant":
            return by_duckdb(tmp_path, "'x'::variant as c")
        return made(kind.split()[0])

    @pytest.fixture
    def wanted(self, kind: str) -> str:
        name = "b" if kind == "bson" else "c"
        kind = kind.split()[0].upper()
        return f"f0.parquet: the column '{name}' has the type {kind}, which a table cannot hold"

    def test_columns_are_refused_by_name_for_reading_adopting_verifying_and_writing(
        self, s3_bucket: Bucket, body: bytes, wanted: str
    ) -> None:
        table = put(s3_bucket, body)
        for verb in (
            table.to_arrow,
            table.adopt,
            lambda: table.adopt(apply=True),
            table.verify,
            lambda: table.job(pa.schema([("id", pa.int64())])).__enter__(),
        ):
            with pytest.raises(TableMismatchError, match=wanted):
                verb()
        assert not table.exists()

    def test_partition_with_such_a_file_is_left_by_adoption_to_a_table(
        self, s3_bucket: Bucket, body: bytes, wanted: str
    ) -> None:
        table = Table(f"s3://{s3_bucket.name}/t")
        rows = pa.table({"id": [1], "day": [1]})
        with table.job(rows.schema, partition_by=["day"]) as job:
            job.write(rows)
        s3_bucket.put("t/day=2/f0.parquet", body)
        (left,) = table.adopt(apply=True).entries
        assert left.action == "left"
        assert wanted.split(": ", 1)[1] in left.reason

    def test_rows_adopted_by_an_older_version_are_read_and_not_written_again(
        self, s3_bucket: Bucket, body: bytes, wanted: str
    ) -> None:
        table = put(s3_bucket, body, body)
        # What that version took for the columns: those of Arrow.
        arrow = pq.read_schema(io.BytesIO(body)).remove_metadata()
        with pytest.MonkeyPatch.context() as older:
            older.setattr(
                "zero_rename.committer.format.parquet.foreign_columns.annotated_schema",
                lambda metadata: (arrow, {}),
            )
            table.adopt(apply=True)
        table = Table(table.root.url)
        assert len(table.to_arrow()) == 2
        findings = table.verify()
        assert [it.kind for it in findings] == [FindingKind.COLUMNS] * 2
        assert wanted.split(": ", 1)[1] in findings[0].detail
        (left,) = table.compact(apply=True)
        assert left.action == "left"
        assert wanted.split(": ", 1)[1] in left.reason


def test_struct_with_the_fields_of_a_variant_is_none(s3_bucket: Bucket) -> None:
    rows = pa.table({"c": [{"metadata": b"m", "value": b"v", "x (Variant) {": 1}]})
    body = io.BytesIO()
    pq.write_table(rows, body)
    assert put(s3_bucket, body.getvalue()).to_arrow().to_pylist() == rows.to_pylist()


def test_variant_of_spark_4_0_is_refused_by_its_description(s3_bucket: Bucket) -> None:
    """It wrote no annotation."""
    described = {"type": "struct", "fields": [{"name": "c", "type": "variant"}]}
    rows = pa.table({"c": [{"metadata": b"m", "value": b"v"}]}).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": json.dumps(described)}
    )
    body = io.BytesIO()
    pq.write_table(rows, body)
    with pytest.raises(TableMismatchError, match="the column 'c' has the type VARIANT"):
        put(s3_bucket, body.getvalue()).to_arrow()
