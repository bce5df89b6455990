from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zero_rename.committer.format.layout import UNPARTITIONED, new_job_id
from zero_rename.provider.links import (
    ManifestLink,
    PartitionPageLink,
    TableConsoleLink,
    link_to_report,
    link_to_table,
)
from zero_rename.provider.page.addresses import page_address

CONSOLE = "https://console.aws.amazon.com/s3/buckets/lake?prefix=wh/"


def hook(endpoint: str, region: str | None) -> SimpleNamespace:
    meta = SimpleNamespace(endpoint_url=endpoint, region_name=region)
    return SimpleNamespace(get_conn=lambda: SimpleNamespace(meta=meta))


@pytest.mark.parametrize(
    ("endpoint", "region", "url"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "eu-west-1", f"{CONSOLE}a%20b/&region=eu-west-1"),
        (
            "https://s3.cn-north-1.amazonaws.com.cn",
            "cn-north-1",
            "https://console.amazonaws.cn/s3/buckets/lake?prefix=wh/a%20b/&region=cn-north-1",
        ),
        (
            "https://s3.us-gov-west-1.amazonaws.com",
            "us-gov-west-1",
            "https://console.amazonaws-us-gov.com/s3/buckets/lake"
            "?prefix=wh/a%20b/&region=us-gov-west-1",
        ),
        ("https://s3.amazonaws.com", None, f"{CONSOLE}a%20b/"),
        ("http://127.0.0.1:9000", "us-east-1", ""),
        ("https://evil-amazonaws.com", "us-east-1", ""),
    ],
)
def test_the_consoles_address(endpoint: str, region: str | None, url: str) -> None:
    assert TableConsoleLink.url("s3://lake/wh/a b", hook(endpoint, region)) == url  # pyrefly: ignore[bad-argument-type]


def test_the_consoles_address_of_a_partition() -> None:
    aws = hook("https://s3.amazonaws.com", None)
    found = TableConsoleLink.url("s3://lake/wh/flights", aws, "city=a%2Fb/day=1")  # pyrefly: ignore[bad-argument-type]
    assert found.endswith("?prefix=wh/flights/city%3Da%252Fb/day%3D1/")


LINKS = (PartitionPageLink(), ManifestLink(), TableConsoleLink())


def links(operator: SimpleNamespace) -> list[str]:
    return [link.get_link(operator, ti_key=None) for link in LINKS]


def test_the_operator_carries_them() -> None:
    assert [link.name for link in LINKS] == ["Partition", "Manifest", "S3 console"]
    assert links(SimpleNamespace()) == ["", "", ""]
    kept = SimpleNamespace(_page_url="p", _manifest_url="m", _console_url="c")
    assert links(kept) == ["p", "m", "c"]


def loaded(*partitions: str, **policy: Any) -> SimpleNamespace:
    operator = SimpleNamespace()
    store = hook("https://s3.amazonaws.com", None)
    store.settings = SimpleNamespace(conn_id="lake")
    ti = SimpleNamespace()
    link_to_table(operator, ti, store, "s3://lake/wh/t", partitions, **policy)  # pyrefly: ignore[bad-argument-type]
    return operator


PAGE = "/plugin/zero-rename/zero-rename"
TABLE = "conn=lake&table=s3%3A%2F%2Flake%2Fwh%2Ft"


def test_before_the_load_the_page_of_its_partition() -> None:
    one = f"{PAGE}/partition?{TABLE}&partition=day%3D1"
    assert links(loaded("day=1", has_page=True)) == [one, "", f"{CONSOLE}t/day%3D1/"]
    assert links(loaded("day=1", "day=2", has_page=True))[0] == f"{PAGE}/table?{TABLE}"


def test_no_page_of_what_hadoops_committers_write() -> None:
    operator = loaded("day=1", has_page=False)
    link_to_report(operator, {"job": "5a7f", "table": "s3://lake/wh/t", "partitions": []}, "lake")
    assert links(operator)[:2] == ["", ""]


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (["day=1"], f"partition?{TABLE}&partition=day%3D1"),
        (["day=1", "day=2"], f"table?{TABLE}"),
        ([UNPARTITIONED], f"table?{TABLE}"),
    ],
)
def test_after_it_the_partition_as_the_table_spells_it_and_the_manifest(
    names: list[str], place: str
) -> None:
    operator, job = loaded("day=01", has_page=True), new_job_id()
    partitions = [{"partition": name} for name in names]
    report = {"job": job, "table": "s3://lake/wh/t", "partitions": partitions}
    link_to_report(operator, report, "lake")
    assert links(operator)[:2] == [f"{PAGE}/{place}", f"{PAGE}/job?{TABLE}&job={job}"]


@pytest.mark.parametrize(
    ("base_url", "begins"),
    [
        ("http://localhost:8080", "http://localhost:8080/plugin/zero-rename/zero-rename/job?"),
        ("https://x.com/air/", "https://x.com/air/plugin/zero-rename/air/zero-rename/job?"),
        ("/", "/plugin/zero-rename/zero-rename/job?"),
    ],
)
def test_wherever_airflow_is_mounted(base_url: str, begins: str) -> None:
    assert page_address(base_url, "job", job="j") == f"{begins}job=j"
