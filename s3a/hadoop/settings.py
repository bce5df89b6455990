"""The Spark and Hadoop settings of a committer, chosen by one word.

Every key that decides whether rows are right is set, even to its default value. So
``spark-defaults.conf`` or ``core-site.xml`` cannot half-configure a committer. ``docs/s3a.md`` has
the tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ...committer.errors import InvalidInputError, names_user
from ...committer.format.job_spec import Mode
from ...committer.format.records.success_marker import COMMITTER as NATIVE
from ...committer.store.lifecycle import ARCHIVES

#: Hadoop's factory, which reads ``fs.s3a.committer.name`` (``S3ACommitterFactory``).
S3A_FACTORY = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
#: Spark's two binding classes, in the module ``spark-hadoop-cloud``.
PATH_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
BINDING_PARQUET = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
#: The protocol that Spark uses without them.
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
#: No such algorithm exists: a ``FileOutputCommitter`` that is made by mistake refuses to work.
TRIPWIRE_ALGORITHM = "10"

COMMIT_PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
PARQUET_COMMITTER_KEY = "spark.sql.parquet.output.committer.class"
PARTITION_OVERWRITE_KEY = "spark.sql.sources.partitionOverwriteMode"
NAME_KEY = "fs.s3a.committer.name"
FACTORY_KEY = "mapreduce.outputcommitter.factory.scheme.s3a"
FACTORY_CLASS_KEY = "mapreduce.outputcommitter.factory.class"
MAGIC_KEY = "fs.s3a.committer.magic.enabled"
ALGORITHM_KEY = "mapreduce.fileoutputcommitter.algorithm.version"
REJECT_KEY = "pathoutputcommit.reject.fileoutput"
MARKER_KEY = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
ABORT_UPLOADS_KEY = "fs.s3a.committer.abort.pending.uploads"
CONFLICT_KEY = "fs.s3a.committer.staging.conflict-mode"
UNIQUE_KEY = "fs.s3a.committer.staging.unique-filenames"
STAGING_KEY = "fs.s3a.committer.staging.tmp.path"
UUID_KEY = "fs.s3a.committer.uuid"
REPORT_KEY = "fs.s3a.committer.summary.report.directory"
IN_MEMORY_KEY = "fs.s3a.committer.magic.track.commits.in.memory.enabled"
PURGE_KEY = "fs.s3a.multipart.purge"
DIRECTORY_PURGE_KEY = "fs.s3a.directory.operations.purge.uploads"
APP_ATTEMPTS_KEY = "spark.yarn.maxAppAttempts"

#: The staging committers' conflict mode for each mode of a load.
CONFLICT_MODE_OF: Mapping[Mode, str] = {
    Mode.FAIL_IF_EXISTS: "fail",
    Mode.APPEND: "append",
    Mode.REPLACE: "replace",
}
_ENCRYPTION = {"SSE-S3": "AES256", "SSE-KMS": "SSE-KMS", "DSSE-KMS": "DSSE-KMS"}


class Committer(StrEnum):
    """Hadoop's committers, which run in the JVM. This project's own, ``zero_rename``, does not."""

    MAGIC = "magic"
    DIRECTORY = "directory"
    PARTITIONED = "partitioned"

    @property
    def is_staging(self) -> bool:
        """True if it is one of :data:`STAGING`."""
        return self in STAGING


#: The committers whose tasks write to local disk and upload when they commit.
STAGING = (Committer.DIRECTORY, Committer.PARTITIONED)
#: All words: this project's own committer, and Hadoop's.
COMMITTERS = (NATIVE, *Committer)


@dataclass(frozen=True)
class S3ASettings:
    """Options of a job that writes through S3A, without secrets.

    ``None`` leaves an option to Hadoop or to the cluster's own configuration. Give any other option
    of Hadoop in ``conf``.

    :param committer: one of Hadoop's committers.
    :param endpoint: URL of the store; ``None`` for AWS. Its scheme decides between TLS and plain
        HTTP.
    :param region: of the bucket.
    :param path_style: ``None``: on if an endpoint is given, since most other stores have no
        host name for each bucket.
    :param conflict_mode: ``fail``, ``append`` or ``replace``: what the directory and partitioned
        committers do with existing files at job commit. ``None`` is ``append``.
    :param uuid: the job's UUID, ``fs.s3a.committer.uuid``. Each write needs its own.
    :param threads: ``fs.s3a.committer.threads``.
    :param buffer_dir: local folders for blocks and staged files, comma-separated.
    :param staging_dir: where the directory and partitioned committers keep their pending sets, on
        the cluster's default file system.
    :param summary_report_dir: the folder for a report of every job; outside the table.
    :param encryption: ``SSE-S3``, ``SSE-KMS`` or ``DSSE-KMS``; ``None``: the bucket's own.
    :param encryption_key: the KMS key, by its ARN or alias.
    :param storage_class: of new objects, such as ``standard_ia``.
    :raises InvalidInputError: an invalid value.
    """

    committer: Committer
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    conflict_mode: str | None = None
    uuid: str | None = None
    threads: int | None = None
    buffer_dir: str | None = None
    staging_dir: str | None = None
    summary_report_dir: str | None = None
    encryption: str | None = None
    encryption_key: str | None = None
    storage_class: str | None = None

    def __post_init__(self) -> None:
        choices = {
            "committer": (self.committer, tuple(Committer)),
            "conflict_mode": (self.conflict_mode, (None, *CONFLICT_MODE_OF.values())),
            "encryption": (self.encryption, (None, *_ENCRYPTION)),
        }
        for name, (value, known) in choices.items():
            if value not in known:
                named = ", ".join(str(one) for one in known if one is not None)
                raise _refused(f"{name}={str(value)!r} is unknown", f"Choose one of {named}.")
        object.__setattr__(self, "committer", Committer(self.committer))
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isprintable():
                raise _refused(f"{name} has control characters", "Settings are single lines.")
        if self.uuid is not None and not re.fullmatch(r"[A-Za-z0-9][\w-]{0,63}", self.uuid, re.A):
            raise _refused(
                f"uuid={self.uuid!r} cannot be a part of folder and file names",
                "Give a UUID, or letters, digits and hyphens.",
            )
        if self.conflict_mode not in (None, "append") and not self.committer.is_staging:
            raise _refused(
                f"conflict_mode={self.conflict_mode!r} means nothing to the committer "
                f"{self.committer.value!r}, which only ever adds files",
                "Use the directory or the partitioned committer, or leave it out.",
            )
        is_kms = self.encryption in ("SSE-KMS", "DSSE-KMS")
        named_key = re.match(r"arn:aws[\w-]*:kms:|alias/", self.encryption_key or "")
        if self.encryption_key is not None and not (is_kms and named_key):
            raise _refused(
                "encryption_key is no ARN and no alias of a KMS key, or encryption is neither "
                "SSE-KMS nor DSSE-KMS",
                "Give encryption='SSE-KMS' and arn:aws:kms:… or alias/…. Keys of SSE-C are "
                "secrets, and refused.",
            )
        if (self.storage_class or "").upper() in ARCHIVES:
            raise _refused(
                f"storage_class={self.storage_class!r} is an archive, from which nothing can be "
                "read before it is restored",
                "Choose a class that is read at once, such as GLACIER_IR or STANDARD_IA.",
            )
        if self.endpoint and names_user(self.endpoint):
            raise _refused(
                "The endpoint holds a user name or password, and settings are logged",
                "Take it out; credentials come from the environment.",
            )

    def spark_conf(self) -> dict[str, str]:
        """Return all ``spark.…`` and ``spark.hadoop.…`` settings, by name, without credentials."""
        conf = {
            COMMIT_PROTOCOL_KEY: PATH_PROTOCOL,
            PARQUET_COMMITTER_KEY: BINDING_PARQUET,
            # Not spark.sql.sources.partitionOverwriteMode: if the cluster's is DYNAMIC, STATIC for
            # the application would let each of its other overwrites delete a whole table. save()
            # sets it for each write.
            # A driver that YARN restarts would do the whole job again, on top of what the first
            # one has committed (OutputCommitter.isRecoverySupported).
            APP_ATTEMPTS_KEY: "1",
        }
        for key, value in self._hadoop().items():
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                conf[f"spark.hadoop.{key}"] = text
        return dict(sorted(conf.items()))

    def _hadoop(self) -> dict[str, str | int | bool | None]:
        committer = self.committer
        by_endpoint = True if self.path_style is None and self.endpoint else self.path_style
        made: dict[str, str | int | bool | None] = {
            FACTORY_KEY: S3A_FACTORY,
            NAME_KEY: committer.value,
            MAGIC_KEY: True,
            ALGORITHM_KEY: TRIPWIRE_ALGORITHM,
            REJECT_KEY: True,
            # Without the marker, nothing shows which job committed.
            MARKER_KEY: True,
            # Both abort uploads that other jobs, and this project's own committer, still need.
            PURGE_KEY: False,
            DIRECTORY_PURGE_KEY: False,
            # Summary files would be written from a listing, at job commit.
            "parquet.summary.metadata.level": "NONE",
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.path.style.access": by_endpoint,
            "fs.s3a.buffer.dir": self.buffer_dir,
            "fs.s3a.encryption.algorithm": _ENCRYPTION.get(self.encryption or ""),
            "fs.s3a.encryption.key": self.encryption_key,
            "fs.s3a.create.storage.class": (self.storage_class or "").lower() or None,
            # Unlike Hadoop's default, by which a job that ends aborts every upload below its
            # destination: days of one table may be loaded at the same time.
            ABORT_UPLOADS_KEY: False,
            # Without UUIDs, jobs that begin in one second would share a folder (SPARK-33230).
            "fs.s3a.committer.require.uuid": True,
            "fs.s3a.committer.generate.uuid": False,
            # A file is held back by not completing its upload.
            "fs.s3a.multipart.uploads.enabled": True,
            UUID_KEY: self.uuid,
            "fs.s3a.committer.threads": self.threads,
            REPORT_KEY: self.summary_report_dir,
        }
        if committer is Committer.MAGIC:
            # In memory, a killed executor's uploads would be unknown to all others (HADOOP-19047).
            made |= {IN_MEMORY_KEY: False, "fs.s3a.committer.magic.cleanup.enabled": True}
        if committer.is_staging:
            made |= {
                CONFLICT_KEY: self.conflict_mode or "append",
                UNIQUE_KEY: True,
                STAGING_KEY: self.staging_dir,
            }
        return made


#: Fields of :class:`S3ASettings` that the operator sets itself.
_OPERATORS = frozenset({"committer", "uuid", "endpoint", "region", "path_style"})
#: The options that ``s3a_options`` may have.
S3A_OPTIONS = tuple(f.name for f in fields(S3ASettings) if f.name not in _OPERATORS)


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse unknown options.

    :raises InvalidInputError: an option that does not exist, or that is given in another way.
    """
    for name in given:
        if name not in S3A_OPTIONS:
            why = " is said otherwise" if name in _OPERATORS else " does not exist"
            raise InvalidInputError(
                f"s3a_options[{name!r}]{why}; nothing was submitted.",
                remedy=f"There are {', '.join(S3A_OPTIONS)}. Endpoint and region come from the AWS "
                "connection, the rest of Hadoop's options by conf.",
            )


def check_committer(word: str) -> str:
    """Return ``word`` if it names a committer.

    :raises InvalidInputError: it does not.
    """
    if word in COMMITTERS:
        return word
    known = f"Choose one of {', '.join(COMMITTERS)}."
    raise _refused(f"There is no committer {word!r}; nothing was written", known)


def _refused(what: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"{what}.", remedy=remedy)
