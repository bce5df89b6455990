"""The wheel of this package that services install which take no zip."""

from __future__ import annotations

import base64
import zipfile
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from ...committer.errors import InvalidInputError
from .package_zip import build_zip

_NAME = "airflow-provider-zero-rename"
_DATE = (2020, 1, 1, 0, 0, 0)


def build_wheel(folder: Path) -> Path:
    """Write a wheel of what a Spark application needs of the installed package.

    It asks for what the package asks for without extras, so that pip installs boto3 and pyarrow
    where they are older. Its form is that of the PyPA's binary distribution format, 1.0.

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
            _add(archive, f"{name}.dist-info/{file}", lines)
        record = f"{name}.dist-info/RECORD"
        lines = [_recorded(it, archive.read(it)) for it in archive.namelist()]
        _add(archive, record, [*lines, f"{record},,"])
    return made


def _add(archive: zipfile.ZipFile, name: str, lines: list[str]) -> None:
    # Fixed dates, so that equal sources make equal wheels.
    entry = zipfile.ZipInfo(name, date_time=_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, "".join(f"{line}\n" for line in lines))


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"
