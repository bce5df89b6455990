from __future__ import annotations

from types import SimpleNamespace

import pytest

from zero_rename.provider.links import TableConsoleLink


def hook(endpoint: str, region: str | None) -> SimpleNamespace:
    meta = SimpleNamespace(endpoint_url=endpoint, region_name=region)
    return SimpleNamespace(get_conn=lambda: SimpleNamespace(meta=meta))


@pytest.mark.parametrize(
    ("endpoint", "region", "url"),
    [
        (
            "https://s3.eu-west-1.amazonaws.com",
            "eu-west-1",
            "https://console.aws.amazon.com/s3/buckets/lake?prefix=wh/a%20b/&region=eu-west-1",
        ),
        (
            "https://s3.amazonaws.com",
            None,
            "https://console.aws.amazon.com/s3/buckets/lake?prefix=wh/a%20b/",
        ),
        ("http://127.0.0.1:9000", "us-east-1", ""),
        ("https://evil-amazonaws.com", "us-east-1", ""),
    ],
)
def test_the_consoles_address(endpoint: str, region: str | None, url: str) -> None:
    assert TableConsoleLink.url("s3://lake/wh/a b", hook(endpoint, region)) == url  # pyright: ignore


def test_the_operator_carries_it() -> None:
    link = TableConsoleLink()
    assert link.name == "S3 console"
    assert link.get_link(SimpleNamespace(_console_url="u"), ti_key=None) == "u"
    assert link.get_link(SimpleNamespace(), ti_key=None) == ""
