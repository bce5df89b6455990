"""Two S3 servers in memory: the one of tables, and a fast one in which their files lie first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from support.memory_s3 import MemoryS3, answering
from support.moto_server import S3Server


@dataclass
class FastStores:
    """A table's own store and a fast one, each a server of its own.

    :param fast_end: ends the fast server.
    """

    durable: S3Server
    fast: S3Server
    fast_end: contextlib.ExitStack

    @property
    def data_root(self) -> str:
        return f"s3://fast/scratch?endpoint={self.fast.endpoint}"

    @property
    def files(self) -> list[str]:
        """Keys of jobs' files in the fast bucket."""
        return [key for key in self.keys(self.fast, "fast") if not key.endswith("/_table.json")]

    def keys(self, server: S3Server, bucket: str) -> list[str]:
        listed = server.client().list_objects_v2(Bucket=bucket)
        return [item["Key"] for item in listed.get("Contents", ())]


@contextlib.contextmanager
def fast_stores() -> Iterator[FastStores]:
    """Start both, with a bucket each: ``bucket`` and ``fast``."""
    durable, fast = MemoryS3("http://durable.invalid"), MemoryS3("http://127.0.0.1:1")
    with answering(durable), contextlib.ExitStack() as end:
        end.enter_context(answering(fast))  # After its end nothing listens there.
        durable.client().create_bucket(Bucket="bucket")
        fast.client().create_bucket(Bucket="fast")
        yield FastStores(durable, fast, end)
