"""A step of the package's build: the jar by which Delta on Spark commits with a condition.

setuptools calls :class:`BuildWithLogStore` for each wheel and editable install, as
``pyproject.toml`` says. The log store is compiled against ``java/stubs``, which have of Delta and
Hadoop only what it calls, so that a build needs a JDK and no network. Without a JDK the package is
built without the jar.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

_JAVA = Path(__file__).resolve().parent.parent / "java"
STUBS = _JAVA / "stubs"
#: What is compiled and packed.
SOURCES = sorted((_JAVA / "zero_rename").glob("*.java"))
#: Where the package has the jar; ``tables/log_store.py`` looks for it there.
JAR = Path("zero_rename", "tables", "zero-rename-log-store.jar")
#: Delta's storage jar is compiled for it, too.
_RELEASE = 11


class BuildWithLogStore(build_py):
    """setuptools' copying of modules, and the jar beside them."""

    def run(self) -> None:
        super().run()
        compiler = find_compiler()
        if compiler is None:
            self.warn(f"no {JAR.name}: there is no javac of Java {_RELEASE} or later on PATH")
        else:
            pack(compiler, ["-implicit:none", "-sourcepath", str(STUBS)], self._jar())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        # An editable install links or copies what is named here.
        return [*outputs, str(self._jar())] if self._jar().exists() else outputs

    def _jar(self) -> Path:
        return Path(self.build_lib) / JAR  # pyrefly: ignore[bad-argument-type]


def find_compiler() -> str | None:
    """Find a javac on PATH that is new enough."""
    compiler = shutil.which("javac")
    if compiler is None:
        return None
    done = subprocess.run([compiler, "-version"], capture_output=True, text=True, check=False)
    version = re.match(r"javac (\d+)", done.stdout)
    return compiler if version and int(version[1]) >= _RELEASE else None


def pack(compiler: str, path: list[str], jar: Path) -> None:
    """Compile the sources and pack their classes, with the same bytes whenever it is done.

    :param path: options that say where the compiler finds the classes that the sources use.
    :raises CompileError: the compiler refuses them.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ["--release", str(_RELEASE), "-proc:none", "-Xlint:all,-classfile", *path]
        command = [compiler, *options, "-d", folder, *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{jar.name} was not built, javac failed:\n{done.stderr}")
        jar.parent.mkdir(parents=True, exist_ok=True)
        with ZipFile(jar, "w", ZIP_DEFLATED) as archive:
            archive.writestr(ZipInfo("META-INF/MANIFEST.MF"), "Manifest-Version: 1.0\n")
            for file in sorted(Path(folder).rglob("*.class")):
                name = file.relative_to(folder).as_posix()
                archive.writestr(ZipInfo(name), file.read_bytes())
