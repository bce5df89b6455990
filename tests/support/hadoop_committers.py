"""Spark with Hadoop's own S3A committers, one JVM for all cases, on a real S3 server.

Which committer a write uses, and all it is told, are settings of the session that reach the
write's Hadoop configuration, so that one JVM serves every case. What an S3A file system is told
when it is made is kept with it, by bucket: cases about that need a bucket of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pyspark
from torture.servers import Store

from support.plain_bucket import PlainBucket
from support.spark import SETTINGS
from tools.s3a_class_archive import class_path, jvm_flags
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.driver import BotoDriver, connect
from zero_rename.s3a.hadoop.settings import (
    ALGORITHM_KEY,
    FACTORY_KEY,
    MAGIC_KEY,
    NAME_KEY,
    REJECT_KEY,
    S3A_FACTORY,
    SQL_PROTOCOL,
    Committer,
    S3ASettings,
)
from zero_rename.s3a.verification.verify import Expectation, Verified, verify_job
from zero_rename.spark.startup.launch import worker_python

_numbers = itertools.count(1)
COMMITTERS = tuple(Committer)
#: Spark's own, which renames: for what it does to a table, and to compare with.
RENAMING = {
    "spark.sql.sources.commitProtocolClass": SQL_PROTOCOL,
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    FACTORY_KEY: S3A_FACTORY,
    NAME_KEY: "file",
    # Else Spark chooses magic by itself (SPARK-47618).
    MAGIC_KEY: "false",
    ALGORITHM_KEY: "1",
    REJECT_KEY: "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}


def static_settings(store: Store, jars: tuple[Path, ...], folder: Path) -> dict[str, str]:
    """What a session must be started with: jars, the store, folders that are thrown away."""
    path = class_path(jars)
    return SETTINGS | {
        # `spark.jars` would copy them, 700 MB, for every session.
        "spark.driver.extraClassPath": path,
        "spark.driver.extraJavaOptions": jvm_flags(path),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.hadoop.tmp.dir": str(folder / "hadoop"),
        "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{folder}/staging",
        "spark.hadoop.fs.s3a.endpoint": store.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        # A case that is meant to fail says so at once.
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
        "spark.hadoop.fs.s3a.retry.limit": "2",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
    }


def environment(store: Store) -> dict[str, str]:
    """Variables for a process that starts such a session."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
    return kept | store.environment() | own


def write_spark_submit(folder: Path, conf: Mapping[str, str]) -> Path:
    """Write a ``spark-submit`` that gives settings as words, and passes ``SPARK_CONF_DIR`` over.

    No archive of classes fits a class path with a folder in it.

    :return: the folder to put first on ``PATH``.
    """
    words = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    script = folder / "spark-submit"
    script.write_text(f'#!/bin/sh\nunset SPARK_CONF_DIR\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return folder


@dataclass(frozen=True)
class Place:
    """A destination nobody else uses."""

    client: Any
    bucket: str
    prefix: str
    environ: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"s3a://{self.bucket}/{self.prefix}"

    @property
    def root(self) -> TableRoot:
        return TableRoot(self.bucket, self.prefix)

    @property
    def driver(self) -> BotoDriver:
        return connect(self.bucket, self.client)

    def below(self, path: str) -> Place:
        return replace(self, prefix=f"{self.prefix}/{path}")

    @property
    def _whole(self) -> PlainBucket:
        return PlainBucket(self.bucket, self.client)

    def objects(self, below: str = "") -> list[str]:
        """Keys relative to the destination, hidden ones and directory markers too."""
        return [key[len(self.prefix) + 1 :] for key in self._whole.keys(f"{self.prefix}/{below}")]

    def files(self, below: str = "") -> list[str]:
        """Data files, as readers that list see them."""
        paths = [key for key in self.objects(below) if key and not key.endswith("/")]
        return [p for p in paths if not any(part[0] in "_." for part in p.split("/"))]

    def uploads(self) -> list[str]:
        """Keys of the uploads below the destination."""
        return self._whole.uploads(f"{self.prefix}/")

    def body(self, path: str) -> bytes:
        return self._whole.read(f"{self.prefix}/{path}")

    def put(self, path: str, body: bytes = b"") -> None:
        self._whole.put(f"{self.prefix}/{path}", body)

    def has(self, path: str) -> bool:
        return path in self.objects(path)

    def marker(self) -> dict[str, Any]:
        return json.loads(self.body("_SUCCESS"))

    def now_ms(self) -> int:
        """The store's clock."""
        answer = self.client.head_bucket(Bucket=self.bucket)["ResponseMetadata"]
        date = parsedate_to_datetime(answer["HTTPHeaders"]["date"])
        return int(date.timestamp() * 1000)

    def later_ms(self) -> int:
        """The store's clock once it shows a second after all that is there.

        Listings have whole seconds, and a server may renew the time it tells once a second only.
        """
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{self.prefix}/")
        newest = max(item["LastModified"].timestamp() for item in listed["Contents"])
        while (now := self.now_ms()) < (int(newest) + 1) * 1000:
            pass
        return now

    def upload(self, path: str) -> str:
        """Another's upload under way: its id."""
        key = f"{self.prefix}/{path}"
        created = self.client.create_multipart_upload(Bucket=self.bucket, Key=key)
        return created["UploadId"]

    def abort_uploads(self) -> None:
        self._whole.abort_uploads()

    def verify(self, committer: str, uuid: str | None, since_ms: int, **given: Any) -> Verified:
        step = verify_job(self.root, Expectation(committer, uuid, since_ms), **given)
        return self.driver.run(step)


@contextlib.contextmanager
def set_in(spark: Any, settings: Mapping[str, str | None]) -> Iterator[None]:
    """A session with these settings, ``spark.hadoop.`` left away; ``None`` unsets."""
    named = {key.removeprefix("spark.hadoop."): value for key, value in settings.items()}
    before = {key: spark.conf.get(key, None) for key in named}

    def apply(settings: Mapping[str, str | None]) -> None:
        for key, value in settings.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)

    try:
        apply(named)
        yield
    finally:
        apply(before)


class Application:
    """The shared session, and the store it writes to."""

    def __init__(self, spark: Any, store: Store, folder: Path) -> None:
        self.spark = spark
        self.store = store
        self.folder = folder
        self.client = store.client()
        self._bucket = self.new_bucket()

    def new_bucket(self) -> str:
        name = f"s3a-{os.getpid()}-{next(_numbers)}"
        self.client.create_bucket(Bucket=name)
        return name

    def place(self, bucket: str | None = None) -> Place:
        """An empty destination; in a bucket with a file system of its own if one is given."""
        prefix = f"tables/t{next(_numbers)}"
        return Place(self.client, bucket or self._bucket, prefix, self.store.environment())

    def set(self, settings: Mapping[str, str | None]) -> contextlib.AbstractContextManager[None]:
        """The session with these settings, as :func:`set_in` has them."""
        return set_in(self.spark, settings)

    def with_committer(
        self, committer: str, overrides: Mapping[str, str | None] | None = None, **given: Any
    ) -> contextlib.AbstractContextManager[None]:
        """The session as :class:`S3ASettings` has it, with overrides.

        :param given: more of the settings' arguments.
        """
        conf: dict[str, str | None] = dict(S3ASettings(Committer(committer), **given).spark_conf())
        return self.set(conf | dict(overrides or {}))

    def frame(self, first: int, rows: int = 40, days: int = 2, files: int = 2) -> Any:
        """Rows ``first`` … with their number and a day, 1 … ``days``; every file has each day."""
        return self.spark.range(first, first + rows, 1, files).selectExpr(
            "id", f"cast(id % {days} + 1 as int) as day"
        )

    def write(
        self,
        place: Place,
        frame: Any,
        mode: str = "append",
        partition_by: tuple[str, ...] = ("day",),
        format: str = "parquet",
        **options: str,
    ) -> None:
        frame.write.format(format).mode(mode).partitionBy(*partition_by).options(**options).save(
            place.url
        )

    def failing(self, frame: Any, number: int) -> Any:
        """The frame, with a task that fails at the row of that number."""
        raises = f"cast(raise_error('row {number}') as bigint)"
        return frame.selectExpr(f"if(id = {number}, {raises}, id) as id", "day")

    def rows(self, place: Place) -> list[tuple[int, int]]:
        """All rows as Spark reads them through S3A, sorted."""
        read = self.spark.read.schema("id bigint, day int").parquet(place.url)
        return sorted((row.id, row.day) for row in read.collect())


class OnAnotherStore(Application):
    """The shared session, on a store that it was not started with."""

    def new_bucket(self) -> str:
        name = super().new_bucket()
        self.spark.conf.set(f"fs.s3a.bucket.{name}.endpoint", self.store.endpoint)
        return name


def numbers(*ranges: range, days: int = 2) -> list[tuple[int, int]]:
    """The rows of frames that begin and end there."""
    return sorted((number, number % days + 1) for one in ranges for number in one)
