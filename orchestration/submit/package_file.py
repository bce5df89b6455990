"""This package as a file: a zip for spark-submit (``--py-files``), and a wheel.

The wheel is for services that install wheels and take no zip.
"""

from __future__ import annotations

import base64
import zipfile
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ...committer.errors import InvalidInputError

if TYPE_CHECKING:
    from ...committer.store.requests import Step

#: Sub-packages that a Spark application needs. Those for Airflow are not sent.
_PARTS = ("committer", "log", "layouts", "tables", "s3a", "spark")
_DISCOVERED = "pyspark_zero_rename.py"
_NAME = "airflow-provider-zero-rename"
#: A fixed date, so that equal sources make equal files.
_DATE = (2020, 1, 1, 0, 0, 0)


def build_zip(folder: Path) -> Path:
    """Write ``zero_rename.zip`` from the installed package.

    Spark does not search a zip of ``--py-files`` for data sources: the application must call
    ``zero_rename.spark.register(spark)``.

    :param folder: where to write it.
    :raises InvalidInputError: the installed package is not there as files.
    """
    package = Path(__file__).parent.parent.parent
    sources = {
        f"zero_rename/{source.relative_to(package).as_posix()}": source
        for part in _PARTS
        for source in sorted((package / part).rglob("*.py"))
    }
    root = package / "__init__.py"
    if not root.is_file() or not all(any(f"/{part}/" in n for n in sources) for part in _PARTS):
        raise InvalidInputError(
            "The installed package cannot be shipped to executors: its files are not on disk.",
            remedy="Install it there as well, and give ship_package=False.",
        )
    sources["zero_rename/__init__.py"] = root
    # Beside the package if it is installed, and inside it in a checkout.
    for place in (package.parent, package):
        if (place / _DISCOVERED).is_file():
            sources[_DISCOVERED] = place / _DISCOVERED
            break
    target = folder / "zero_rename.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(sources):
            _add(archive, name, sources[name].read_bytes())
    return target


def build_wheel(folder: Path) -> Path:
    """Write a wheel with the parts of the installed package that a Spark application needs.

    Its requirements are those of the package without extras, so that pip installs newer versions of
    boto3 and pyarrow if the installed ones are too old. It has the PyPA's binary distribution
    format, 1.0.

    :param folder: where to write it.
    :raises InvalidInputError: the installed package is not there as files, or has no metadata.
    """
    try:
        installed = metadata(_NAME)
    except PackageNotFoundError as error:
        raise InvalidInputError(
            "The package cannot be sent as a wheel: it is on the path, but not installed.",
            remedy="Install it on this worker, or on the cluster and give ship_package=False.",
        ) from error
    name = f"{_NAME.replace('-', '_')}-{installed['Version']}"
    needs = [it for it in installed.get_all("Requires-Dist") or () if "extra ==" not in it]
    described = {
        "METADATA": [
            *("Metadata-Version: 2.1", f"Name: {_NAME}", f"Version: {installed['Version']}"),
            *(f"Requires-Dist: {need}" for need in needs),
        ],
        "WHEEL": ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"],
    }
    made = build_zip(folder).rename(folder / f"{name}-py3-none-any.whl")
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as archive:
        for file, lines in described.items():
            _add(archive, f"{name}.dist-info/{file}", _text(lines))
        record = f"{name}.dist-info/RECORD"
        lines = [_recorded(it, archive.read(it)) for it in archive.namelist()]
        _add(archive, record, _text([*lines, f"{record},,"]))
    return made


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def put_once(key: str, content: bytes) -> Step[bool]:
    """Write an object unless it exists. Return whether it exists now."""
    from ...committer.store.requests import Done, Found, Head, Put

    if isinstance((yield from Head(key)), Found):
        return True
    return isinstance((yield from Put(key, content, content_type="application/zip")), Done)
