"""Links on the pages of task instances."""

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

#: Key of the XCom with the address, on Airflow 2.11, which does not keep it itself.
CONSOLE_KEY = "s3_console"
_CONSOLE = "console.aws.amazon.com"
#: Consoles of partitions of AWS with accounts of their own, by what their regions begin with.
_CONSOLES = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}


class TableConsoleLink(BaseOperatorLink):
    """Link to the table's or partition's folder in the AWS console.

    Other stores have no console, so there is no link. The operator keeps the address in an
    attribute while it runs. Airflow asks for it in the same process after the task has ended, and
    keeps it as an XCom.
    """

    name = "S3 console"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or an empty text if there is none."""
        found = getattr(operator, "_console_url", None)
        return kept_link(ti_key, CONSOLE_KEY) if found is None else found

    @staticmethod
    def url(table: str, hook: ZeroRenameHook, partition: str | None = None) -> str:
        """Return the console's address of a table on AWS; empty for another endpoint.

        :param table: ``s3://bucket/prefix``.
        :param partition: link to the folder of this partition; ``None``: to the table's.
        """
        meta = hook.get_conn().meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            return ""
        bucket, _, prefix = table.removeprefix("s3://").partition("/")
        folder = prefix if partition is None else f"{prefix}/{partition}"
        region = meta.region_name or ""
        console = next(
            (it for begin, it in _CONSOLES.items() if region.startswith(begin)), _CONSOLE
        )
        where = f"&region={quote(region)}" if region else ""
        return f"https://{console}/s3/buckets/{quote(bucket)}?prefix={quote(folder)}/{where}"


class PartitionPageLink(BaseOperatorLink):
    """Link to the page of the partition that the task loads; for several, that of the table."""

    name = "Partition"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or an empty text if there is none."""
        return getattr(operator, "_page_url", "")


class ManifestLink(BaseOperatorLink):
    """Link to the manifest of the task's job: every committed file, with rows and checksum."""

    name = "Manifest"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or an empty text if nothing was committed."""
        return getattr(operator, "_manifest_url", "")


def link_to_table(
    operator: Any,
    ti: Any,
    hook: ZeroRenameHook,
    table: str,
    partitions: Sequence[str],
    has_page: bool,
) -> None:
    """Set the addresses that are known before a load, as attributes of its operator.

    :param ti: the running task's instance.
    :param table: ``s3://bucket/prefix``.
    :param partitions: those that it loads; empty for any.
    :param has_page: the table has a page; there is none for loads by Hadoop's committers.
    """
    one = partitions[0] if len(partitions) == 1 else None
    operator._console_url = TableConsoleLink.url(table, hook, one)
    keep_link(ti, CONSOLE_KEY, operator._console_url)
    if has_page:
        operator._page_url = _partition_page(hook.settings.conn_id, table, one)


def link_to_report(operator: Any, report: Mapping[str, Any], conn_id: str) -> None:
    """Set the addresses of a committed job, as attributes of its operator.

    They are those of its manifest, and of its partition as the table spells it.

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
