"""A store of its own for Hadoop's committers: Ceph refuses what S3A sends over plain HTTP. What a
task asks of it goes through a proxy, which can hold a job at its commit."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torture.proxy import Proxy, Seen, fair
from torture.servers import Store

from airflow_life.rows import path_of
from support.plain_bucket import PlainBucket
from support.request_gate import Gate
from tools.fetch_s3a_jars import cached_jars
from tools.server_process import ServerError
from zero_rename.committer import Table
from zero_rename.committer.format.layout import TableRoot

CONN_ID, _AWS_CONN_ID = "zero_rename_hadoop", "aws_hadoop"


@dataclass(frozen=True)
class HadoopStore:
    """A bucket, and the connections that lead to it.

    :param store: the server itself.
    :param proxy: the way by which tasks reach it.
    """

    store: Store
    proxy: Proxy
    bucket: str

    def jars(self) -> str:
        """Return the class path of Hadoop's jars.

        :raises ServerError: Hadoop's jars are not there.
        """
        jars = cached_jars()
        if jars is None:
            raise ServerError("Hadoop's jars are not there, and nothing ran. Run make s3a-jars.")
        return os.pathsep.join(map(str, jars))

    def variables(self) -> dict[str, str]:
        """Return Airflow's connections, and the setting that lets uploads of any age be purged."""
        keys = self.store.variables
        aws = {
            "conn_type": "aws",
            "login": keys["AWS_ACCESS_KEY_ID"],
            "password": keys["AWS_SECRET_ACCESS_KEY"],
            "extra": {"endpoint_url": self.proxy.endpoint, "region_name": keys["AWS_REGION"]},
        }
        root = {"table_root": f"s3://{self.bucket}/warehouse", "aws_conn_id": _AWS_CONN_ID}
        connections: Mapping[str, Any] = {
            _AWS_CONN_ID: aws,
            CONN_ID: {"conn_type": "zero_rename", "extra": root},
        }
        named = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(it) for name, it in connections.items()}
        return {**named, "AIRFLOW__ZERO_RENAME__PURGE_FLOOR_HOURS": "0"}

    def table(self, name: str) -> Table:
        """Open a table below the connection's root."""
        return Table(f"s3://{self.bucket}/warehouse/{name}", client=self.store.client())

    def uploads(self, root: TableRoot) -> list[str]:
        """List the keys of the uploads under way below a table, sorted."""
        whole = PlainBucket(self.bucket, self.store.client())
        return sorted(whole.uploads(f"{root.prefix}/"))

    def leave_upload(self, root: TableRoot) -> str:
        """Begin an upload below a table, and leave it to nobody. Returns its key."""
        key = f"{root.prefix}/{path_of('2013-02-28')}/left.parquet"
        self.store.client().create_multipart_upload(Bucket=self.bucket, Key=key)
        return key

    @contextlib.contextmanager
    def held(self, root: TableRoot) -> Iterator[Gate]:
        """Hold each job of a table at the first completion of an upload, within the block."""

        def completes(seen: Seen) -> bool:
            return seen.operation == "CompleteMultipartUpload" and seen.key.startswith(
                f"{root.prefix}/"
            )

        gate = Gate(completes)
        self.proxy.faults = gate
        try:
            yield gate
        finally:
            gate.open.set()
            self.proxy.faults = fair


@contextlib.contextmanager
def hadoop_store(store: Store, bucket: str) -> Iterator[HadoopStore]:
    """Make a bucket on a server, and a proxy before that."""
    store.client().create_bucket(Bucket=bucket)
    with Proxy(store.endpoint) as proxy:
        yield HadoopStore(store, proxy, bucket)
