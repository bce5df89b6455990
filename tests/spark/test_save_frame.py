"""One call for every committer: what it becomes, decided without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from zero_rename.committer import InvalidInputError, Mode, ReadBase, SettingsRefusedError, TableRoot
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import SchemaMode
from zero_rename.s3a.hadoop.settings import (
    CONFLICT_KEY,
    REPORT_KEY,
    UNIQUE_KEY,
    UUID_KEY,
    Committer,
)
from zero_rename.s3a.write_plan import OVERWRITE_OPTION, PlannedWrite, check_call_options, plan
from zero_rename.spark import delete, load, merge, save, stream, update
from zero_rename.spark.changing import merging
from zero_rename.spark.options import writer_options
from zero_rename.spark.write_target import resolve
from zero_rename.spark.writer import open_writer

TABLE = "s3://bucket/wh/flights"
ROOT = TableRoot.parse(TABLE)
PATH = "s3a://bucket/wh/flights"
DAYS = ("day=1", "day=2")


def asked(environ: dict[str, str] | None = None, **given: Any) -> Any:
    call: dict[str, Any] = {"table": TABLE, "partition_by": ["day"]}
    return resolve(**call | given, handoff=Handoff.decode(environ or {}))


class TestWhatIsAsked:
    def test_by_hand(self) -> None:
        found = asked()
        assert (found.committer, found.mode, found.partitions) == ("zero_rename", Mode.APPEND, None)
        assert (found.root, found.partition_by) == (ROOT, ("day",))

    def test_by_the_operator(self) -> None:
        environ = {
            "ZERO_RENAME_TABLE": "s3a://bucket/wh/flights/",
            "ZERO_RENAME_COMMITTER": "magic",
            "ZERO_RENAME_MODE": "replace",
            "ZERO_RENAME_PARTITIONS": json.dumps(DAYS),
        }
        found = asked(environ, table=None)
        assert (found.committer, found.mode, found.partitions) == ("magic", Mode.REPLACE, DAYS)
        other = asked(environ, table="s3://bucket/wh/other")
        assert (other.committer, other.mode, other.partitions) == ("magic", Mode.APPEND, None)

    def test_the_application_may_name_fewer_partitions(self) -> None:
        environ = {"ZERO_RENAME_PARTITIONS": json.dumps(DAYS)}
        assert asked(environ, partitions=["day=2"]).partitions == ("day=2",)
        with pytest.raises(InvalidInputError, match="day=3"):
            asked(environ, partitions=["day=3"])
        with pytest.raises(InvalidInputError, match="day=7 and 2 more, and its task"):
            asked(environ, partitions=[f"day={day}" for day in range(3, 10)])

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"table": None}, "No table is named"),
            ({"committer": "magicv2"}, "no committer 'magicv2'"),
            ({"mode": "upsert"}, "mode='upsert'"),
            ({"partition_by": "day"}, "list of columns"),
            ({"partitions": "day=1"}, "list of paths"),
            ({"partition_by": ["day", ""]}, "partition_by has an empty item"),
            ({"partitions": [""]}, "partitions has an empty item"),
            ({"partition_by": [1]}, r"partition_by=\[1\] is not a list of texts"),
            ({"options": {"tags": None}}, "options has an item 'tags' of type NoneType"),
            ({"options": {1: "a"}}, "options has an item 1 of type int"),
            ({"options": {"PATH": "s3://bucket/wh/other"}}, "path names s3://bucket/wh/other"),
            ({"committer": "magic", "options": {"base": "now"}}, "base='now'"),
            ({"committer": "magic", "code_version": "4"}, "code_version='4'"),
            ({"code_version": ""}, "no version of a program's code"),
        ],
    )
    def test_what_cannot_be_right(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            asked(**given)

    def test_columns_and_partitions_may_come_from_an_iterator(self) -> None:
        found = asked(partition_by=iter(["day"]), partitions=map(str, DAYS), mode="overwrite")
        assert (found.partition_by, found.partitions) == (("day",), DAYS)
        with pytest.raises(InvalidInputError, match="partitions has an empty item"):
            asked(partitions=iter(["day=1", ""]))

    def test_numbers_and_truth_values_of_options_are_read_as_by_sparks_writers(self) -> None:
        call = asked(options={"mergeSchema": True, "rowsPerFile": 9, "freezeWorkers": False})
        options = writer_options(call.options, Handoff(), call.named_options)
        assert (options.schema_mode, options.rows_per_file) == (SchemaMode.MERGE, 9)
        assert not options.freeze_workers

    def test_option_path_of_an_operators_application_must_name_its_table(self) -> None:
        environ = {"ZERO_RENAME_TABLE": TABLE}
        assert asked(environ, table=None, options={"path": f"{PATH}/"}).root == ROOT
        with pytest.raises(InvalidInputError, match="the write's table is another"):
            asked(environ, table=None, options={"path": "s3://bucket/wh/other"})

    def test_partition_columns_of_an_option_are_those_of_a_table_that_a_merge_makes(self) -> None:
        assert asked(partition_by=(), options={"partitionBy": "day, hour"}).partition_by == (
            *("day", "hour"),
        )
        call = asked(partition_by=(), options={"partitionBy": "a,,b"})
        with pytest.raises(InvalidInputError, match="option partitionBy has an empty item"):
            writer_options(call.options, Handoff(), call.named_options)

    def test_publish_of_an_option_holds_rows_back(self) -> None:
        call = asked(layout="delta", options={"publish": False})
        assert not writer_options(call.options, Handoff(), call.named_options).publish

    @pytest.mark.parametrize(
        ("given", "same", "other", "message"),
        [
            (
                {"partition_by": ["day", "hour"]},
                {"partitionBy": "day, hour"},
                {"partition_by": "hour"},
                r"option partition_by is 'hour', and the call has partition_by=\['day', 'hour'\]",
            ),
            (
                {"publish": False, "layout": "delta"},
                {"publish": "false"},
                {"publish": True},
                "option publish is 'true', and the call has publish=False",
            ),
            (
                {"publish": True, "layout": "delta"},
                {"publish": "TRUE"},
                {"publish": "false"},
                "option publish is 'false', and the call has publish=True",
            ),
            (
                {"distribute": "partition"},
                {"distribute": "PARTITION"},
                {"distribute": "none"},
                "option distribute is 'none', and the call has distribute='partition'",
            ),
            (
                {"code_version": "4"},
                {"codeVersion": 4},
                {"codeVersion": 3},
                "option codeVersion is '3', and the call has code_version='4'",
            ),
            (
                {"base": ReadBase(TABLE, {"day=1": 4})},
                {"base": ReadBase(TABLE, {"day=1": 4}).encode()},
                {"Base": "now"},
                "option Base is 'now', and the call has another base=",
            ),
            (
                {"base": "now"},
                {"BASE": "Now"},
                {"Base": ReadBase(TABLE, {"day=1": 4}).encode()},
                "option Base is .*, and the call has another base=",
            ),
            (
                {"mode": "fail-if-exists"},
                {"failIfExists": "true"},
                {"failIfExists": False},
                "option failIfExists is 'false', and the mode is fail-if-exists",
            ),
        ],
    )
    def test_option_that_contradicts_an_argument_is_refused(
        self, given: dict[str, Any], same: dict[str, Any], other: dict[str, Any], message: str
    ) -> None:
        """The argument won, and the option was passed over."""

        def read(options: dict[str, Any]) -> Any:
            call = asked(**given, options=options)
            return writer_options(call.options, Handoff(), call.named_options)

        assert read(same) == read({})
        with pytest.raises(InvalidInputError, match=f"{message}.*nothing was written"):
            read(other)

    def test_what_the_call_names_reaches_the_job_as_it_is(self) -> None:
        """No text is made of it on the way, which would have to be read again."""
        base = ReadBase(TABLE, {"day=1": 4})
        environ = {
            "ZERO_RENAME_PARTITIONS": json.dumps(DAYS),
            "ZERO_RENAME_IDEMPOTENCY_KEY": "a run",
        }
        given = {"rowsPerFile": "9"}
        named = {"partitions": ["day=2"], "base": base, "code_version": "4"}
        call = asked(environ, mode="overwrite", options=given, **named)
        options = writer_options(call.options, Handoff.decode(environ), call.named_options)
        assert (options.base, options.code_version) == (base, "4")
        assert (options.partition_by, options.rows_per_file) == (("day",), 9)
        assert (options.replace_partitions, options.only_partitions) == (("day=2",), DAYS)
        assert (options.path, options.idempotency_key, options.mode(overwrite=True)) == (
            *(TABLE, "a run", Mode.REPLACE),
        )

    def test_a_mode_that_contradicts_the_operators(self) -> None:
        environ = {"ZERO_RENAME_MODE": "append"}
        assert asked(environ, mode="append").mode is Mode.APPEND
        with pytest.raises(InvalidInputError, match="append is asked for"):
            asked(environ, mode="overwrite")
        assert asked({"ZERO_RENAME_MODE": "replace"}, mode="overwrite").mode is Mode.REPLACE

    @pytest.mark.parametrize(
        ("variable", "value", "given", "airflow", "dagster"),
        [
            (
                *("ZERO_RENAME_MODE", "append", {"mode": "overwrite"}),
                *("mode= of the Airflow operator", "mode= of the Dagster asset"),
            ),
            (
                *("ZERO_RENAME_COMMITTER", "magic", {"committer": "zero_rename"}),
                *("committer= of the Airflow operator", "committer= of the Dagster resource"),
            ),
            (
                *("ZERO_RENAME_PUBLISH", "false", {"publish": True, "layout": "delta"}),
                *("publish= of the Airflow operator", "publish= of the Dagster asset"),
            ),
        ],
    )
    def test_error_names_what_the_submitter_at_hand_has(
        self, variable: str, value: str, given: dict[str, Any], airflow: str, dagster: str
    ) -> None:
        """A user of Dagster was told of an argument of Airflow's operator."""
        asked_for = {"ZERO_RENAME_TABLE": TABLE, variable: value, "ZERO_RENAME_LAYOUT": "delta"}
        if variable == "ZERO_RENAME_COMMITTER":
            del asked_for["ZERO_RENAME_LAYOUT"]
        keys = {
            airflow: {"ZERO_RENAME_DAG": "d", "ZERO_RENAME_IDEMPOTENCY_KEY": "d/r/t"},
            dagster: {"ZERO_RENAME_IDEMPOTENCY_KEY": f"dagster/r/a/keys-{'0' * 16}"},
        }
        for named, key in keys.items():
            with pytest.raises(InvalidInputError, match=f"{variable}, which {named} sets.*{named}"):
                asked(asked_for | key, **given)
        with pytest.raises(InvalidInputError, match=rf"\({variable}\);") as caught:
            asked(asked_for, **given)
        assert "Airflow" not in str(caught.value)

    def test_committer_that_contradicts_the_operators_is_refused_for_its_table_alone(self) -> None:
        environ = {"ZERO_RENAME_TABLE": TABLE, "ZERO_RENAME_COMMITTER": "magic"}
        assert asked(environ, committer="magic").committer == "magic"
        with pytest.raises(InvalidInputError, match="by the committer zero_rename, and magic is"):
            asked(environ, committer="zero_rename")
        other = asked(environ, table="s3://bucket/wh/other", committer="zero_rename")
        assert other.committer == "zero_rename"

    def test_data_source_in_an_application_whose_task_waits_for_a_delta_table_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ZERO_RENAME_TABLE", TABLE)
        monkeypatch.setenv("ZERO_RENAME_LAYOUT", "delta")
        columns = StructType([StructField("day", LongType())])
        with pytest.raises(InvalidInputError, match=r"layout=delta is asked for.*by .*save\(\)"):
            open_writer(columns, False, {"path": TABLE})

    @pytest.mark.memory_s3
    @pytest.mark.parametrize("mode", ["replace", "append"])
    @pytest.mark.parametrize(
        "given",
        [
            {"replacePartitions": "day=1"},
            {"replacePartitions": "day=2;day=1"},
            {"replaceWhere": "day = 1"},
            {"replaceWhere": "day >= 1 and day < 3"},
            {"replacePartitions": "day=1", "onlyPartitions": "day=1"},
            {"onlyPartitions": "day=1;day=2"},
        ],
    )
    def test_data_source_that_names_other_partitions_than_its_task_is_refused(
        self, url: str, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], mode: str
    ) -> None:
        monkeypatch.setenv("ZERO_RENAME_PARTITIONS", "day=2")
        if mode == "replace":
            monkeypatch.setenv("ZERO_RENAME_MODE", mode)
        overwrite = mode == "replace" or "onlyPartitions" not in given or len(given) > 1
        columns = StructType([StructField("day", LongType()), StructField("n", LongType())])
        if mode == "replace" and [*given] == ["onlyPartitions"]:
            opened = open_writer(columns, overwrite, {"path": url, "partitionBy": "day", **given})
            assert opened.opened.spec.allowed_partitions == {"day=2"}
            return
        with pytest.raises(InvalidInputError, match=r"may write .*day=[12]"):
            open_writer(columns, overwrite, {"path": url, "partitionBy": "day", **given})

    @pytest.mark.memory_s3
    @pytest.mark.parametrize("given", [{"replacePartitions": "day=02"}, {"replaceWhere": "day=2"}])
    def test_data_source_may_name_partitions_of_its_task(
        self, url: str, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
    ) -> None:
        monkeypatch.setenv("ZERO_RENAME_PARTITIONS", "day=2;day=3")
        monkeypatch.setenv("ZERO_RENAME_MODE", "replace")
        columns = StructType([StructField("day", LongType()), StructField("n", LongType())])
        opened = open_writer(columns, True, {"path": url, "partitionBy": "day", **given}).opened
        assert opened.spec.replace_partitions == ("day=2",)

    @pytest.mark.parametrize("environ", [{"ZERO_RENAME_PARTITIONS": "day=2"}, {}])
    @pytest.mark.parametrize(
        ("mode", "option"), [("overwrite", "replacePartitions"), ("append", "onlyPartitions")]
    )
    def test_option_that_names_other_partitions_than_the_call_or_its_task_is_refused(
        self, environ: dict[str, str], mode: str, option: str
    ) -> None:
        given = {} if environ else {"partitions": ["day=2"]}
        for text in ("day=2", "day=1"):
            call = asked(environ, mode=mode, options={option: text}, **given)
            read = partial(writer_options, call.options, Handoff.decode(environ))
            if text == "day=2":
                read(call.named_options)
                continue
            with pytest.raises(InvalidInputError, match=f"{option} names day=1.* about day=2"):
                read(call.named_options)

    def test_data_source_in_an_application_that_is_to_write_by_magic_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ZERO_RENAME_TABLE", TABLE)
        monkeypatch.setenv("ZERO_RENAME_COMMITTER", "magic")
        columns = StructType([StructField("day", LongType())])
        with pytest.raises(InvalidInputError, match="by the committer zero_rename, and magic is"):
            open_writer(columns, False, {"path": TABLE})

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("ZERO_RENAME_DATA_ROOT", "s3://fast/lake"),
            ("ZERO_RENAME_SUCCESS_MARKERS", "table"),
            ("ZERO_RENAME_ENCRYPTION", "SSE-S3"),
            ("ZERO_RENAME_IDEMPOTENCY_KEY", "a run"),
            ("ZERO_RENAME_ON_REPEAT", "skip"),
            ("ZERO_RENAME_ON_CONFLICT", "fail"),
        ],
    )
    def test_variable_set_by_hand_that_magic_passes_over_is_refused(
        self, variable: str, value: str
    ) -> None:
        with pytest.raises(InvalidInputError, match="is given with the committer magic"):
            asked({variable: value}, committer="magic")


def planned(
    committer: str,
    mode: Mode,
    partition_by: tuple[str, ...] = ("day",),
    partitions: tuple[str, ...] = (),
) -> tuple[PlannedWrite, ...]:
    return plan(Committer(committer), mode, ROOT, partition_by, partitions)


class TestAppend:
    @pytest.mark.parametrize("committer", Committer)
    @pytest.mark.parametrize("partitions", [(), DAYS])
    def test_is_one_job_at_the_root(self, committer: str, partitions: tuple[str, ...]) -> None:
        (write,) = planned(committer, Mode.APPEND, partitions=partitions)
        assert (write.path, write.save_mode, write.partition_by) == (PATH, Mode.APPEND, ("day",))
        staging = {"directory", "partitioned"}
        assert write.options == ({CONFLICT_KEY: "append"} if committer in staging else {})


class TestReplace:
    def test_partitioned_settles_it_at_job_commit(self) -> None:
        for partitions in ((), DAYS):
            (write,) = planned("partitioned", Mode.REPLACE, partitions=partitions)
            assert (write.path, write.save_mode) == (PATH, Mode.APPEND)
            assert write.options == {CONFLICT_KEY: "replace"}

    def test_partitioned_needs_partitions(self) -> None:
        with pytest.raises(SettingsRefusedError, match="committer='directory'"):
            planned("partitioned", Mode.REPLACE, partition_by=())

    def test_directory_replaces_folders_at_job_commit(self) -> None:
        writes = planned("directory", Mode.REPLACE, partitions=DAYS)
        assert [(w.path, w.partition) for w in writes] == [(f"{PATH}/{d}", d) for d in DAYS]
        for write in writes:
            assert (write.save_mode, write.partition_by) == (Mode.APPEND, ())
            assert write.options == {CONFLICT_KEY: "replace"}

    def test_magic_deletes_folders_first(self) -> None:
        writes = planned("magic", Mode.REPLACE, partitions=DAYS)
        assert [(w.path, w.save_mode) for w in writes] == [
            (f"{PATH}/{d}", Mode.REPLACE) for d in DAYS
        ]
        # Whatever the session's own is, which stays as it is for the application's other writes.
        assert [w.options for w in writes] == [{OVERWRITE_OPTION: "static"}] * 2

    @pytest.mark.parametrize("committer", ["magic", "directory"])
    def test_without_names_it_is_refused(self, committer: str) -> None:
        """Spark would empty the whole table."""
        with pytest.raises(SettingsRefusedError, match="overwrite-unnamed-partitions"):
            planned(committer, Mode.REPLACE)

    @pytest.mark.parametrize("committer", ["magic", "directory"])
    def test_an_unpartitioned_table_is_replaced_whole(self, committer: str) -> None:
        (write,) = planned(committer, Mode.REPLACE, partition_by=())
        assert (write.path, write.partition) == (PATH, None)


class TestFailIfExists:
    @pytest.mark.parametrize("committer", ["magic", "directory"])
    def test_looks_before(self, committer: str) -> None:
        writes = planned(committer, Mode.FAIL_IF_EXISTS, partitions=DAYS)
        assert [w.must_be_empty for w in writes] == [(f"wh/flights/{d}/",) for d in DAYS]
        (whole,) = planned(committer, Mode.FAIL_IF_EXISTS)
        assert whole.must_be_empty == ("wh/flights/",)
        assert {w.save_mode for w in (*writes, whole)} == {Mode.APPEND}

    def test_partitioned_looks_by_partition(self) -> None:
        (write,) = planned("partitioned", Mode.FAIL_IF_EXISTS)
        assert (write.options, write.must_be_empty) == ({CONFLICT_KEY: "fail"}, ())


@pytest.mark.parametrize("committer", Committer)
def test_partition_is_refused_that_spark_writes_below_another_folder(committer: str) -> None:
    """An overwrite of the folder as it is named would leave the rows of the other."""
    plain = "hour=2013-02-02T05:00"
    with pytest.raises(InvalidInputError, match="below 'hour=2013-02-02T05%3A00'"):
        planned(committer, Mode.REPLACE, ("hour",), (plain,))
    assert planned(committer, Mode.REPLACE, ("hour",), (plain.replace(":", "%3A"),))


@pytest.mark.parametrize("name", ["month=1", "day=1/hour=2", "day"])
def test_partitions_that_are_not_the_tables(name: str) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        planned("directory", Mode.REPLACE, partitions=(name,))


@pytest.mark.parametrize("data", [pa.table({"k": [1]}), pd.DataFrame({"k": [1]}), None])
def test_a_frame_of_another_library_is_refused_with_the_way_to_write_it(data: Any) -> None:
    url = "s3://bucket/table"
    calls: list[Callable[[], Any]] = [
        lambda: save(data, url),
        lambda: merge(data, url, on=["k"]),
        lambda: stream(data, url, checkpoint="s3a://bucket/checkpoint"),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"no data frame of Spark's.*Table\(…\)\.merge"):
            call()


def test_frame_of_pandas_on_spark_is_refused_with_what_to_call() -> None:
    # A real one needs a Spark session.
    frame: Any = type("DataFrame", (), {"__module__": "pyspark.pandas.frame"})()
    with pytest.raises(InvalidInputError, match=r"pyspark\.pandas.*to_spark\(\)"):
        save(frame, "s3://bucket/table")


class Column:
    """A column of Spark's, which is neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("Cannot convert column into bool")


@pytest.mark.parametrize("given", [Column(), 0, True])
def test_expression_that_is_no_text_is_refused_with_the_form_that_it_has(given: Any) -> None:
    url = "s3://bucket/table"
    frame: Any = SimpleNamespace(sparkSession=None)
    session: Any = object()
    calls: list[Callable[[], Any]] = [
        lambda: load(session, url, where=given),
        lambda: delete(url, where=given, spark=session),
        lambda: update(url, set={"v": given}, where="true", spark=session),
        lambda: merge(frame, url, on=["k"], when_matched={"v": given}),
        lambda: merge(frame, url, on=["k"], delete_when=given),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"is a (Column|int|bool), not a text.*SQL"):
            call()


class TestMergeThatASubmitterAsksFor:
    @pytest.fixture
    def frame(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("ZERO_RENAME_MODE", "merge")
        monkeypatch.setenv("ZERO_RENAME_MERGE_ON", "id")
        return SimpleNamespace(sparkSession=SimpleNamespace(conf={}), isStreaming=False)

    def test_layout_of_the_call_is_that_of_a_table_that_the_merge_makes(
        self, frame: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[str, Any] = {}

        def changed(*_: object, **given: Any) -> Any:
            seen.update(given)
            return SimpleNamespace(committed=None)

        monkeypatch.setattr(merging, "change_table", changed)
        save(frame, TABLE, layout="delta")
        assert seen["layout"] == "delta"

    def test_one_of_hadoops_committers_is_refused(self, frame: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"committer is magic.*Nothing was changed"):
            save(frame, TABLE, committer="magic")


class TestOptionsOfHadoopsWriter:
    @pytest.mark.parametrize(
        ("committer", "mode", "options", "message"),
        [
            ("directory", Mode.REPLACE, {CONFLICT_KEY: "append"}, "mode replace needs 'replace'"),
            ("partitioned", Mode.APPEND, {CONFLICT_KEY: "replace"}, "mode append needs 'append'"),
            ("partitioned", Mode.REPLACE, {OVERWRITE_OPTION: "static"}, "needs 'dynamic'"),
            ("magic", Mode.REPLACE, {"PartitionOverwriteMode": "STATIC"}, "needs 'dynamic'"),
            ("magic", Mode.APPEND, {UUID_KEY: "mine"}, "gives each job one of its own"),
            ("magic", Mode.APPEND, {REPORT_KEY: "s3a://bucket/r"}, "gives each job one of its own"),
            ("directory", Mode.APPEND, {UNIQUE_KEY: "false"}, "needs 'true'"),
        ],
    )
    def test_option_that_contradicts_what_save_sets_is_refused(
        self, committer: str, mode: Mode, options: dict[str, str], message: str
    ) -> None:
        """It was overwritten without a word."""
        writes = plan(Committer(committer), mode, ROOT, ("day",), DAYS)
        with pytest.raises(InvalidInputError, match=f"{message}.*nothing was written"):
            check_call_options(options, writes, mode, ("day",))

    @pytest.mark.parametrize(
        ("committer", "mode", "options"),
        [
            ("directory", Mode.REPLACE, {CONFLICT_KEY: "Replace", "compression": "zstd"}),
            ("magic", Mode.REPLACE, {OVERWRITE_OPTION: "dynamic", UNIQUE_KEY: "true"}),
            ("magic", Mode.APPEND, {OVERWRITE_OPTION: "static"}),
        ],
    )
    def test_option_that_says_what_save_does_passes(
        self, committer: str, mode: Mode, options: dict[str, str]
    ) -> None:
        writes = plan(Committer(committer), mode, ROOT, ("day",), DAYS)
        check_call_options(options, writes, mode, ("day",))
