from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Connection

from zero_rename.committer import InvalidInputError
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.provider import get_provider_info
from zero_rename.provider.connection import ConnectionSettings, config_number
from zero_rename.s3a.hadoop.settings import COMMITTERS, check_committer


def connection(extra: dict[str, Any] | None = None, **fields: Any) -> SimpleNamespace:
    plain = {"conn_id": "zr", "conn_type": "zero_rename", "login": None, "password": None}
    said = extra or {}
    return SimpleNamespace(**plain | fields, extra=json.dumps(said), extra_dejson=said)


def test_an_empty_connection_has_the_defaults() -> None:
    form = {"table_root": "", "aws_conn_id": None, "on_conflict": ""}
    read = ConnectionSettings.from_connection(connection(form))
    assert read == ConnectionSettings(conn_id="zr")
    assert read.aws_conn_id == "aws_default"


def test_all_fields_of_the_form_are_read() -> None:
    extra = {
        "table_root": "s3://lake/warehouse",
        "aws_conn_id": "lake",
        "committer": "zero_rename",
        "on_conflict": "last_wins",
        "success_markers": "table",
        "data_root": "s3://fast/lake?endpoint=http://nvme.example:9000&profile=nvme",
        "encryption": "SSE-KMS alias/lake",
        "s3a_options": '{"storage_class": "glacier_ir"}',
        "catalog": "glue://lake",
        "purge_older_than_hours": "48",
        "max_recompute": "1800",
    }
    assert set(extra) == set(get_provider_info()["connection-types"][0]["conn-fields"])
    read = ConnectionSettings.from_connection(connection(extra))
    assert vars(read) == extra | {
        "conn_id": "zr",
        "exists": True,
        "purge_older_than_hours": 48.0,
        "max_recompute": 1800.0,
        "s3a_options": {"storage_class": "glacier_ir"},
        "data_root": FastRoot.parse(extra["data_root"]),
        "encryption": Encryption(Algorithm.SSE_KMS, "alias/lake"),
    }
    assert read.policies["encryption"] == read.encryption
    assert read.policies["data_root"] == FastRoot.parse(extra["data_root"])


@pytest.mark.parametrize(
    "extra",
    [
        {"aws_access_key_id": "x"},
        {"secret_key": "x"},
        {"fs.s3a.session.token": "x"},
        {"table_root": "s3://AKIAABCDEFGHIJKLMNOP:secret@bucket/t"},
        {"data_root": "s3://AKIAABCDEFGHIJKLMNOP:secret@fast/t"},
    ],
)
def test_keys_are_refused(extra: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="holds a credential") as caught:
        ConnectionSettings.from_connection(connection(extra))
    assert "AKIA" not in str(caught.value)
    assert "aws_conn_id" in str(caught.value)


@pytest.mark.parametrize("field", ["login", "password"])
def test_login_and_password_are_refused(field: str) -> None:
    with pytest.raises(InvalidInputError, match="login or password"):
        ConnectionSettings.from_connection(connection({}, **{field: "me"}))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"comitter": "zero_rename"}, "unknown field 'comitter'"),
        ({"readers": "heads"}, "unknown field 'readers'"),
        ({"on_conflict": "ignore"}, "on_conflict='ignore'"),
        ({"success_markers": "everywhere"}, "success_markers='everywhere'"),
        ({"committer": "magicv2"}, "In the connection 'zr': There is no committer 'magicv2'"),
        ({"s3a_options": "[1]"}, "Give a JSON object"),
        ({"s3a_options": "{"}, "Give a JSON object"),
        ({"s3a_options": {"encryption_key": "c2VjcmV0"}}, "holds a credential"),
        ({"catalog": "hive://lake/t"}, "In the connection 'zr': catalog='hive.*glue://database"),
        ({"purge_older_than_hours": "soon"}, "purge_older_than_hours='soon'"),
        ({"max_recompute": "soon"}, "max_recompute='soon'"),
        ({"max_recompute": 10**400}, "max_recompute=1000"),
        ({"purge_older_than_hours": "1e400"}, "purge_older_than_hours='1e400'"),
        ({"purge_older_than_hours": -1}, "purge_older_than_hours=-1"),
        ({"purge_older_than_hours": "nan"}, "purge_older_than_hours='nan'"),
        ({"purge_older_than_hours": True}, "purge_older_than_hours=True"),
        ({"table_root": "lake/warehouse"}, "'lake/warehouse', which is no place on S3"),
        ({"table_root": "s3://"}, "'s3://', which is no place on S3"),
        ({"table_root": "s3://lake/wh "}, "'s3://lake/wh ', which is no place on S3"),
        ({"table_root": 5}, "table_root=5, which is no text"),
        ({"data_root": 5}, "data_root=5, which is no text"),
        ({"data_root": "fast"}, "'zr' has data_root='fast', which is no data root"),
        ({"encryption": "rot13"}, "'zr' has encryption='rot13', which no store"),
        ({"encryption": "SSE-S3 alias/lake"}, "'SSE-S3 alias/lake', which no store"),
        ({"encryption": 5}, "encryption=5, which is no text"),
        ({"aws_conn_id": ["lake"]}, r"aws_conn_id=\['lake'\], which is no text"),
    ],
)
def test_other_values_are_refused(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ConnectionSettings.from_connection(connection(extra))


@pytest.mark.parametrize(
    "url", ["s3://fast/t?endpoint=http://me:hidden@x", "s3://fast/t?password=hidden"]
)
def test_a_data_root_with_a_password_is_refused_without_it(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ConnectionSettings.from_connection(connection({"data_root": url}))
    assert "hidden" not in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize("extra", ["{not json", '["s3://lake"]'])
def test_an_extra_that_cannot_be_read_is_no_policy(extra: str) -> None:
    """Airflow logs it and reads nothing: loads went on with the defaults."""
    with pytest.raises(InvalidInputError, match="extra is no JSON object"):
        ConnectionSettings.from_connection(
            Connection(conn_id="zr", conn_type="zero_rename", extra=extra)
        )


@pytest.mark.parametrize("extra", ["", "{}", "{ }\n"])
def test_an_empty_extra_says_nothing(extra: str) -> None:
    given = Connection(conn_id="zr", conn_type="zero_rename", extra=extra)
    assert ConnectionSettings.from_connection(given) == ConnectionSettings.from_extra({}, "zr")


@pytest.mark.parametrize("field", ["host", "schema"])
def test_a_table_root_in_another_field_is_refused(field: str) -> None:
    """As in ``zero_rename://lake/warehouse``."""
    with pytest.raises(InvalidInputError, match=f"has a {field}.*table_root"):
        ConnectionSettings.from_connection(connection({}, **{field: "lake"}))


def test_a_connection_by_its_url() -> None:
    uri = "zero-rename://?table_root=s3%3A%2F%2Flake%2Fwh&purge_older_than_hours=12"
    read = ConnectionSettings.from_connection(Connection.from_uri(uri, conn_id="zr"))
    assert (read.table_root, read.purge_older_than_hours) == ("s3://lake/wh", 12.0)


def test_another_connection_type_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="has the type 'aws'"):
        ConnectionSettings.from_connection(connection(conn_type="aws"))


@pytest.mark.parametrize(
    ("root", "table", "url"),
    [
        ("s3://lake/wh/", "flights", "s3://lake/wh/flights"),
        ("s3://lake/wh", "a/b/", "s3://lake/wh/a/b"),
        ("s3://lake/wh", " /flights ", "s3://lake/wh/flights"),
        ("s3://lake/wh", "s3://other/t", "s3://other/t"),
        (None, "s3://other/t", "s3://other/t"),
    ],
)
def test_table_names(root: str | None, table: str, url: str) -> None:
    assert ConnectionSettings(table_root=root).table_url(table) == url


@pytest.mark.parametrize("table", ["", " ", "/", "None", "a/None", "a//b", "..", "s3://b/None"])
def test_names_of_no_table(table: str) -> None:
    """The table root itself, or what a template without a value renders to."""
    with pytest.raises(InvalidInputError, match="names no table; nothing was read or written"):
        ConnectionSettings(table_root="s3://lake/wh").table_url(table)


def test_a_relative_name_needs_a_root() -> None:
    with pytest.raises(InvalidInputError, match="no table root"):
        ConnectionSettings().table_url("flights")


def test_committers() -> None:
    names = ["zero_rename", "magic", "directory", "partitioned"]
    assert [check_committer(name) for name in COMMITTERS] == names
    (kind,) = get_provider_info()["connection-types"]
    assert kind["conn-fields"]["committer"]["schema"]["enum"] == names
    with pytest.raises(InvalidInputError, match="There is no committer 'rename'"):
        check_committer("rename")


def test_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_number("purge_floor_hours") == 24.0
    monkeypatch.setenv("AIRFLOW__ZERO_RENAME__PURGE_FLOOR_HOURS", "1.5")
    assert config_number("purge_floor_hours") == 1.5
    monkeypatch.setenv("AIRFLOW__ZERO_RENAME__PURGE_FLOOR_HOURS", "a day")
    with pytest.raises(InvalidInputError, match="purge_floor_hours = 'a day'"):
        config_number("purge_floor_hours")
