"""Build the jar of the log store by which Delta on Spark commits with a condition.

``python tools/build_log_store.py`` compiles ``java/`` against the jars of ``make lake-jars`` and
writes ``build/zero-rename-log-store.jar``. It is no part of the wheel: a wheel is built without a
network, and Delta's storage jar, against which this is compiled, comes by one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.environments import SPARK_4_1
from tools.fetch_lake_jars import delta_folder

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "java"
JAR = ROOT / "build" / "zero-rename-log-store.jar"
#: The class that a session names.
CLASS = "zero_rename.ConditionalLogStore"
#: The Java of Spark 4.
_RELEASE = "17"


class LogStoreError(Exception):
    """The jar cannot be built; the message says what to do."""


def build(jar: Path = JAR) -> Path:
    """Build the jar; return its path.

    :raises LogStoreError: there is no compiler, or nothing to compile against.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise LogStoreError("There is no javac: install a JDK of Java 17, openjdk-17-jdk-headless.")
    jars = delta_folder().cached()
    hadoop = sorted((SPARK_4_1.site / "pyspark" / "jars").glob("hadoop-client-api-*.jar"))
    if jars is None or not hadoop:
        raise LogStoreError("There are no jars to compile against: run make lake-jars.")
    with tempfile.TemporaryDirectory() as folder:
        paths = ":".join(map(str, (*jars, *hadoop)))
        sources = map(str, sorted(SOURCES.rglob("*.java")))
        command = [compiler, "--release", _RELEASE, "-Xlint:all,-classfile", "-cp", paths]
        done = subprocess.run([*command, "-d", folder, *sources], capture_output=True, text=True)
        if done.returncode:
            raise LogStoreError(f"javac failed:\n{done.stderr}")
        _pack(Path(folder), jar)
    return jar


def _pack(folder: Path, jar: Path) -> None:
    """Pack classes, with the same bytes whenever it is done."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(jar, "w", ZIP_DEFLATED) as archive:
        archive.writestr(ZipInfo("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\n")
        for path in sorted(folder.rglob("*.class")):
            archive.writestr(ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())


def main() -> int:
    try:
        print(build())
    except LogStoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
