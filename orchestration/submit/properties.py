"""Files that only their owner can read: a submission's folder, and Spark's properties in it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "zero-rename-"
#: Locked as long as the folder's owner lives, however that ends; also across containers that
#: share the folder, where a process id says nothing.
_LOCK = "owner.lock"
#: YARN writes a container's environment into a script, as it is between double quotes
#: (``ContainerLaunch.UnixShellScriptBuilder.env``): what bash reads there as more than itself.
_SHELL = re.compile(r'["$`\\]')
#: The setting whose pattern :func:`redaction` widens.
REDACTION = "spark.redaction.regex"
#: The setting that ``--py-files`` stands for; Spark drops it where there is that option.
PY_FILES = "spark.submit.pyFiles"
#: Spark's own pattern, the underscores of AWS_ACCESS_KEY_ID, and the key of OpenLineage's service,
#: for its UI and event log.
_REDACTION = "(?i)secret|password|token|access[._]?key|api[._]?key"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of mode 0700 in the temporary folder, removed at the end.

    A properties file with keys lies in it, which a worker that is killed with -9 cannot remove:
    the next submission on this host does.
    """
    remove_orphans(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the folders of dead owners.

    :returns: those that were removed. One that another user owns is left, as is one whose lock
        is not there yet: it has no secret either.
    """
    removed = []
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # Its owner lives, or another one removes it.
        removed.append(folder)
    return removed


def write_properties(folder: Path, settings: Mapping[str, str], base: Path | None) -> Path:
    """Write a properties file of mode 0600.

    Spark reads one properties file, and with one given it does not read
    ``conf/spark-defaults.conf``: so what it would have read is copied to the front.

    :param settings: win over those of ``base``.
    :param base: the file that is replaced, or ``None``.
    """
    lines = [] if base is None else [base.read_text("utf-8").rstrip("\n")]
    lines += [f"{_escape(key, True)}={_escape(value)}" for key, value in settings.items()]
    target = folder / "spark.properties"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return target


def default_properties(environ: Mapping[str, str]) -> Path | None:
    """The ``spark-defaults.conf`` that spark-submit would read in this environment."""
    folder = environ.get("SPARK_CONF_DIR")
    if not folder and environ.get("SPARK_HOME"):
        folder = f"{environ['SPARK_HOME']}/conf"
    file = Path(folder) / "spark-defaults.conf" if folder else None
    return file if file is not None and file.is_file() else None


def cluster_settings(
    master: str, driver: Mapping[str, str], executors: Mapping[str, str]
) -> dict[str, str]:
    """The settings that carry environment variables to a cluster.

    :param master: Spark's master URL; the driver's variables need a way of their own only
        where the cluster starts the driver.
    :param driver: variables of a driver that runs in the cluster; empty for one that does not.
    :param executors: variables of the executors.
    """
    prefix = (
        "spark.kubernetes.driverEnv." if master.startswith("k8s") else "spark.yarn.appMasterEnv."
    )
    settings = {f"{prefix}{name}": value for name, value in driver.items()}
    settings |= {f"spark.executorEnv.{name}": value for name, value in executors.items()}
    if master.startswith("yarn"):
        settings = {name: _SHELL.sub(r"\\\g<0>", value) for name, value in settings.items()}
    return settings


def redaction(theirs: str | None) -> str:
    """The pattern of what Spark's UI and event log hide: the user's, or Spark's own, and what
    hides the variables that carry credentials."""
    if theirs and theirs.endswith(_REDACTION):
        return theirs  # It hides them already.
    return f"(?:{theirs})|{_REDACTION}" if theirs else _REDACTION


def _escape(text: str, key: bool = False) -> str:
    """As ``java.util.Properties`` reads it back."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\t", "\\t")
    if key:
        return re.sub(r"([:=#! ])", r"\\\1", escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
