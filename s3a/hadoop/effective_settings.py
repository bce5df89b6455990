"""Settings in force, the origin of each, and the files that hold them.

A setting can reach a job from several layers. The caller orders the layers, and the first one that
has a key wins. This module also follows the rules of Spark and Hadoop for names:

* ``spark.hadoop.X`` is Hadoop's ``X``. A bare ``X`` counts in a session and in Hadoop's own
  files. From ``--conf`` and from properties files Spark drops it, with a warning
  (``SparkSubmit``, names without ``spark.``).
* ``fs.s3a.bucket.NAME.X`` wins over ``fs.s3a.X`` for that bucket, when the file system is made
  (``S3AUtils.propagateBucketOptions``). But the committers first read the job's configuration
  (``S3ACommitterFactory``, ``StagingCommitter``), which is not resolved by bucket. So for their
  options the plain key wins if it is set, and Hadoop's default file sets most of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ...committer.errors import InvalidInputError
from .settings import (
    COMMIT_PROTOCOL_KEY,
    FACTORY_KEY,
    MAGIC_KEY,
    NAME_KEY,
    PARQUET_COMMITTER_KEY,
    S3A_FACTORY,
    SQL_PROTOCOL,
)

Layer = tuple[str, Mapping[str, str]]

DAG_CONF = "DAG conf"
#: Of a command that checks settings.
COMMAND_LINE = "--conf"
SPARK_DEFAULTS = "spark-defaults.conf"
SESSION = "session"
CORE_SITE = "core-site.xml"
DEFAULT = "Spark's or Hadoop's default"
#: Layers in which a bare Hadoop key means something.
_BARE_COUNTS = (SESSION, CORE_SITE, DEFAULT)
_HADOOP = "spark.hadoop."

#: Defaults from ``core-default.xml`` and ``mapred-default.xml`` of Hadoop 3.5.0 and ``SQLConf`` of
#: Spark 4.3.0; for other options, the constant in the class that reads the option.
DEFAULTS: Mapping[str, str] = {
    COMMIT_PROTOCOL_KEY: SQL_PROTOCOL,
    PARQUET_COMMITTER_KEY: "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    FACTORY_KEY: S3A_FACTORY,
    "mapreduce.outputcommitter.factory.class": "",
    NAME_KEY: "file",
    MAGIC_KEY: "true",
    # mapred-default.xml says 2; SparkHadoopUtil sets 1 if no file sets another value.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "pathoutputcommit.reject.fileoutput": "false",
    "fs.defaultFS": "file:///",
    "fs.s3a.committer.abort.pending.uploads": "true",
    "fs.s3a.committer.staging.tmp.path": "tmp/staging",
    "fs.s3a.committer.magic.track.commits.in.memory.enabled": "false",
    "fs.s3a.multipart.purge": "false",
    "fs.s3a.multipart.purge.age": "24h",
    "fs.s3a.directory.operations.purge.uploads": "false",
}
#: All Hadoop options that a check reads, for code that reads them one by one from a JVM.
HADOOP_KEYS: tuple[str, ...] = (
    *(key for key in DEFAULTS if not key.startswith("spark.")),
    "fs.s3a.committer.staging.abort.pending.uploads",
    "fs.s3a.committer.uuid",
)

#: Hadoop's files in the order in which Hadoop loads them: a later one wins.
HADOOP_FILES = ("core-site.xml", "mapred-site.xml")
_SECRET = re.compile(r"(?i)secret|password|token|access\.key|encryption\.key|credential")

#: A comment; or a key, up to the first separator that is not escaped, and its value. A line that
#: ends in a backslash continues in the next line.
_LINE = re.compile(
    r"""^[ \t\f]* (?: [#!].* |
    (?P<key> (?: \\. | [^\s=:\\] )+ ) [ \t\f]* [=:]? [ \t\f]*
    (?P<value> (?: \\\r?\n | \\. | [^\\\n] )* ) \\? )$""",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(?:\r?\n[ \t\f]*|u(?i:([0-9a-f]{4}))|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", None: ""}


@dataclass(frozen=True)
class Setting:
    """A value in force.

    :param origin: the name of its layer; for a value of one bucket, also the bucket.
    """

    value: str
    origin: str


def effective(layers: Sequence[Layer], bucket: str | None = None) -> Mapping[str, Setting]:
    """Return the settings in force, Hadoop's by their bare names.

    :param layers: name and settings of each, the strongest first. Spark's and Hadoop's defaults are
        added after the last.
    :param bucket: the bucket whose ``fs.s3a.bucket.NAME.…`` settings count; ``None``: none count.
    """
    flat: dict[str, Setting] = {}
    for origin, settings in (*layers, (DEFAULT, DEFAULTS)):
        for key, value in settings.items():
            name = _hadoop_name(origin, key)
            if name is not None:
                flat.setdefault(name, Setting(str(value).strip(), origin))
    return flat if bucket is None else _for_bucket(flat, bucket)


def _hadoop_name(origin: str, key: str) -> str | None:
    """Return the name by which a key counts in a layer; ``None`` if it does not count there."""
    if key.startswith(_HADOOP):
        # A session's own SET reaches Hadoop with the prefix left on, and Hadoop does not read it.
        return key.removeprefix(_HADOOP)
    if key.startswith("spark."):
        return key
    return key if origin in _BARE_COUNTS else None


def _for_bucket(flat: Mapping[str, Setting], bucket: str) -> Mapping[str, Setting]:
    resolved = dict(flat)
    prefix = f"fs.s3a.bucket.{bucket}."
    for key, setting in flat.items():
        if not key.startswith(prefix):
            continue
        plain = f"fs.s3a.{key.removeprefix(prefix)}"
        # The committers take their own options from the job's configuration.
        own = plain.startswith("fs.s3a.committer.") and plain != MAGIC_KEY
        if own and plain in flat:
            continue
        resolved[plain] = Setting(setting.value, f"{setting.origin}, for the bucket {bucket}")
    return resolved


def read_properties(path: Path) -> dict[str, str]:
    """Return the settings of a properties file, as Spark reads it (``getPropertiesFromFile``).

    A byte that is not UTF-8 becomes the replacement character, as there.

    :raises InvalidInputError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise _unreadable(path, error) from error
    return _of_properties(text)


def settings_of_file(name: str, text: str) -> dict[str, str]:
    """Return the settings in a file's text, by their Spark names.

    :param name: the file's name: properties, or an XML file of Hadoop's.
    :raises InvalidInputError: an XML file that Hadoop could not load either.
    """
    if not name.endswith(".xml"):
        return _of_properties(text)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise _unreadable(Path(name), error) from error
    return {f"{_HADOOP}{key}": value for key, value in _entries(root)}


def _of_properties(text: str) -> dict[str, str]:
    pairs = (found.group("key", "value") for found in _LINE.finditer(text) if found["key"])
    return {_unescape(key): _unescape(value).strip() for key, value in pairs}


def _unescape(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2])

    # Java escapes a character beyond U+FFFF as two.
    halves = _ESCAPED.sub(meant, text).encode("utf-16", "surrogatepass")
    return halves.decode("utf-16", "replace")


def hadoop_layer(environ: Mapping[str, str]) -> Layer:
    """Return the layer :data:`CORE_SITE` for a driver that is started with ``environ``.

    Names that look like those of credentials are left out. A missing file counts as empty.

    :raises InvalidInputError: a file is not valid XML, and Hadoop could not load it either.
    """
    folder = environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")
    found: dict[str, str] = {}
    for name in HADOOP_FILES if folder else ():
        path = Path(folder or "", name)
        if path.is_file():
            found |= dict(_properties(path))
    return CORE_SITE, found


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise _unreadable(path, error) from error
    yield from _entries(root)


def _entries(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Yield the names and values in an XML file of Hadoop's, without credentials."""
    for entry in root.iter("property"):
        name, value = entry.findtext("name"), entry.findtext("value")
        if name and value is not None and not _SECRET.search(name):
            yield name.strip(), value.strip()


def _unreadable(path: Path, error: Exception) -> InvalidInputError:
    is_there = not isinstance(error, FileNotFoundError)
    why = f"cannot be read ({type(error).__name__})" if is_there else "is not there"
    return InvalidInputError(
        f"The file of settings {path} {why}; nothing was checked or submitted.",
        remedy="Give the path of one that is whole and that this process may read. If it lies in "
        "HADOOP_CONF_DIR, mend it, or let that variable name another folder.",
    )
