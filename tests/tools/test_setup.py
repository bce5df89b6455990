"""Set-up: what it refuses and what makes it run again, and what else the make targets fetch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tools import bootstrap, ceph, fetch_s3a_jars, s3_servers
from tools.bootstrap import SetupError
from tools.compile_pyspark import add_compiled
from tools.maven_jars import FetchError, Jar
from tools.server_process import ServerError

ROOT = Path(__file__).resolve().parents[2]


def test_an_old_python_is_told_what_to_do() -> None:
    with pytest.raises(SetupError, match=r"Python 3\.11 or newer is needed, .* is 3\.9.*PYTHON="):
        bootstrap.check_python((3, 9))
    bootstrap.check_python((3, 11))


def test_the_set_up_can_be_parsed_by_pythons_too_old_for_it() -> None:
    # Else they would say SyntaxError instead of what is needed.
    import ast

    ast.parse((ROOT / "tools" / "bootstrap.py").read_text("utf-8"), feature_version=(3, 8))


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH without Java and apt."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "home", "message"),
    [
        (None, None, r"Java 17 or newer.*apt-get install.*none was found"),
        ("Unable to locate a Java Runtime.", None, "none was found"),
        ('java version "1.8.0_391"', None, "Java 8 was found"),
        ('openjdk version "17.0.1"', "elsewhere", "JAVA_HOME"),
    ],
)
def test_without_a_java_that_serves_the_message_names_the_remedy(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, home: str | None, message: str
) -> None:
    if says is not None:
        program(no_java / "java", f"echo '{says}' >&2")
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(no_java / home))
    with pytest.raises(SetupError, match=message):
        bootstrap.ensure_java()


def test_root_gets_java_by_apt(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A release that has no Java 17 any more.
    program(no_java / "apt-cache", '[ "$2" = openjdk-21-jdk-headless ]')
    java = f"printf '#!/bin/sh\\necho openjdk version \\\\\"21.0.4\\\\\" >&2\\n' > {no_java}/java"
    program(
        no_java / "apt-get",
        f'echo "$@" >> {no_java}/calls\n[ "$1" = install ] || exit 0\n{java}\n'
        f"/bin/chmod +x {no_java}/java",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    bootstrap.ensure_java()
    calls = (no_java / "calls").read_text().splitlines()
    assert calls == ["update -qq", "install -qq -y --no-install-recommends openjdk-21-jdk-headless"]


def test_ci_gets_a_compiler_where_java_has_none(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(no_java / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    program(no_java / "apt-cache", "exit 0")
    program(no_java / "apt-get", f'echo "$@" >> {no_java}/calls')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("CI", raising=False)
    bootstrap.ensure_java()
    assert not (no_java / "calls").exists()
    monkeypatch.setenv("CI", "true")
    bootstrap.ensure_java()
    assert "openjdk-17-jdk-headless" in (no_java / "calls").read_text()


def test_who_is_not_root_installs_nothing(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(no_java / "apt-get", f"touch {no_java}/called")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="sudo"):
        bootstrap.ensure_java()
    assert not (no_java / "called").exists()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a few files."""
    tools = ("bootstrap", "compile_pyspark", "log_store_jar")
    names = ("pyproject.toml", *(f"tools/{name}.py" for name in tools))
    for name in (*names, bootstrap.LOCK):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    (tmp_path / "committer").mkdir()
    (tmp_path / "committer" / "job.py").write_text("x = 1\n")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def commands(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run in an environment that is up to date, instead of running it."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    stamp = f"{bootstrap.requirements()}\n{bootstrap.modules()}"
    (checkout / ".venv" / "set-up.sha256").write_text(stamp)
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout / "cache"))
    bootstrap.packages_dir().mkdir(parents=True)
    bootstrap.packages_stamp().touch()
    done: list[str] = []
    required: list[str] = []

    def noted(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        done.append(" ".join(command))
        if "venv" in command:
            for folder in (bootstrap.site_packages(Path(command[-1])), Path(command[-1], "bin")):
                folder.mkdir(parents=True, exist_ok=True)
        if "-r" in command:
            required.append(Path(command[-1]).read_text("utf-8"))
        if "wheel" in command:
            made = required[-1].split()[0].replace("==", "-") + "-py3-none-any.whl"
            Path(command[command.index("--wheel-dir") + 1], made).touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", noted)
    return done


def test_nothing_is_run_where_nothing_changed(commands: list[str]) -> None:
    bootstrap.ensure_environment()
    assert commands == []


def test_a_new_module_is_linked_and_nothing_else_installed(
    commands: list[str], checkout: Path
) -> None:
    (checkout / "committer" / "new.py").write_text("")
    bootstrap.ensure_environment()
    assert [c for c in commands if " -e . " in c]
    assert not [c for c in commands if bootstrap.LOCK in c]
    commands.clear()
    bootstrap.ensure_environment()
    assert commands == []


def test_changed_requirements_are_installed_once_for_all_checkouts(
    commands: list[str], checkout: Path
) -> None:
    with open(checkout / bootstrap.LOCK, "a") as file:
        file.write("\n# changed\n")
    for _ in range(2):
        bootstrap.ensure_environment()
        shutil.rmtree(checkout / ".venv")
    assert len([c for c in commands if c.endswith(bootstrap.LOCK) and "/uv pip" in c]) == 1
    assert len([c for c in commands if " -e . " in c]) == 2


def test_the_environment_has_the_modules_and_commands_of_the_packages(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout / "cache"))
    packages, venv = bootstrap.packages_dir(), checkout / ".venv"
    for folder in (packages, venv):
        bootstrap.create_venv(folder)
    text = "import sys\ndef main():\n    print(sys.prefix)\n"
    (bootstrap.site_packages(packages) / "lent.py").write_text(text)
    command = packages / "bin" / "lent"
    command.write_text(f"#!{packages}/bin/python\nimport lent\nlent.main()\n")
    command.chmod(0o755)
    bootstrap.link_packages(venv)
    lent = venv / "bin" / "lent"
    done = subprocess.run([lent], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(venv)


def test_a_package_without_a_hash_is_not_installed(commands: list[str], checkout: Path) -> None:
    with open(checkout / bootstrap.LOCK, "a") as file:
        file.write("\nintruder==1.0\n")
    with pytest.raises(SetupError, match=r"no hash of intruder==1.0; run make lock"):
        bootstrap.ensure_environment()
    assert not [c for c in commands if c.endswith(bootstrap.LOCK)]


def test_a_failed_command_is_one_paragraph(checkout: Path) -> None:
    with pytest.raises(SetupError, match=r"failed with 3") as raised:
        bootstrap.run([sys.executable, "-c", "raise SystemExit(3)"])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "lock",
    [ROOT / bootstrap.LOCK, *sorted(ROOT.glob("tools/locks/*.lock"))],
    ids=lambda it: it.name,
)
def test_every_package_of_a_lock_file_has_a_hash(lock: Path) -> None:
    pinned = [line for line in lock.read_text("utf-8").splitlines() if "==" in line]
    assert len(bootstrap.lock_entries(lock)) == len(pinned)


def test_compiling_pyspark_leaves_other_links_to_its_archive_as_they_are(tmp_path: Path) -> None:
    # Installers link one file into many environments.
    archive, other = tmp_path / "lib.zip", tmp_path / "cache.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("thing/__init__.py", "VALUE = 42\n")
    other.hardlink_to(archive)
    before = other.read_bytes()
    assert add_compiled(archive) == 1
    assert other.read_bytes() == before
    look = [sys.executable, "-c", "import thing; print(thing.VALUE)"]
    variables = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(look, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"


class TestWhereAServerIsMissing:
    @pytest.fixture(autouse=True)
    def _nothing_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("CI", raising=False)

    @pytest.mark.parametrize(
        ("name", "remedy"),
        [
            ("ceph", "as root: apt-get install ceph-mon ceph-osd radosgw"),
            ("s3mock", "make servers"),
            ("minio", "put its program on PATH"),
        ],
    )
    def test_the_error_names_a_remedy(self, name: str, remedy: str) -> None:
        with (
            pytest.raises(ServerError, match=f"{name} is not there; .*{remedy}"),
            s3_servers.serving(name),
        ):
            pass

    def test_who_is_not_root_installs_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(tmp_path / "bin" / "apt-get", f"/bin/touch {tmp_path}/called")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(ServerError, match=r"cannot be by this user; .*apt-get install"):
            s3_servers.make_ready("ceph")
        assert not (tmp_path / "called").exists()

    def test_root_gets_ceph_by_apt(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "bin"
        made = " ".join(f"{folder}/{name}" for name in ceph._PROGRAMS)
        program(
            folder / "apt-get",
            f'echo "$@" >> {tmp_path}/calls\n[ "$1" = update ] && exit 0\n'
            f"for made in {made}; do echo '#!/bin/sh' > $made; /bin/chmod +x $made; done",
        )
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        s3_servers.make_ready("ceph")
        assert (tmp_path / "calls").read_text().splitlines() == [
            "update -qq",
            "install -qq -y --no-install-recommends ceph-mon ceph-osd radosgw",
        ]


BODY = b"a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(BODY).hexdigest())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs that bring ``BODY``, or what the test says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fetch_s3a_jars, "JARS", (JAR, JAR))
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}")

    class Run:
        brings: dict[str, bytes] = {"mvn": BODY, "java": BODY}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012

        def __call__(self, command: Sequence[str], **_: Any) -> Any:
            name = Path(command[0]).name
            self.asked = [*self.asked, name]
            body = self.brings.get(name)
            if body is not None:
                marked = next(part for part in command if ".part-" in part)
                folder = Path(marked[marked.index("/") :])
                while not folder.name.startswith(".part-"):
                    folder = folder.parent
                (folder / JAR.file_name).write_bytes(body)
            return subprocess.CompletedProcess(command, 0 if body else 1, "", "no such thing")

    fake = Run()
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def test_they_are_fetched_once(run: Any) -> None:
    assert fetch_s3a_jars.cached_jars() is None
    paths = fetch_s3a_jars.jar_folder().fetch()
    assert {path.read_bytes() for path in paths} == {BODY}
    assert run.asked == ["mvn"]
    assert fetch_s3a_jars.jar_folder().fetch() == fetch_s3a_jars.cached_jars() == paths
    assert run.asked == ["mvn"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == [
        "checked.json",
        JAR.file_name,
    ]


@pytest.mark.parametrize("brings", [{}, {"mvn": b"another", "java": b"another"}])
def test_what_cannot_be_had_is_not_kept(run: Any, brings: dict[str, bytes]) -> None:
    run.brings = brings
    with pytest.raises(FetchError, match=r"org.example:thing:1.0 could not be fetched") as caught:
        fetch_s3a_jars.jar_folder().fetch()
    assert ("another file than the pinned one" in str(caught.value)) is bool(brings)
    assert "apt-get install maven" in str(caught.value)
    assert fetch_s3a_jars.cached_jars() is None
    assert list(fetch_s3a_jars.jar_folder().path.iterdir()) == []


def test_the_pinned_versions_belong_together() -> None:
    from pyspark import __file__ as spark

    hadoop = next((Path(spark).parent / "jars").glob("hadoop-client-api-*.jar"))
    aws = next(jar for jar in fetch_s3a_jars.JARS if jar.artifact == "hadoop-aws")
    assert hadoop.name == f"hadoop-client-api-{aws.version}.jar"
    assert all(len(jar.sha256) == 64 for jar in fetch_s3a_jars.JARS)
