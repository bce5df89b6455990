"""Importers of zip archives once ``spare_unchanged_archives()`` was called: they find what plain
ones find, and read an archive that has not changed once."""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import sys
import time
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zero_rename.spark import zip_archives

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="importers read when they are next asked"
)


def make(path: Path, **modules: int) -> None:
    """Write an archive of modules with a value each, and of a package; in place where it exists."""
    built = path.with_name("built.zip")
    with zipfile.ZipFile(built, "w") as archive:
        archive.writestr("zip_of_a_test/__init__.py", "")
        archive.writestr("zip_of_a_test/inner/__init__.py", "")
        for name, value in modules.items():
            archive.writestr(f"{name}.py", f"value = {value}")
    shutil.copyfile(built, path)
    built.unlink()


def value_of(name: str) -> int:
    return importlib.import_module(name).value


def importers(path: Path) -> list[Any]:
    found = sys.path_importer_cache.items()
    return [importer for name, importer in found if name.startswith(str(path)) and importer]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An archive on the path, with two importers. Its modules are forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    monkeypatch.setattr(
        zipimport.zipimporter, "invalidate_caches", zip_archives._read_anew
    )  # Put back later.
    monkeypatch.setattr(zip_archives, "_readings", {})
    path = tmp_path / "modules.zip"
    make(path, first=1)
    monkeypatch.syspath_prepend(path)
    assert value_of("first") == 1
    importlib.import_module("zip_of_a_test.inner")
    assert len(importers(path)) == 2
    yield path
    for name in set(sys.modules) - before:
        if name.startswith(("zip_of_a_test", "first", "second", "late")):
            del sys.modules[name]
    zipimport._zip_directory_cache.pop(str(path), None)  # pyrefly: ignore[missing-attribute]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], int]:
    """How often an archive's directory has been read since."""
    seen: list[str] = []
    read: Any = zipimport._read_directory  # pyrefly: ignore[missing-attribute]

    def noted(archive: str) -> Any:
        seen.append(archive)
        return read(archive)

    monkeypatch.setattr(zipimport, "_read_directory", noted)
    return lambda path: seen.count(str(path))


@pytest.fixture
def spared(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive after a task of ours and the next one's start; it counts as old."""
    zip_archives.spare_unchanged_archives()
    monkeypatch.setattr(zip_archives, "_TICK", 0.0)
    importlib.invalidate_caches()
    assert str(archive) in zip_archives._readings, "nothing is spared: the test shows nothing"
    return archive


def test_plain_importers_read_at_each_call(archive: Path, reads: Callable[[Path], int]) -> None:
    """What is spared."""
    importlib.invalidate_caches()
    assert reads(archive) == 2


def test_unchanged_archive_is_read_once_for_all_importers(
    archive: Path, reads: Callable[[Path], int], request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("spared")
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert reads(archive) == 1
    plain = zipimport._read_directory(str(archive))  # pyrefly: ignore[missing-attribute]
    assert [importer._files for importer in importers(archive)] == [plain, plain]


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_changed_archive_is_read_again(spared: Path, how: str) -> None:
    if how == "in place":
        make(spared, first=1, second=2)
    else:
        make(spared.with_name("other.zip"), first=1, second=2)
        os.replace(spared.with_name("other.zip"), spared)
    with pytest.raises(ImportError):
        value_of("second")
    importlib.invalidate_caches()
    assert value_of("second") == 2


def test_archive_of_same_size_and_time_is_read_again(spared: Path) -> None:
    make(spared, third=1)
    before = spared.stat()
    make(spared, first=1)
    os.utime(spared, ns=(before.st_atime_ns, before.st_mtime_ns))
    importlib.invalidate_caches()
    make(spared, third=3)
    os.utime(spared, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = spared.stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    importlib.invalidate_caches()
    assert value_of("third") == 3


def test_archive_that_changed_just_now_is_read_at_each_call(
    archive: Path, reads: Callable[[Path], int]
) -> None:
    """It may change again within the same tick of its clock."""
    zip_archives.spare_unchanged_archives()
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert reads(archive) == 4


def test_archive_from_the_future_is_read_at_each_call(
    archive: Path, reads: Callable[[Path], int]
) -> None:
    zip_archives.spare_unchanged_archives()
    future = time.time() + 3600
    os.utime(archive, (future, future))
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert reads(archive) == 4


def test_removed_archive_has_no_modules_until_it_is_back(spared: Path) -> None:
    away = spared.with_name("away.zip")
    spared.rename(away)
    importlib.invalidate_caches()
    assert all(importer._files == {} for importer in importers(spared))
    assert str(spared) not in zipimport._zip_directory_cache  # pyrefly: ignore[missing-attribute]
    away.rename(spared)
    importlib.invalidate_caches()
    assert all("first.py" in importer._files for importer in importers(spared))


def test_damaged_archive_has_no_modules_until_it_is_mended(spared: Path) -> None:
    spared.write_bytes(b"no archive")
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert all(importer._files == {} for importer in importers(spared))
    assert str(spared) not in zipimport._zip_directory_cache  # pyrefly: ignore[missing-attribute]
    make(spared, second=2)
    importlib.invalidate_caches()
    assert value_of("second") == 2


def test_archive_replaced_while_it_is_read_is_read_again(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Any = zipimport._read_directory  # pyrefly: ignore[missing-attribute]

    def replaced(path: str) -> Any:
        found = read(path)
        if path == str(archive) and not (archive.with_name("done")).exists():
            archive.with_name("done").touch()
            make(archive, second=2)
        return found

    zip_archives.spare_unchanged_archives()
    monkeypatch.setattr(zip_archives, "_TICK", 0.0)
    monkeypatch.setattr(zipimport, "_read_directory", replaced)
    importlib.invalidate_caches()
    importlib.invalidate_caches()
    assert value_of("second") == 2


def test_new_archive_is_found_also_where_its_path_was_known_before(spared: Path) -> None:
    late = spared.with_name("late.zip")
    sys.path.insert(1, str(late))  # As Spark puts --py-files there.
    importlib.invalidate_caches()
    with pytest.raises(ImportError):
        value_of("late")
    make(late, late=3)
    importlib.invalidate_caches()
    assert value_of("late") == 3


def test_cache_emptied_by_other_code_is_filled_again(spared: Path) -> None:
    """As setuptools and pip do it."""
    zipimport._zip_directory_cache.pop(str(spared))  # pyrefly: ignore[missing-attribute]
    importlib.invalidate_caches()
    assert "first.py" in zipimport._zip_directory_cache[str(spared)]  # pyrefly: ignore[missing-attribute]


def test_method_put_there_by_other_code_is_left_alone(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def theirs(importer: Any) -> None:
        """Do nothing."""

    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", theirs)
    zip_archives.spare_unchanged_archives()
    assert zipimport.zipimporter.invalidate_caches is theirs


def test_nothing_is_changed_on_windows(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There Spark uses no worker again, and no time of a file tells of each change."""
    plain = zipimport.zipimporter.invalidate_caches
    monkeypatch.setattr(sys, "platform", "win32")
    zip_archives.spare_unchanged_archives()
    assert zipimport.zipimporter.invalidate_caches is plain


def test_importer_is_pickled_without_this_package(spared: Path) -> None:
    packed = pickle.dumps(importers(spared)[0])
    assert b"zero_rename" not in packed
    assert pickle.loads(packed).find_spec("first") is not None
