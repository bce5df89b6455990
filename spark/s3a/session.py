"""The settings by which a session will really write, and their checks before the first write.

Settings that were checked before the submission may have changed since: the application sets
options on its session, Spark chooses a committer by itself (SPARK-47618), a cluster has its own
``core-site.xml``. The job can see all of it: Spark's configuration, Hadoop's, and the classes that
can be loaded.

Records, listings and verification must use the same store as the committer. So Hadoop's settings of
the store win over those that boto3 finds in the environment, and settings of one bucket over
general ones. They are read as ``DefaultS3ClientFactory`` and ``CredentialProviderListFactory``
(hadoop-aws 3.5.0) read them. Keys from there go only into the client.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...committer.store.clients import ANONYMOUS, Keys, client_at
from ...committer.store.encryption import Algorithm, Encryption
from ...s3a.checks import JobFacts, inspect, refuse
from ...s3a.hadoop import effective_settings as layers
from ...s3a.hadoop.settings import BINDING_PARQUET, PATH_PROTOCOL
from ..java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark.s3a.session")
_HADOOP = "spark.hadoop."
#: Values of ``fs.s3a.encryption.algorithm`` (``S3AEncryptionMethods``) for encryption by the store.
_ENCRYPTIONS = {
    "AES256": Algorithm.SSE_S3,
    "SSE-KMS": Algorithm.SSE_KMS,
    "DSSE-KMS": Algorithm.DSSE_KMS,
}
_BUCKET = "fs.s3a.bucket."
#: What Spark's SQL shows of credentials, and of values with ``url`` or ``token`` in them.
_CONCEALED = "*********(redacted)"
_SECRET = re.compile(r"(?i)key|secret|token|password|credential")
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SDK_CLASSES = ("software.amazon.awssdk.services.s3.S3Client", "com.amazonaws.services.s3.AmazonS3")


class SessionView:
    """View of a session's settings and classes.

    :param session: a classic one or one of Spark Connect. Of the latter only Spark's own settings
        can be seen, and a warning says so.
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
        """Return an option of Hadoop, as a write of this session would read it."""
        own = self._session.conf.get(key, None)
        return own if own is not None or self._hadoop is None else self._hadoop.get(key)

    def for_bucket(self, bucket: str, key: str) -> str | None:
        """Return an option of S3A, as the file system of a bucket reads it.

        The bucket's own option wins (``S3AUtils.propagateBucketOptions``).
        """
        own = self.hadoop(_of_bucket(bucket, key))
        return self.hadoop(key) if own is None else own

    def secret(self, bucket: str, key: str) -> str | None:
        """Return a password or key as S3A reads it, also from Hadoop's credential providers.

        It is only for a client, and must not be shown.
        """
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
        """Return all settings in force for a write, Spark's and Hadoop's.

        Of Hadoop's, only those that the checks read, by their bare names, and no credentials.

        :param options: options of the write, which win.
        :param bucket: the bucket that it writes to.
        """
        found: dict[str, str | None] = {}
        if self._hadoop is not None:
            # The spark.hadoop.… settings were copied into Hadoop's when the context was made, and
            # may have been changed there since.
            found |= dict(self._session.sparkContext.getConf().getAll())
        found |= _own_settings(self._session)
        if self._hadoop is not None:
            found = {key: value for key, value in found.items() if not key.startswith(_HADOOP)}
            of_buckets = self._hadoop.getPropsWithPrefix(_BUCKET)
            keys = [f"{_BUCKET}{key}" for key in of_buckets if not _SECRET.search(key)]
            found = {key: self._hadoop.get(key) for key in (*layers.HADOOP_KEYS, *keys)} | found
        said = {key: value for key, value in (found | dict(options)).items() if value is not None}
        return layers.effective([(layers.SESSION, said)], bucket)

    def has_class(self, name: str) -> bool | None:
        """Return whether Spark can load a class; ``None`` if that cannot be seen."""
        if self._hadoop is None:
            return None
        jvm: Any = self._session.sparkContext._jvm
        return bool(java_class(jvm, "org.apache.spark.util.Utils").classIsLoadable(name))

    def missing_classes(self) -> tuple[str, ...]:
        """Return the classes that a committer needs and Spark cannot load.

        Empty if the classes cannot be seen.
        """
        needed = (_S3A_CLASS, PATH_PROTOCOL, BINDING_PARQUET)
        missing = [name for name in needed if self.has_class(name) is False]
        # S3A needs one of the two, by its release (HADOOP-18073: version 2 since 3.4).
        if not missing and all(self.has_class(name) is False for name in _SDK_CLASSES):
            missing = [" or ".join(_SDK_CLASSES)]
        return tuple(missing)

    @property
    def hadoop_version(self) -> str:
        """The version of Spark's Hadoop; ``""`` if that cannot be seen."""
        if self._hadoop is None:
            return ""
        jvm: Any = self._session.sparkContext._jvm
        return str(java_class(jvm, "org.apache.hadoop.util.VersionInfo").getVersion())

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
    """Check the settings of a session before a write, and log the warnings.

    :param facts: fields of :class:`JobFacts` besides those that are read from the session.
    :param options: the write's.
    :raises SettingsRefusedError: the write would lose or double rows; nothing was written.
    """
    seen = JobFacts(
        settings=view.settings(options, bucket),
        # On the driver's machine. Executors elsewhere cannot be seen from here.
        missing_classes=view.missing_classes(),
        hadoop=view.hadoop_version,
        is_cluster=view.is_cluster,
        **facts,
    )
    refuse(inspect(seen))


def _own_settings(session: SparkSession) -> dict[str, str | None]:
    """Return all settings of a session; on PySpark before 4 without those that Spark conceals."""
    known = getattr(session.conf, "getAll", None)
    if known is None:  # PySpark before 4 has no such call.
        rows = session.sql("SET").collect()
        return {row["key"]: row["value"] for row in rows if row["value"] != _CONCEALED}
    return {str(key): str(value) for key, value in known.items()}


def _of_bucket(bucket: str, key: str) -> str:
    return f"{_BUCKET}{bucket}.{key.removeprefix('fs.s3a.')}"


def _hadoop_configuration(session: SparkSession) -> Any:
    """Return Hadoop's configuration of the session's context; ``None`` for Spark Connect."""
    if getattr(session, "_jsparkSession", None) is None:
        return None
    context: Any = session.sparkContext
    return context._jsc.hadoopConfiguration()


#: ``fs.s3a.aws.credentials.provider`` of ``core-default.xml``, without providers that boto3 has.
_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider,SimpleAWSCredentialsProvider,"
    "EnvironmentVariableCredentialsProvider"
)
_AWS = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-[0-9]))?\.amazonaws\.com(?:\.cn)?")
_ACCESS_VARIABLE = "AWS_ACCESS_KEY_ID"
#: Values of ``fs.s3a.endpoint.region`` that leave the region to the SDK (HADOOP-19363).
_OF_THE_SDK = ("", "sdk")


def client_of(settings: SessionView, bucket: str) -> Any:
    """Make a client for a bucket by Hadoop's settings.

    ``None`` if Hadoop has no setting for it, so that boto3's own chain counts.

    :raises StoreRefusedError: the settings are invalid.
    """
    region = settings.for_bucket(bucket, "fs.s3a.endpoint.region")
    region = None if region is None or region.strip().lower() in _OF_THE_SDK else region.strip()
    endpoint = _endpoint(settings, bucket)
    path_style = _is_true(settings.for_bucket(bucket, "fs.s3a.path.style.access"), default=False)
    keys = _keys(settings, bucket)
    if endpoint is None and keys is None and region is None and not path_style:
        return None
    if endpoint is not None and region is None:
        aws = _AWS.fullmatch(urlsplit(endpoint).hostname or "")
        region = aws["region"] if aws else None
    return client_at(endpoint, region, path_style=path_style, keys=keys)


def _endpoint(settings: SessionView, bucket: str) -> str | None:
    """Return the endpoint's URL. Without a scheme it uses TLS, unless that is switched off."""
    said = (settings.for_bucket(bucket, "fs.s3a.endpoint") or "").strip()
    if not said or "://" in said:
        return said or None
    secure = settings.for_bucket(bucket, "fs.s3a.connection.ssl.enabled")
    return f"{'https' if _is_true(secure, default=True) else 'http'}://{said}"


def _keys(settings: SessionView, bucket: str) -> Keys | None:
    """Return the keys that S3A signs with, from the first of its providers that has some.

    ``None`` if that provider is one that boto3 has as well.
    """
    listed = settings.for_bucket(bucket, "fs.s3a.aws.credentials.provider") or _DEFAULT_PROVIDERS
    access = settings.secret(bucket, "fs.s3a.access.key")
    secret = settings.secret(bucket, "fs.s3a.secret.key")
    token = settings.secret(bucket, "fs.s3a.session.token")
    for provider in re.split(r"[\s,]+", listed.strip()):
        name = provider.rpartition(".")[2]
        if name == "AnonymousAWSCredentialsProvider":
            return ANONYMOUS
        if name == "TemporaryAWSCredentialsProvider":
            if access and secret and token:
                return Keys(access, secret, token)
        elif name == "SimpleAWSCredentialsProvider":
            if access and secret:
                return Keys(access, secret)
        elif name != "EnvironmentVariableCredentialsProvider" or os.environ.get(_ACCESS_VARIABLE):
            return None
    return None


def encryption_for(settings: SessionView, bucket: str) -> Encryption | None:
    """Return the encryption that S3A requests; ``None``: none, or encryption by S3A's own keys."""
    said = (settings.for_bucket(bucket, "fs.s3a.encryption.algorithm") or "").strip()
    algorithm = _ENCRYPTIONS.get(said)
    if algorithm is None:
        return None
    key = settings.for_bucket(bucket, "fs.s3a.encryption.key") if algorithm.uses_kms else None
    return Encryption(algorithm, (key or "").strip() or None)


def _is_true(value: str | None, default: bool) -> bool:
    """Read a setting as ``Configuration.getBoolean`` does."""
    word = (value or "").strip().lower()
    return word == "true" if word in ("true", "false") else default
