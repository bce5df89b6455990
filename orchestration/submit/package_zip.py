"""The zip of this package that spark-submit hands to executors (``--py-files``)."""

from __future__ import annotations

import zipfile
from pathlib import Path

from ...committer.errors import InvalidInputError

#: What a Spark application needs. The sub-packages for Airflow stay at home.
_PARTS = ("committer", "s3a", "spark")
_DISCOVERED = "pyspark_zero_rename.py"


def build_zip(folder: Path) -> Path:
    """Write ``zero_rename.zip`` from the installed package.

    A zip given by ``--py-files`` is not searched for data sources: the application calls
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
    # Beside the package where it is installed, and in it in a checkout.
    for place in (package.parent, package):
        if (place / _DISCOVERED).is_file():
            sources[_DISCOVERED] = place / _DISCOVERED
            break
    target = folder / "zero_rename.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(sources):
            # Fixed dates, so that equal sources make equal zips.
            entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, sources[name].read_bytes())
    return target
