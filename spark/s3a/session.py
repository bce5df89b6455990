"""The settings a session will really write with, and the checks on them before the first write.

What was checked before the submission may have changed since: the application sets options on
its session, Spark chooses a committer by itself (SPARK-47618), a cluster has a ``core-site.xml``
of its own. In the job all of it can be seen: Spark's configuration, Hadoop's, and which classes
there are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...s3a.checks import JobFacts, inspect, refuse
from ...s3a.hadoop import effective_settings as layers
from ...s3a.hadoop.settings import BINDING_PARQUET, PATH_PROTOCOL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark.s3a.session")
_HADOOP = "spark.hadoop."
_BUCKET = "fs.s3a.bucket."
_SECRET = re.compile(r"(?i)key|secret|token|password|credential")
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SDK_CLASSES = (
    "software.amazon.awssdk.services.s3.S3Client",
    "com.amazonaws.services.s3.AmazonS3",
)


class SessionView:
    """What can be seen of a session.

    :param session: classic or of Spark Connect; of the latter only Spark's own settings can be
        seen, and that is logged.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._hadoop = _hadoop_configuration(session)
        if self._hadoop is None:
            logger.warning(
                "This session is one of Spark Connect: Hadoop's configuration and the jars of the "
                "server cannot be seen from here, so the checks on them are left out."
            )

    def hadoop(self, key: str) -> str | None:
        """An option of Hadoop's, as a write of this session would find it."""
        own = self._session.conf.get(key, None)
        return own if own is not None or self._hadoop is None else self._hadoop.get(key)

    def for_bucket(self, bucket: str, key: str) -> str | None:
        """An option of S3A's as the file system of a bucket finds it: one of the bucket's own
        wins (``S3AUtils.propagateBucketOptions``)."""
        own = self.hadoop(_of_bucket(bucket, key))
        return self.hadoop(key) if own is None else own

    def secret(self, bucket: str, key: str) -> str | None:
        """A password or key as S3A finds it, also in one of Hadoop's credential providers: for a
        client, and not to be shown."""
        for name in (_of_bucket(bucket, key), key):
            found = self._session.conf.get(name, None)
            if found is None and self._hadoop is not None:
                # An array of characters, or null.
                found = self._hadoop.getPassword(name)
            if found is not None:
                return "".join(found)
        return None

    def settings(
        self, options: Mapping[str, str], bucket: str | None = None
    ) -> Mapping[str, layers.Setting]:
        """All settings in force for a write, Spark's and Hadoop's; of Hadoop's those that the
        checks read, by their bare names, and no credentials.

        :param options: of the write; they win.
        :param bucket: it writes to.
        """
        found: dict[str, str | None] = {}
        if self._hadoop is not None:
            # The spark.hadoop.… settings were taken into Hadoop's when the context was made, and
            # may have been changed there since.
            found |= dict(self._session.sparkContext.getConf().getAll())
        found |= {str(key): str(value) for key, value in self._session.conf.getAll.items()}
        if self._hadoop is not None:
            found = {key: value for key, value in found.items() if not key.startswith(_HADOOP)}
            of_buckets = self._hadoop.getPropsWithPrefix(_BUCKET)
            keys = [f"{_BUCKET}{key}" for key in of_buckets if not _SECRET.search(key)]
            found = {key: self._hadoop.get(key) for key in (*layers.HADOOP_KEYS, *keys)} | found
        said = {key: value for key, value in (found | dict(options)).items() if value is not None}
        return layers.effective([(layers.SESSION, said)], bucket)

    def has_class(self, name: str) -> bool | None:
        """Whether Spark can load a class; ``None`` where that cannot be seen."""
        if self._hadoop is None:
            return None
        jvm: Any = self._session.sparkContext._jvm
        return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))

    def missing_classes(self) -> tuple[str, ...]:
        """Those that a committer needs and Spark cannot load, as far as that can be seen."""
        needed = (_S3A_CLASS, PATH_PROTOCOL, BINDING_PARQUET)
        missing = [name for name in needed if self.has_class(name) is False]
        # Which of the two S3A wants depends on its release (HADOOP-18073: version 2 since 3.4).
        if not missing and all(self.has_class(name) is False for name in _SDK_CLASSES):
            missing = [" or ".join(_SDK_CLASSES)]
        return tuple(missing)

    @property
    def is_cluster(self) -> bool | None:
        master = self._session.conf.get("spark.master", None)
        return None if master is None else not master.startswith("local")


def check_session(
    view: SessionView,
    facts: Mapping[str, Any],
    options: Mapping[str, str],
    bucket: str | None = None,
) -> None:
    """Look at a session before a write. Logs the warnings.

    :param facts: members of :class:`JobFacts` besides the settings.
    :param options: the write's.
    :raises SettingsRefusedError: it would lose or double rows; nothing was written.
    """
    seen = JobFacts(
        settings=view.settings(options, bucket),
        # The driver's machine; of executors elsewhere nothing is known here.
        missing_classes=view.missing_classes(),
        is_cluster=view.is_cluster,
        **facts,
    )
    refuse(inspect(seen))


def _of_bucket(bucket: str, key: str) -> str:
    return f"{_BUCKET}{bucket}.{key.removeprefix('fs.s3a.')}"


def _hadoop_configuration(session: SparkSession) -> Any:
    """Hadoop's configuration of the session's context; ``None`` for Spark Connect."""
    if getattr(session, "_jsparkSession", None) is None:
        return None
    context: Any = session.sparkContext
    return context._jsc.hadoopConfiguration()
