"""Lifecycle rules and disks, as the checks get them."""

from __future__ import annotations

import shutil
from math import inf
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from zero_rename.committer import TableRoot
from zero_rename.s3a.checks.host_facts import buffer_facts, least_days, lifecycle_days
from zero_rename.s3a.hadoop.effective_settings import DAG_CONF, effective

ROOT = TableRoot("bucket", "tables/flights")


def rule(days: int | None, **where: object) -> dict:
    abort = (
        {} if days is None else {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}}
    )
    return {"Status": "Enabled", **abort, **where}


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        ([], inf),
        ([rule(7, Prefix="")], 7),
        ([rule(7, Filter={}), rule(2, Filter={"Prefix": "tables/"})], 2),
        ([rule(1, Filter={"And": {"Prefix": "tables/flights/day=1"}})], 1),
        ([rule(1, Filter={"Prefix": "tables/flights_old/"}), rule(9, Prefix="other/")], inf),
        ([rule(None, Prefix="")], inf),
    ],
)
def test_least_days(rules: list, days: float) -> None:
    assert least_days(rules, ROOT) == days


class Client:
    def __init__(self, rules: list) -> None:
        self.rules = rules

    def get_bucket_lifecycle_configuration(self, **_: str) -> dict:
        return {"Rules": self.rules}


def test_disabled_rules_do_not_count() -> None:
    rules = [{**rule(1, Prefix=""), "Status": "Disabled"}, rule(3, Prefix="tables")]
    assert lifecycle_days(Client(rules), ROOT) == 3


def test_rules_that_the_store_does_not_tell() -> None:
    class Mute:
        def get_bucket_lifecycle_configuration(self, **_: str) -> dict:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetBucketLifecycle")

    assert lifecycle_days(Mute(), ROOT) is None
    assert lifecycle_days(Client([]), ROOT) == inf


def settings(folder: str) -> dict:
    return dict(effective([(DAG_CONF, {"spark.hadoop.fs.s3a.buffer.dir": folder})]))


def test_room_and_rights_of_buffer_folders(tmp_path: Path) -> None:
    mine, open_to_all = tmp_path / "mine", tmp_path / "open"
    mine.mkdir(mode=0o700)
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    free, shared = buffer_facts(settings(f"{mine}, {open_to_all}/s3a,{mine}/later/s3a"))
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert shared == (f"{open_to_all}/s3a",)
    open_to_all.chmod(0o1777)
    assert buffer_facts(settings(f"{open_to_all}/s3a"))[1] == ()
    assert buffer_facts(settings(f"{open_to_all}"))[1] == (str(open_to_all),)


def test_variables_are_put_in_as_hadoop_does(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    given = settings("${env.LOCAL_DIRS:-${hadoop.tmp.dir}}/s3a")
    assert buffer_facts(given, {"LOCAL_DIRS": str(tmp_path)})[1] == (f"{tmp_path}/s3a",)
    free, shared = buffer_facts(given, {})  # /tmp/hadoop-<user>/s3a, below a sticky /tmp
    assert free is not None
    assert shared == ()


def test_what_cannot_be_told_is_left_out() -> None:
    assert buffer_facts(settings("${some.where.else}/s3a,relative/path"), {}) == (None, ())
