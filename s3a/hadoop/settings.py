"""The Spark and Hadoop settings of a committer, chosen by one word.

Every key that decides between right and wrong rows is written out, also where its value is the
default: what ``spark-defaults.conf`` or ``core-site.xml`` say then cannot half-configure a
committer. ``docs/s3a.md`` has the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...committer.errors import InvalidInputError
from ...committer.job_spec import Mode

#: Hadoop's factory, which reads ``fs.s3a.committer.name`` (``S3ACommitterFactory``).
S3A_FACTORY = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
#: Spark's two binding classes, in the module ``spark-hadoop-cloud``.
PATH_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
BINDING_PARQUET = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
#: What Spark uses without them.
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
CLASSIC_PARQUET = "org.apache.parquet.hadoop.ParquetOutputCommitter"
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
THREADS_KEY = "fs.s3a.committer.threads"
BUFFER_KEY = "fs.s3a.buffer.dir"
APP_ATTEMPTS_KEY = "spark.yarn.maxAppAttempts"

#: The staging committers' conflict mode that carries out a mode.
CONFLICT_MODE_OF: Mapping[Mode, str] = {
    Mode.FAIL_IF_EXISTS: "fail",
    Mode.APPEND: "append",
    Mode.REPLACE: "replace",
}
CONFLICT_MODES = tuple(CONFLICT_MODE_OF.values())
_ENCRYPTION = {"SSE-S3": "AES256", "SSE-KMS": "SSE-KMS", "DSSE-KMS": "DSSE-KMS"}
#: Storage classes whose objects can be read at once (``fs.s3a.create.storage.class``).
_STORAGE_CLASSES = (
    "standard",
    "standard_ia",
    "onezone_ia",
    "intelligent_tiering",
    "reduced_redundancy",
    "glacier_ir",
    "outposts",
)


class Committer(StrEnum):
    """The committers that run in the JVM. ``zero_rename`` is this project's own, and is none."""

    MAGIC = "magic"
    DIRECTORY = "directory"
    PARTITIONED = "partitioned"
    #: ``FileOutputCommitter``, which renames: for comparison and for stores with real renames.
    CLASSIC = "classic"

    @property
    def is_staging(self) -> bool:
        """Whether tasks write to local disk and upload when they commit."""
        return self in (Committer.DIRECTORY, Committer.PARTITIONED)

    @property
    def hadoop_name(self) -> str:
        """The value of ``fs.s3a.committer.name``."""
        return "file" if self is Committer.CLASSIC else self.value


@dataclass(frozen=True)
class S3ASettings:
    """What a job needs to write through S3A, and nothing that is secret.

    ``None`` leaves an option to Hadoop or to the cluster's own configuration. Sources name the
    Hadoop class that reads the option.

    :param committer: which one.
    :param endpoint: URL of the store; ``None`` for AWS. With its scheme, which then decides
        between TLS and plain HTTP.
    :param region: of the bucket.
    :param path_style: ``None``: on where an endpoint is given, since most other stores have no
        names of their own for buckets.
    :param conflict_mode: ``fail``, ``append`` or ``replace``: what the directory and partitioned
        committers do at job commit with files that are there. ``None`` is ``append``, Hadoop's
        default since 3.1.1 and the only one that removes nothing and that an incremental load
        into a table with files can use.
    :param unique_filenames: put the job's UUID into the names of files (directory, partitioned).
        On, as in Hadoop: without it an append can overwrite files of equal names.
    :param uuid: the job's UUID, ``fs.s3a.committer.uuid``. One write, one UUID: leave it
        ``None`` where the application writes more than once.
    :param threads: ``fs.s3a.committer.threads``; Hadoop's own default file says 8. A number
        above 0: for a negative one ``CommitContext`` makes no inner pool, and the files of a task
        are committed one after the other.
    :param buffer_dir: local folders for blocks and staged files, comma-separated; ``None`` is
        Hadoop's, below YARN's ``LOCAL_DIRS`` or a temporary folder of the user.
    :param staging_dir: where the directory and partitioned committers keep what is pending, on
        the cluster's default file system; ``None`` is ``tmp/staging`` below the user's home there
        (below each process's working folder where that is the machine's own disk).
    :param abort_pending_uploads: let a job, when it ends, abort every upload below its
        destination. Off, other than in Hadoop: it aborts the uploads of other jobs there too
        (``AbstractS3ACommitter.abortPendingUploadsInCleanup``), and days of one table are loaded
        side by side. What killed tasks leave, and with magic what a failed job's ended tasks had
        uploaded, is then for ``zero-rename s3a-recover`` and for a lifecycle rule.
    :param track_commits_in_memory: let magic keep its pending files in the executor's memory
        (HADOOP-19047, Hadoop 3.4.1). Off: what a killed executor began is then known to nobody.
    :param summary_report_dir: where a report of every job goes, failed ones included; outside
        the table, since readers list it.
    :param encryption: ``SSE-S3``, ``SSE-KMS`` or ``DSSE-KMS``; ``None``: the bucket's own.
    :param encryption_key: the KMS key, by its ARN or alias.
    :param storage_class: of new objects, such as ``standard_ia``.
    :param conditional_create: whether the store knows ``If-None-Match`` (HADOOP-19256, 3.4.2).
    :param retry_5xx: repeat requests that a store answered with 500 and its like (HADOOP-19221).
        ``None`` is Hadoop's default, on. Hadoop's page on third-party stores suggests off, so
        that a full disk or a wrong right fails sooner; a commit that outlives a restart of the
        store is worth more here.
    :param require_uuid: refuse a write to which Spark gave no UUID of its own (SPARK-33230): jobs
        of one second would share a staging folder. On; needs Spark 3.0.2 or newer.
    :param tripwires: make a ``FileOutputCommitter`` that came in by mistake fail instead of
        renaming. It also refuses this application's writes to other file systems.
    """

    committer: Committer
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    conflict_mode: str | None = None
    unique_filenames: bool = True
    uuid: str | None = None
    threads: int | None = None
    buffer_dir: str | None = None
    staging_dir: str | None = None
    abort_pending_uploads: bool = False
    track_commits_in_memory: bool = False
    summary_report_dir: str | None = None
    encryption: str | None = None
    encryption_key: str | None = None
    storage_class: str | None = None
    conditional_create: bool | None = None
    retry_5xx: bool | None = None
    require_uuid: bool = True
    tripwires: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "committer", _committer(self.committer))
        if self.storage_class:
            object.__setattr__(self, "storage_class", self.storage_class.lower())
        for name, value in vars(self).items():
            if isinstance(value, str) and not value.isprintable():
                raise InvalidInputError(
                    f"{name} has control characters.", remedy="Settings are single lines."
                )
        if self.uuid is not None and not re.fullmatch(
            r"[A-Za-z0-9][A-Za-z0-9_\-]{0,63}", self.uuid
        ):
            raise InvalidInputError(
                f"uuid={self.uuid!r} cannot be a part of folder and file names.",
                remedy="Give a UUID, or letters, digits and hyphens.",
            )
        _choice("conflict_mode", self.conflict_mode, CONFLICT_MODES)
        _choice("encryption", self.encryption, _ENCRYPTION)
        _choice("storage_class", self.storage_class, _STORAGE_CLASSES)
        if self.conflict_mode not in (None, "append") and not self.committer.is_staging:
            raise InvalidInputError(
                f"conflict_mode={self.conflict_mode!r} means nothing to the committer "
                f"{self.committer.value!r}, which only ever adds files.",
                remedy="Use the directory or the partitioned committer, or leave it out.",
            )
        if self.threads is not None and self.threads < 1:
            raise InvalidInputError(
                f"threads={self.threads} is not a number above 0.",
                remedy="Leave it out for Hadoop's 8.",
            )
        if self.encryption_key is not None:
            if self.encryption not in ("SSE-KMS", "DSSE-KMS"):
                raise InvalidInputError(
                    "encryption_key is a KMS key, and encryption is neither SSE-KMS nor DSSE-KMS.",
                    remedy="Say encryption='SSE-KMS'. Keys of SSE-C are secrets, and refused.",
                )
            if not re.match(r"arn:aws[\w-]*:kms:|alias/", self.encryption_key):
                raise InvalidInputError(
                    "encryption_key is no ARN and no alias of a KMS key.",
                    remedy="Give arn:aws:kms:… or alias/….",
                )
        if self.endpoint and re.match(r"[^/]*//[^/@]*@", self.endpoint):
            raise InvalidInputError(
                "The endpoint holds a user name or password, and settings are logged.",
                remedy="Take it out; credentials come from the environment.",
            )

    def spark_conf(self) -> dict[str, str]:
        """Every ``spark.…`` and ``spark.hadoop.…`` setting, sorted by name. No credentials."""
        conf = dict(_spark_side(self))
        conf |= {f"spark.hadoop.{key}": value for key, value in _hadoop_side(self)}
        return dict(sorted(conf.items()))


def _spark_side(settings: S3ASettings) -> Iterator[tuple[str, str]]:
    classic = settings.committer is Committer.CLASSIC
    yield COMMIT_PROTOCOL_KEY, SQL_PROTOCOL if classic else PATH_PROTOCOL
    yield PARQUET_COMMITTER_KEY, CLASSIC_PARQUET if classic else BINDING_PARQUET
    # Not spark.sql.sources.partitionOverwriteMode: STATIC for a whole application over a cluster's
    # DYNAMIC lets every other overwrite in it delete its whole table. save() says it by write.
    # A driver that YARN restarts would do the whole job again, on top of what the first one has
    # committed: no committer recovers (OutputCommitter.isRecoverySupported). Retries are
    # Airflow's, which looks first at what is there.
    yield APP_ATTEMPTS_KEY, "1"


def _hadoop_side(settings: S3ASettings) -> Iterator[tuple[str, str]]:
    committer = settings.committer
    classic = committer is Committer.CLASSIC
    tripwires = settings.tripwires and not classic
    yield FACTORY_KEY, S3A_FACTORY
    yield NAME_KEY, committer.hadoop_name
    # SPARK-47618 takes "true" as leave to choose magic, so classic has to say no.
    yield MAGIC_KEY, _bool(not classic)
    # Version 2 lets readers see the output of tasks before their job ends (MAPREDUCE-7282).
    yield ALGORITHM_KEY, TRIPWIRE_ALGORITHM if tripwires else "1"
    yield REJECT_KEY, _bool(tripwires)
    # Without the marker nobody can tell which job committed.
    yield MARKER_KEY, "true"
    # Both abort uploads that other jobs, and this project's own committer, still need.
    yield "fs.s3a.multipart.purge", "false"
    yield "fs.s3a.directory.operations.purge.uploads", "false"
    # Summary files would be written by ParquetOutputCommitter, from a listing, at job commit.
    yield "parquet.summary.metadata.level", "NONE"
    if not classic:
        yield ABORT_UPLOADS_KEY, _bool(settings.abort_pending_uploads)
        yield "fs.s3a.committer.require.uuid", _bool(settings.require_uuid)
        yield "fs.s3a.committer.generate.uuid", "false"
        # A file is held back by not completing its upload.
        yield "fs.s3a.multipart.uploads.enabled", "true"
        yield from _given(UUID_KEY, settings.uuid)
        yield from _given(THREADS_KEY, settings.threads)
        yield from _given(REPORT_KEY, settings.summary_report_dir)
    if committer is Committer.MAGIC:
        yield IN_MEMORY_KEY, _bool(settings.track_commits_in_memory)
        yield "fs.s3a.committer.magic.cleanup.enabled", "true"
    if committer.is_staging:
        yield CONFLICT_KEY, settings.conflict_mode or "append"
        yield UNIQUE_KEY, _bool(settings.unique_filenames)
        yield from _given(STAGING_KEY, settings.staging_dir)
    yield from _store_side(settings)


def _store_side(settings: S3ASettings) -> Iterator[tuple[str, str]]:
    path_style = settings.path_style
    if path_style is None and settings.endpoint:
        path_style = True
    yield from _given("fs.s3a.endpoint", settings.endpoint)
    yield from _given("fs.s3a.endpoint.region", settings.region)
    yield from _given("fs.s3a.path.style.access", path_style)
    yield from _given(BUFFER_KEY, settings.buffer_dir)
    yield from _given("fs.s3a.encryption.algorithm", _ENCRYPTION.get(settings.encryption or ""))
    yield from _given("fs.s3a.encryption.key", settings.encryption_key)
    yield from _given("fs.s3a.create.storage.class", settings.storage_class)
    yield from _given("fs.s3a.create.conditional.enabled", settings.conditional_create)
    yield from _given("fs.s3a.retry.http.5xx.errors", settings.retry_5xx)


def _given(key: str, value: str | int | bool | None) -> Iterator[tuple[str, str]]:
    if value is not None:
        yield key, _bool(value) if isinstance(value, bool) else str(value)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _committer(name: str) -> Committer:
    try:
        return Committer(name)
    except ValueError as error:
        raise InvalidInputError(
            f"There is no S3A committer {name!r}.",
            remedy=f"Choose one of {', '.join(Committer)}.",
        ) from error


def _choice(name: str, value: str | None, choices: object) -> None:
    if value is not None and value not in choices:  # pyright: ignore[reportOperatorIssue]
        raise InvalidInputError(
            f"{name}={value!r} is unknown.",
            remedy=f"Choose one of {', '.join(choices)}.",  # pyright: ignore
        )
