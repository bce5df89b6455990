"""Links on task pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import BaseOperatorLink

from ..committer.format.layout import UNPARTITIONED, is_job_id
from .compat import keep_link, kept_link
from .page.addresses import page_address

if TYPE_CHECKING:
    from .hooks import ZeroRenameHook

#: The XCom that has the address where Airflow does not keep it itself.
CONSOLE_KEY = "s3_console"


class TableConsoleLink(BaseOperatorLink):
    """The table's or partition's folder in the AWS console. Other stores have no console: no link
    there.

    The operator leaves the address on itself while it runs; Airflow asks for it in the same
    process after the task ended and keeps it as an XCom.
    """

    name = "S3 console"  # pyright: ignore

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or an empty text where there is none."""
        found = getattr(operator, "_console_url", None)
        return kept_link(ti_key, CONSOLE_KEY) if found is None else found

    @staticmethod
    def url(table: str, hook: ZeroRenameHook, partition: str | None = None) -> str:
        """The console's address of a table on AWS; empty for another endpoint.

        :param table: ``s3://bucket/prefix``.
        :param partition: of this one of its folders.
        """
        meta = hook.get_conn().meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            return ""
        bucket, _, prefix = table.removeprefix("s3://").partition("/")
        folder = prefix if partition is None else f"{prefix}/{partition}"
        where = f"&region={quote(meta.region_name)}" if meta.region_name else ""
        return (
            f"https://console.aws.amazon.com/s3/buckets/{quote(bucket)}"
            f"?prefix={quote(folder)}/{where}"
        )


class PartitionPageLink(BaseOperatorLink):
    """The page of the partition that the task loads, or of its table where it loads several."""

    name = "Partition"  # pyright: ignore

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or an empty text where there is none."""
        return getattr(operator, "_page_url", "")


class ManifestLink(BaseOperatorLink):
    """What the task's job committed: every file, with rows and checksum."""

    name = "Manifest"  # pyright: ignore

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address; an empty text where nothing was committed."""
        return getattr(operator, "_manifest_url", "")


def link_to_table(
    operator: Any,
    ti: Any,
    hook: ZeroRenameHook,
    table: str,
    partitions: Sequence[str],
    has_page: bool,
) -> None:
    """Leave the addresses that are known before a load on its operator.

    :param ti: the running task's instance.
    :param table: ``s3://bucket/prefix``.
    :param partitions: that it loads; none for any.
    :param has_page: whether the page can tell of it: not of what Hadoop's committers write.
    """
    one = partitions[0] if len(partitions) == 1 else None
    operator._console_url = TableConsoleLink.url(table, hook, one)
    keep_link(ti, CONSOLE_KEY, operator._console_url)
    if has_page:
        operator._page_url = _partition_page(hook.settings.conn_id, table, one)


def link_to_report(operator: Any, report: Mapping[str, Any], conn_id: str) -> None:
    """Leave the addresses that a committed job has on its operator: of its manifest, and of its
    partition as the table spells it.

    :param report: :func:`.orchestration.runs.reports.commit_report`.
    """
    if not is_job_id(report["job"]):
        return
    names = [it["partition"] for it in report["partitions"]]
    one = names[0] if len(names) == 1 and names[0] != UNPARTITIONED else None
    operator._page_url = _partition_page(conn_id, report["table"], one)
    operator._manifest_url = page_address(
        _base_url(), "job", conn=conn_id, table=report["table"], job=report["job"]
    )


def _partition_page(conn_id: str, table: str, partition: str | None) -> str:
    if partition is None:
        return page_address(_base_url(), "table", conn=conn_id, table=table)
    return page_address(_base_url(), "partition", conn=conn_id, table=table, partition=partition)


def _base_url() -> str:
    return conf.get("api", "base_url", fallback="") or ""
