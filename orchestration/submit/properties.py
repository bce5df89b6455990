"""Private files of a submission: a folder, and Spark's properties file in it."""

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
#: File that the folder's owner locks. The lock ends with the process, in any case; it also works
#: between containers that share the folder, where a process id means nothing.
_LOCK = "owner.lock"
#: Characters with a special meaning to bash between double quotes. YARN writes a container's
#: environment into a script like that, without escaping it
#: (``ContainerLaunch.UnixShellScriptBuilder.env``).
_SHELL = re.compile(r'["$`\\]')
#: The setting with the pattern that :func:`redaction` extends.
REDACTION = "spark.redaction.regex"
#: The setting of the option ``--py-files``; Spark ignores it if the option is given.
PY_FILES = "spark.submit.pyFiles"
#: Names whose values Spark's UI and event log hide: Spark's own pattern, with underscores for
#: AWS_ACCESS_KEY_ID, and the key of OpenLineage's service.
_REDACTION = "(?i)secret|password|token|access[._]?key|api[._]?key"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder of mode 0700 in the temporary folder; remove it at the end of the block.

    It holds a properties file with keys. A worker that is killed with -9 cannot remove it: the
    next submission on this host does.
    """
    remove_orphans(Path(tempfile.gettempdir()))
    while True:
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
            folder = Path(name)
            with (folder / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Before the lock, another process may take the folder for a dead one's, and remove
                # it. It holds the lock meanwhile.
                if (folder / _LOCK).exists():
                    yield folder
                    return


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the folders of dead processes.

    A folder of another user stays, and a folder without a lock file: it holds no secret yet.

    :return: the folders that were removed.
    """
    removed = []
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # Its owner lives, or another process removes it.
        removed.append(folder)
    return removed


def write_properties(folder: Path, settings: Mapping[str, str], base: Path | None) -> Path:
    """Write a properties file of mode 0600.

    Spark reads only one properties file. If one is given, it does not read
    ``conf/spark-defaults.conf``, so the content of the file that it would have read is copied
    first, in whatever encoding it is.

    :param settings: they win over those of ``base``.
    :param base: the file that Spark would have read, or ``None``.
    """
    # The empty line: a backslash at the end of the copied file would join ours to its last one.
    lines = [] if base is None else [base.read_bytes().rstrip(b"\n"), b""]
    lines += [f"{_escape(key, True)}={_escape(it)}".encode() for key, it in settings.items()]
    target = folder / "spark.properties"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    return target


def default_properties(environ: Mapping[str, str]) -> Path | None:
    """Return the ``spark-defaults.conf`` that spark-submit would read; ``None``: there is none."""
    folder = environ.get("SPARK_CONF_DIR")
    if not folder and environ.get("SPARK_HOME"):
        folder = f"{environ['SPARK_HOME']}/conf"
    file = Path(folder) / "spark-defaults.conf" if folder else None
    return file if file is not None and file.is_file() else None


def cluster_settings(
    master: str, driver: Mapping[str, str], executors: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that pass environment variables to a cluster.

    :param master: Spark's master URL.
    :param driver: variables of the driver if the cluster starts it, else empty: then it has the
        environment of spark-submit.
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
    """Return the pattern of names whose values Spark's UI and event log hide.

    It is the user's pattern, or Spark's own, extended by the variables with credentials.
    """
    if theirs and theirs.endswith(_REDACTION):
        return theirs  # It hides them already.
    return f"(?:{theirs})|{_REDACTION}" if theirs else _REDACTION


def _escape(text: str, key: bool = False) -> str:
    """Escape a key or a value for ``java.util.Properties``."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\t", "\\t")
    if key:
        return re.sub(r"([:=#! ])", r"\\\1", escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
