"""Lifecycle rules as S3 and other stores describe them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.faulty_server import FaultyServer, Received, Reply, always, s3_error
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.lifecycle import LifecycleRule
from zero_rename.committer.store.requests import (
    LifecycleRules,
    ListLifecycleRules,
    PutLifecycleRule,
    Unknown,
)

FOLDER = "tables/flights/"


def rule(days: int | None, **where: object) -> LifecycleRule:
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}} if days else {}
    return LifecycleRule.of({"Status": "Enabled", **abort, **where})


@pytest.mark.parametrize(
    ("found", "days", "concerned"),
    [
        (rule(7, Prefix=""), 7, True),
        (rule(7, Filter={}), 7, True),
        (rule(2, Filter={"Prefix": "tables/"}), 2, True),
        (rule(1, Filter={"And": {"Prefix": "tables/flights/day=1"}}), 1, True),
        (rule(1, Filter={"Prefix": "tables/flights_old/"}), 1, False),
        (rule(9, Prefix="other/"), 9, False),
        (rule(None, Prefix=""), None, True),
    ],
)
def test_the_days_of_a_folder(found: LifecycleRule, days: int | None, concerned: bool) -> None:
    assert (found.abort_days, found.concerns(FOLDER)) == (days, concerned)


def test_a_rule_without_a_name_is_named_by_its_prefix() -> None:
    assert rule(1, Prefix="tmp/").name == "rule for 'tmp/'"
    assert rule(1, Prefix="tmp/", ID="cleanup").name == "cleanup"


TAGGED = {"Tag": {"Key": "kind", "Value": "scratch"}}


@pytest.mark.parametrize(
    ("where", "tags", "concerned"),
    [
        (TAGGED, {}, False),
        (TAGGED, {"kind": "kept"}, False),
        (TAGGED, {"kind": "scratch", "of": "me"}, True),
        ({"And": {"Prefix": "tables/", "Tags": [TAGGED["Tag"]]}}, {}, False),
        ({"And": {"Prefix": "tables/", "Tags": [TAGGED["Tag"]]}}, {"kind": "scratch"}, True),
        ({"And": {"Prefix": "tables/", "Tags": []}}, {}, True),
        ({"ObjectSizeGreaterThan": 10**9}, {}, True),
        ({"ObjectSizeLessThan": 500}, {}, True),
        ({"ObjectSizeLessThan": 1}, {}, False),
        ({"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 10}}, {}, False),
        ({"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 11}}, {}, True),
    ],
)
def test_a_rule_of_some_tags_or_sizes_concerns_what_has_these(
    where: Any, tags: dict[str, str], concerned: bool
) -> None:
    """Records and files may have any size but none; tags are those that a job gives its files."""
    assert rule(1, Filter=where).concerns(FOLDER, tags) is concerned


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
            LifecycleRule("expire", "a/", expires=True, expire_days=9),
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
def test_a_store_without_rules_has_none_and_one_that_refuses_does_not_tell(
    status: int, code: str, answer: Any, at: Any
) -> None:
    with FaultyServer(always(s3_error(status, code))) as server:
        assert at(server.endpoint).run(ListLifecycleRules()) == answer


@pytest.mark.parametrize("smallest", ["varies_by_storage_class", None])
def test_rule_is_added_without_a_change_of_what_holds_for_all_rules(
    smallest: str | None, at: Any
) -> None:
    """S3 takes its present default for a list that is written without the size."""
    name = "x-amz-transition-default-minimum-object-size"
    theirs = (
        b"<LifecycleConfiguration><Rule><ID>theirs</ID><Status>Enabled</Status>"
        b"<Filter><Prefix>a/</Prefix></Filter><Transition><Days>1</Days>"
        b"<StorageClass>GLACIER</StorageClass></Transition></Rule></LifecycleConfiguration>"
    )
    said = {} if smallest is None else {name: smallest}
    written: list[Received] = []

    def answer(request: Received, _: Callable[[], Reply]) -> Reply:
        if request.method == "GET":
            return Reply(200, theirs, said)
        written.append(request)
        return Reply(200)

    with FaultyServer(answer) as server:
        rule_of_ours = LifecycleRule("ours", "b/", abort_days=3)
        at(server.endpoint).run(PutLifecycleRule(rule_of_ours))
    (put,) = written
    assert put.headers.get(name) == smallest
    assert b"<ID>theirs</ID>" in put.body
    assert b"<ID>ours</ID>" in put.body
