"""Set-up: what it refuses, and what makes it run again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import bootstrap
from tools.bootstrap import SetupError

ROOT = Path(__file__).resolve().parents[2]


def test_an_old_python_is_told_what_to_do() -> None:
    with pytest.raises(SetupError, match=r"Python 3\.11 or newer is needed, .* is 3\.9.*PYTHON="):
        bootstrap.check_python((3, 9))
    bootstrap.check_python((3, 11))


def test_the_set_up_can_be_parsed_by_pythons_too_old_for_it() -> None:
    # Else they would say SyntaxError instead of what is needed.
    import ast

    ast.parse((ROOT / "tools" / "bootstrap.py").read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_391"', 8),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_javas_version_is_read(output: str, major: int | None) -> None:
    assert bootstrap.java_version(output) == major


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH without Java and apt."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{text}\n")
    path.chmod(0o755)


def test_without_java_the_message_names_the_remedy(no_java: Path) -> None:
    with pytest.raises(SetupError, match=r"Java 17 or newer.*apt-get install.*none was found"):
        bootstrap.ensure_java()


def test_an_old_java_is_named(no_java: Path) -> None:
    program(no_java / "java", "echo 'java version \"1.8.0_391\"' >&2")
    with pytest.raises(SetupError, match=r"Java 8 was found"):
        bootstrap.ensure_java()


def test_java_home_comes_before_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(no_java / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(no_java / "elsewhere"))
    with pytest.raises(SetupError, match="JAVA_HOME"):
        bootstrap.ensure_java()


def test_root_gets_java_by_apt(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A release that has no Java 17 any more.
    program(no_java / "apt-cache", '[ "$2" = openjdk-21-jre-headless ]')
    java = f"printf '#!/bin/sh\\necho openjdk version \\\\\"21.0.4\\\\\" >&2\\n' > {no_java}/java"
    program(
        no_java / "apt-get",
        f'echo "$@" >> {no_java}/calls\n[ "$1" = install ] || exit 0\n{java}\n'
        f"/bin/chmod +x {no_java}/java",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    bootstrap.ensure_java()
    calls = (no_java / "calls").read_text().splitlines()
    assert calls == ["update -qq", "install -qq -y --no-install-recommends openjdk-21-jre-headless"]


def test_who_is_not_root_installs_nothing(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(no_java / "apt-get", f"touch {no_java}/called")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="sudo"):
        bootstrap.ensure_java()
    assert not (no_java / "called").exists()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a few files."""
    for name in (
        "pyproject.toml",
        bootstrap.LOCK,
        "tools/bootstrap.py",
        "tools/compile_pyspark.py",
    ):
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
