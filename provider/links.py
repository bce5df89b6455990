"""Links on task pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from .hooks import ZeroRenameHook


class TableConsoleLink(BaseOperatorLink):
    """The table's folder in the AWS console. Other stores have no console: no link there.

    The operator leaves the address on itself while it runs; Airflow asks for it in the same
    process after the task ended and keeps it as an XCom.
    """

    @property
    def name(self) -> str:
        return "S3 console"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or an empty text where there is none."""
        return getattr(operator, "_console_url", "")

    @staticmethod
    def url(table: str, hook: ZeroRenameHook) -> str:
        """The console's address of a table on AWS; empty for another endpoint.

        :param table: ``s3://bucket/prefix``.
        """
        meta = hook.get_conn().meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            return ""
        bucket, _, prefix = table.removeprefix("s3://").partition("/")
        where = f"&region={quote(meta.region_name)}" if meta.region_name else ""
        return (
            f"https://console.aws.amazon.com/s3/buckets/{quote(bucket)}"
            f"?prefix={quote(prefix)}/{where}"
        )
