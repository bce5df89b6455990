"""Lifecycle rules as S3 and other stores describe them."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from support.faulty_server import FaultyServer, s3_error
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.committer.store.lifecycle import LifecycleRule, least_abort_days
from zero_rename.committer.store.requests import LifecycleRules, ListLifecycleRules, Unknown

FOLDER = "tables/flights/"


def rule(days: int | None, **where: object) -> LifecycleRule:
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}} if days else {}
    return LifecycleRule.of({"Status": "Enabled", **abort, **where})


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
def test_the_least_days_of_a_folder(rules: list[LifecycleRule], days: float) -> None:
    assert least_abort_days(rules, FOLDER) == days


def test_a_rule_without_a_name_is_named_by_its_prefix() -> None:
    assert rule(1, Prefix="tmp/").name == "rule for 'tmp/'"
    assert rule(1, Prefix="tmp/", ID="cleanup").name == "cleanup"


def test_a_buckets_enabled_rules(driver: BotoDriver, s3_client: Any) -> None:
    assert driver.run(ListLifecycleRules()) == LifecycleRules()
    rules = [
        {"ID": name, "Status": status, "Filter": {"Prefix": "a/"}, **what}
        for name, status, what in (
            ("abort", "Enabled", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}}),
            ("off", "Disabled", {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}),
            ("expire", "Enabled", {"Expiration": {"Days": 9}}),
        )
    ]
    s3_client.put_bucket_lifecycle_configuration(
        Bucket=driver.bucket, LifecycleConfiguration={"Rules": rules}
    )
    assert driver.run(ListLifecycleRules()) == LifecycleRules(
        (
            LifecycleRule("abort", "a/", abort_days=2),
            LifecycleRule("expire", "a/", expires=True),
        )
    )


@pytest.mark.parametrize(
    ("status", "code", "answer"),
    [
        (404, "NoSuchLifecycleConfiguration", LifecycleRules()),
        (501, "NotImplemented", LifecycleRules()),
        (403, "AccessDenied", Unknown("403 AccessDenied")),
        (404, "NoSuchBucket", Unknown("404 NoSuchBucket")),
    ],
)
@pytest.mark.usefixtures("s3_env")
def test_a_store_without_rules_has_none_and_one_that_refuses_does_not_tell(
    status: int, code: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyServer(lambda *_: s3_error(status, code)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        assert connect("bucket").run(ListLifecycleRules()) == answer
