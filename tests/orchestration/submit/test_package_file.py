from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from support.waiting import STUCK
from zero_rename.orchestration.submit.package_file import build_zip

ROOT = Path(__file__).parents[3]


def test_it_holds_what_executors_need_and_no_more(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_zip(tmp_path)).namelist()
    assert "zero_rename/__init__.py" in names
    assert "zero_rename/committer/__init__.py" in names
    assert "zero_rename/spark/__init__.py" in names
    assert {Path(name).parts[1] for name in names if name.startswith("zero_rename/")} == {
        "__init__.py",
        "committer",
        "layouts",
        "log",
        "s3a",
        "spark",
        "tables",
    }


def test_it_holds_every_module_of_every_room(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(build_zip(tmp_path)).namelist())
    modules = {
        f"zero_rename/{path.relative_to(ROOT).as_posix()}"
        for part in ("committer", "layouts", "log", "s3a", "spark", "tables")
        for path in (ROOT / part).rglob("*.py")
    }
    assert "zero_rename/committer/store/requests.py" in modules
    assert modules <= names


def test_every_module_imports_from_it(tmp_path: Path) -> None:
    archive = build_zip(tmp_path)
    names = [name.removesuffix(".py") for name in zipfile.ZipFile(archive).namelist()]
    modules = [name.removesuffix("/__init__").replace("/", ".") for name in names]
    program = (
        f"import sys, importlib; sys.path.insert(0, {str(archive)!r}); "
        "[importlib.import_module(name) for name in sys.argv[1:]]; "
        "import zero_rename; print(zero_rename.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, *modules], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert str(archive) in answer.stdout


def test_it_works_where_nothing_else_of_ours_is(tmp_path: Path) -> None:
    """Imported from the zip itself, not from the installed package."""
    archive = build_zip(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import zero_rename.committer as c; "
        "import zero_rename.spark.options as o, zero_rename.spark.s3a.recorded_write as w; "
        "print(c.__file__, o.__file__, w.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=STUCK, check=True
    )
    assert all(str(archive) in name for name in answer.stdout.split())


def test_equal_sources_make_equal_zips(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert build_zip(tmp_path / "a").read_bytes() == build_zip(tmp_path / "b").read_bytes()
