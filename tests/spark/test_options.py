"""Options of reads and writes: spellings, values, contradictions, the environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError, ReadBase
from zero_rename.committer.format import text_values as texts
from zero_rename.committer.format.job_spec import (
    Content,
    Coordination,
    Distribute,
    FileOptions,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    SchemaMode,
    SuccessMarkers,
)
from zero_rename.committer.format.run_rank import RunRanks
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.spark.option_table import camel, markdown, span
from zero_rename.spark.options import (
    ReaderOptions,
    WriterOptions,
    read_reader_options,
    read_writer_options,
)


@pytest.mark.parametrize("text", ["", " ", "[]"])
def test_a_list_of_nothing_is_refused(text):
    """Read as none, it would count no row, or let an overwrite replace what receives rows."""
    for name in ("columns", "partitions"):
        with pytest.raises(InvalidInputError, match="names none"):
            read_reader_options({name: text})
    for name in ("replacePartitions", "onlyPartitions"):
        with pytest.raises(InvalidInputError, match="names none"):
            read_writer_options({name: text}, {})


def test_no_options_are_the_committers_defaults():
    options = read_writer_options({}, {})
    assert options == WriterOptions()
    assert options.files() == FileOptions()
    assert options.mode(overwrite=False) is Mode.APPEND
    assert options.mode(overwrite=True) is Mode.REPLACE


@pytest.mark.parametrize("name", ["partitionBy", "partitionby", "partition_by", "PARTITION-BY"])
def test_spellings_are_one_option(name):
    assert read_writer_options({name: "year, month"}, {}).partition_by == ("year", "month")


BASE = ReadBase("s3://bucket/t", {"day=1": 4})
#: Of each option a text, and its value.
EVERY = {
    "path": ("s3://bucket/t", "s3://bucket/t"),
    "partitionBy": ('["a,b", "c"]', ("a,b", "c")),
    "failIfExists": ("true", True),
    "publish": ("false", False),
    "replacePartitions": ("day=1;day=2;", ("day=1", "day=2")),
    "replaceWhere": ("day > 1", "day > 1"),
    "onlyPartitions": ('["day=1", "day=2", "day=3"]', ("day=1", "day=2", "day=3")),
    "replaceTable": ("TRUE", True),
    "onConflict": ("last-wins", OnConflict.LAST_WINS),
    "onSuperseded": ("skip", OnSuperseded.SKIP),
    "runRank": ("2013-01-02", RunRanks.of("2013-01-02")),
    "base": (
        ReadBase("s3://bucket/t", {"day=1": 4}).encode(),
        ReadBase("s3://bucket/t", {"day=1": 4}),
    ),
    "successMarkers": ("table", SuccessMarkers.TABLE),
    "idempotencyKey": ("dag/run", "dag/run"),
    "onRepeat": ("replace_own", OnRepeat.REPLACE_OWN),
    "schemaMode": ("overwrite", SchemaMode.OVERWRITE),
    "compression": ("snappy", "snappy"),
    "rowsPerFile": ("10", 10),
    "bytesPerFile": ("64 MiB", 64 * 1024 * 1024),
    "rowGroupRows": ("5", 5),
    "maxOpenPartitions": ("3", 3),
    "partBytes": ("8m", 8 * 1024 * 1024),
    "distribute": ("partition", Distribute.PARTITION),
    "storageClass": ("STANDARD_IA", "STANDARD_IA"),
    "encryption": ("SSE-KMS", "SSE-KMS"),
    "encryptionKey": ("alias/lake", "alias/lake"),
    "defaultEncryption": ("SSE-KMS k1", Encryption(Algorithm.SSE_KMS, "k1")),
    "tags": ("a=b, c=d=e", {"a": "b", "c": "d=e"}),
    "metadata": ('{"x": "1,2"}', {"x": "1,2"}),
    "content": ("rows", Content.ROWS),
    "maxDuration": ("90min", 5400.0),
    "freezeWorkers": ("false", False),
    "coordination": ("none", Coordination.NONE),
    "dataRoot": ("s3://fast/scratch", FastRoot.parse("s3://fast/scratch")),
    "codeVersion": ("v4", "v4"),
    "expectedMode": ("fail_if_exists", Mode.FAIL_IF_EXISTS),
    "dag": ("d", "d"),
    "run": ("r", "r"),
    "task": ("t", "t"),
    "mapIndex": ("-1", -1),
    "tryNumber": ("2", 2),
    "series": ("s", "s"),
}


def test_every_option_is_read():
    members = {camel(field.name): field.name for field in dataclasses.fields(WriterOptions)}
    assert set(EVERY) == set(members)
    found = read_writer_options({name.lower(): text for name, (text, _) in EVERY.items()}, {})
    wanted: dict[str, Any] = {members[name]: value for name, (_, value) in EVERY.items()}
    assert found == WriterOptions(**wanted)
    assert found.files().tags == {"a": "b", "c": "d=e"}
    assert found.owner("app").run_id == "r"


def test_an_empty_partition_by_is_an_unpartitioned_table():
    assert read_writer_options({"partitionBy": ""}, {}).partition_by == ()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("replacePartition", "Is replacePartitions meant?"),
        ("partition", "Is partitionBy meant?"),
        ("idempotencyKeys", "Is idempotencyKey meant?"),
        ("endpoint", "AWS_ENDPOINT_URL"),
        ("columns", "for reading only"),
        ("xyz", "There are path, partitionBy"),
    ],
)
def test_unknown_options_are_refused_with_what_was_meant(name, remedy):
    with pytest.raises(InvalidInputError, match="is no option of zero_rename") as caught:
        read_writer_options({name: "x"}, {})
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"fs.s3a.access.key": "hush"},
        {"awsSecretAccessKey": "hush"},
        {"session_token": "hush"},
        {"password": "hush"},
        {"path": "s3://AKIA:hush@bucket/table"},
        {"metadata": "owner=me,secret_key=hush"},
        {"tags": "apiKey=hush"},
        {"metadata": '{"AWS_ACCESS_KEY_ID": "hush"}'},
        {"metadata": "fs.s3a.access.key=hush"},
        {"tags": "storage_account_key=hush"},
    ],
)
def test_secrets_are_refused_and_not_repeated(given):
    with pytest.raises(InvalidInputError, match="boto3's own chain") as caught:
        read_writer_options(given, {})
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value.__cause__)


@pytest.mark.parametrize("name", ["primary_key", "key", "Keyed by", "customer_key", "monkeys"])
def test_names_of_tags_and_metadata_may_speak_of_keys(name: str) -> None:
    for option in ("tags", "metadata"):
        read = read_writer_options({option: f"{name}=orders"}, {})
        assert getattr(read, option) == {name: "orders"}


@pytest.mark.parametrize("query", ["endpoint=http://me:hush@x", "password=hush"])
def test_a_data_root_with_a_password_is_refused_without_it(query):
    with pytest.raises(InvalidInputError, match="option dataRoot is a data root") as caught:
        read_writer_options({"dataRoot": f"s3://fast/t?{query}"}, {})
    assert "hush" not in f"{caught.value}{caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failIfExists", "yes"),
        ("rowsPerFile", "0"),
        ("rowsPerFile", "1.5"),
        ("bytesPerFile", "0"),
        ("bytesPerFile", "many"),
        ("maxDuration", "0"),
        ("maxDuration", "1 fortnight"),
        ("onConflict", "maybe"),
        ("partitionBy", "a,,b"),
        ("partitionBy", "[1]"),
        ("partitionBy", "['a']"),
        ("tags", "a"),
        ("tags", '{"a": 1}'),
        ("path", " "),
        ("mapIndex", "first"),
    ],
)
def test_values_that_cannot_be_right_are_refused_by_name(name, value):
    with pytest.raises(InvalidInputError, match=f"The option {name} ") as caught:
        read_writer_options({name: value}, {})
    assert caught.value.remedy


def test_contradictions_are_refused():
    with pytest.raises(InvalidInputError, match="failIfExists contradicts"):
        WriterOptions(fail_if_exists=True).mode(overwrite=True)
    with pytest.raises(InvalidInputError, match=r"replacePartitions .* needs mode overwrite"):
        WriterOptions(replace_partitions=("a=1",)).mode(overwrite=False)
    with pytest.raises(InvalidInputError, match=r"replaceTable .* needs mode overwrite"):
        WriterOptions(replace_table=True).mode(overwrite=False)
    with pytest.raises(InvalidInputError, match="contradict each other"):
        WriterOptions(replace_partitions=("a=1",), replace_table=True).mode(overwrite=True)
    assert WriterOptions(fail_if_exists=True).mode(overwrite=False) is Mode.FAIL_IF_EXISTS


ENVIRONMENT = {
    "ZERO_RENAME_IDEMPOTENCY_KEY": "d/r/t",
    "ZERO_RENAME_ON_REPEAT": "replace_own",
    "ZERO_RENAME_ON_CONFLICT": "last_wins",
    "ZERO_RENAME_MODE": "overwrite",
    "ZERO_RENAME_PARTITIONS": "day=1",
    "ZERO_RENAME_DAG": "d",
    "ZERO_RENAME_RUN": "r",
    "ZERO_RENAME_TASK": "t",
    "ZERO_RENAME_MAP_INDEX": "3",
    "ZERO_RENAME_TRY_NUMBER": "1",
    "ZERO_RENAME_SERIES": "2013-02-02T00:00:00+00:00 2",
}


def test_the_environment_completes_the_options():
    options = read_writer_options({"run": "mine"}, ENVIRONMENT)
    assert options == WriterOptions(
        run="mine",
        expected_mode=Mode.REPLACE,
        idempotency_key="d/r/t",
        on_repeat=OnRepeat.REPLACE_OWN,
        on_conflict=OnConflict.LAST_WINS,
        replace_partitions=("day=1",),
        dag="d",
        task="t",
        map_index=3,
        try_number=1,
        series="2013-02-02T00:00:00+00:00 2",
    )


@pytest.mark.parametrize("mode", ["append", "fail-if-exists", ""])
def test_partitions_are_emptied_only_where_the_submitter_says_replace(mode):
    environment = ENVIRONMENT | {"ZERO_RENAME_MODE": mode}
    options = read_writer_options({}, environment)
    assert (options.replace_partitions, options.only_partitions) == (None, ("day=1",))
    options = read_writer_options({"replacePartitions": "day=2"}, environment)
    assert (options.replace_partitions, options.only_partitions) == (("day=2",), ("day=1",))


@pytest.mark.parametrize(
    ("asked", "given", "overwrite"),
    [
        ("append", {"failIfExists": "true"}, False),
        ("append", {}, True),
        ("replace", {"failIfExists": "true"}, False),
        ("merge", {}, True),
    ],
)
def test_mode_that_contradicts_the_one_asked_for_is_refused(
    asked: str, given: dict[str, str], overwrite: bool
) -> None:
    options = read_writer_options(given, {"ZERO_RENAME_MODE": asked})
    with pytest.raises(InvalidInputError, match=f"{asked} is asked for.*nothing was written"):
        options.mode(overwrite)


def test_option_that_allows_files_where_the_mode_asked_for_is_fail_if_exists_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="failIfExists is 'false', and the mode is fail-if"):
        read_writer_options({"failIfExists": "false"}, {"ZERO_RENAME_MODE": "fail-if-exists"})


def test_the_environment_may_speak_of_one_table_only():
    environment = ENVIRONMENT | {"ZERO_RENAME_TABLE": "s3://bucket/t/"}
    assert read_writer_options({"path": "s3a://bucket/t"}, environment).idempotency_key == "d/r/t"
    assert read_writer_options({"path": "s3://bucket/other"}, environment).idempotency_key is None


def test_a_bad_variable_is_named():
    with pytest.raises(InvalidInputError, match="variable ZERO_RENAME_TRY_NUMBER is a whole"):
        read_writer_options({}, {"ZERO_RENAME_TRY_NUMBER": "x"})


def test_a_condition_takes_the_place_of_partitions():
    options = read_writer_options({"replaceWhere": "a = 1"}, ENVIRONMENT)
    assert (options.replace_where, options.replace_partitions) == ("a = 1", None)
    assert options.only_partitions == ("day=1",)  # Those of the task are the limit.
    both = read_writer_options({"replaceWhere": "a = 1", "replacePartitions": "a=1"}, {})
    with pytest.raises(InvalidInputError, match="replacePartitions and replaceWhere contradict"):
        both.mode(overwrite=True)
    with pytest.raises(InvalidInputError, match=r"replaceWhere .* needs mode overwrite"):
        read_writer_options({"replaceWhere": "a = 1"}, {}).mode(overwrite=False)


def test_names_that_spark_has_for_the_same():
    options = read_writer_options({"maxrecordsperfile": "9", "compression": "uncompressed"}, {})
    assert options.rows_per_file == 9
    assert options.files().compression == "none"
    assert "`rowsPerFile`, `maxRecordsPerFile`" in markdown(WriterOptions)
    with pytest.raises(InvalidInputError, match="rowsPerFile and maxRecordsPerFile are one option"):
        read_writer_options({"maxRecordsPerFile": "9", "rows_per_file": "9"}, {})
    with pytest.raises(InvalidInputError, match="Is maxRecordsPerFile meant"):
        read_writer_options({"maxRecordPerFile": "9"}, {})


def test_reader_options():
    given = {
        "path": "s3://bucket/t",
        "columns": "a,b",
        "partitions": "day=1;day=2",
        "where": "day > 1",
        "targetPartitionBytes": "1g",
    }
    assert read_reader_options(given) == ReaderOptions(
        "s3://bucket/t", ("a", "b"), ("day=1", "day=2"), "day > 1", 1024**3
    )
    with pytest.raises(InvalidInputError, match="asOf"):
        read_reader_options({"asOf": "7"})
    with pytest.raises(InvalidInputError, match="for writing only"):
        read_reader_options({"partitionBy": "a"})


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("1k", 1024), ("2KB", 2048), ("3 mib", 3 * 1024**2), ("4T", 2**42)]
)
def test_sizes(text, size):
    assert texts.size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("1.5", 1.5), ("2m", 120), ("3 h", 10800), ("1d", 86400), ("9s", 9)]
)
def test_durations(text, seconds):
    assert span(text) == seconds


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("asked", ["append", "replace", "fail-if-exists"])
def test_a_write_agrees_with_the_submitter_s_mode(asked: str, overwrite: bool) -> None:
    options = read_writer_options({}, {"ZERO_RENAME_MODE": asked})
    if overwrite is (asked == "replace"):
        assert options.mode(overwrite) == asked
        return
    with pytest.raises(InvalidInputError, match="is asked for"):
        options.mode(overwrite)
