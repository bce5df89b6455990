"""Search for a session's file system that reaches a table's store, so that Spark can read it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ...committer.format.layout import TableRoot
from ...committer.format.records.data_file import DataFile
from ..java_classes import java_class
from ..s3a.session import SessionView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("zero_rename.spark.reading.session_store")
#: ``s3://`` first: a cluster with its own file system for it (EMRFS, Databricks) should use that.
_SCHEMES = ("s3", "s3a")
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
#: Default ports, which a URL may leave out.
_PLAIN = (None, 80, 443)
#: Seconds for which a session that could read a table is not asked again: credentials expire.
_COUNTS = 30.0
#: By session: the time at which each table could be read, by its URL, scheme, file system and
#: endpoints.
_seen: WeakKeyDictionary[SparkSession, dict[tuple[str, ...], float]] = WeakKeyDictionary()


@dataclass(frozen=True)
class SessionStore:
    """File system by which a session can read a table, or the reason why it cannot.

    :param scheme: the scheme of the session's paths to the table, such as ``s3a``; ``None``: it
        cannot read the table.
    :param why_not: the reason, for people; empty if it can.
    :param remedy: what to do so that it can read the table.
    """

    scheme: str | None
    why_not: str = ""
    remedy: str = ""


OURS = "Leave by= out: this package's reader can."
_CONFIGURE = (
    "Configure the session's file system for the store (fs.s3a.endpoint, credentials, hadoop-aws "
    "in the version of Spark's Hadoop), or leave by= out: this package's reader needs none of it."
)
_CONNECT = (
    "Leave by= out: this package's reader can, in the Python workers of the server. They need this "
    "package in the client's version, boto3, pyarrow and pandas, a Python of the client's minor "
    "version, and credentials for the store; the client what pip install 'pyspark[connect]' brings "
    "(grpcio, grpcio-status, googleapis-common-protos, zstandard). docs/spark-platforms.md, Spark "
    "Connect, says more."
)


def session_store(
    session: SparkSession, root: TableRoot, endpoint: str, sample: DataFile
) -> SessionStore:
    """Find a session's file system for a table: it must know the size of one of the files.

    This takes a request for each file system, and none if the session has read the size of a file
    of this table in the last 30 seconds.

    :param endpoint: URL of the store as boto3 reaches it. S3A needs the same one: an
        object of the same name in another store would be another table's.
    :param sample: a file of the table.
    """
    if getattr(session, "_jsparkSession", None) is None:
        why = "it is one of Spark Connect, whose server reads no list of files made here"
        return SessionStore(None, why, _CONNECT)
    reasons = []
    for scheme in _SCHEMES:
        try:
            reason = _why_not(session, root, endpoint, scheme, sample)
        except Exception as error:  # By py4j: a platform may let Python call few Java classes.
            logger.debug("what the session has for %s:// cannot be seen", scheme, exc_info=True)
            reason = _first_line(error)
        if reason is None:
            return SessionStore(scheme)
        reasons.append(f"{scheme}://: {reason}")
    return SessionStore(None, "; ".join(reasons), _CONFIGURE)


def _why_not(
    session: SparkSession, root: TableRoot, endpoint: str, scheme: str, sample: DataFile
) -> str | None:
    view = SessionView(session)
    implementation = view.hadoop(f"fs.{scheme}.impl")
    if implementation is None:
        return "Hadoop has no file system for it there"
    if view.has_class(implementation) is False:
        return f"the class {implementation} is not there"
    told = None
    if "s3a" in implementation.lower():
        told = view.for_bucket(root.bucket, "fs.s3a.endpoint")
    if reason := endpoint_mismatch(endpoint, told):
        return reason
    seen = _seen.setdefault(session, {})
    place, now = (root.url, scheme, implementation, endpoint, told or ""), time.monotonic()
    if now - seen.get(place, -_COUNTS) < _COUNTS:
        return None
    path = f"{scheme}://{root.bucket}/{sample.key}"
    size = _size(session, path)
    if size != sample.size:
        return f"{path} has {size} bytes there, not {sample.size}"
    seen[place] = now
    return None


def endpoint_mismatch(ours: str, told: str | None) -> str | None:
    """Return why a Hadoop file system does not use the same store as boto3; ``None`` if it does.

    :param ours: URL of the store as boto3 reaches it.
    :param told: ``fs.s3a.endpoint``, a URL or a host; ``None`` and empty are AWS.
    """
    wanted, found = _place(ours), _place(told) if told else None
    is_aws = found is None or found.endswith(_AWS)
    if wanted.endswith(_AWS):
        return None if is_aws else f"fs.s3a.endpoint is {found}, and boto3 reads from AWS"
    if found == wanted:
        return None
    return f"fs.s3a.endpoint is {found or 'not set'}, and boto3 reads from {wanted}"


def _place(url: str) -> str:
    """Return a URL's host, with its port unless that is a default one."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    host = parts.hostname or ""
    return host if parts.port in _PLAIN else f"{host}:{parts.port}"


def _size(session: SparkSession, path: str) -> int:
    java: Any = session
    hadoop = java_class(java._jvm, "org.apache.hadoop.fs.Path")(path)
    settings = java._jsparkSession.sessionState().newHadoopConf()
    return int(hadoop.getFileSystem(settings).getFileStatus(hadoop).getLen())


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.toString())
    return text.splitlines()[0][:300] if text else type(error).__name__
