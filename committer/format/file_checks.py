"""Checks of the options of data files that need no request to the store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from numbers import Integral
from typing import Any

import pyarrow as pa

from ..errors import InvalidInputError
from ..store.encryption import Encryption
from ..store.lifecycle import ARCHIVES
from ..store.upload_parts import PartLimits
from .given_numbers import is_number
from .job_spec import FileOptions

CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_MAX_METADATA = 2048  # S3's limit, bytes of names and values
_MAX_TAGS = 10
#: A name of an HTTP header (RFC 9110, section 5.6.2). Some stores drop other names silently.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARTS = PartLimits()


def check_options(options: FileOptions) -> None:
    """Check the options of data files without a request to the store.

    :raises InvalidInputError: an unknown codec or encryption, a storage class whose objects cannot
        be read at once, a limit that is not a number from 1 on, a part size that S3 does not
        take, more metadata or tags than S3 takes, metadata under a name of this package, or a
        value of another type.
    """
    codec = options.compression
    if codec not in CODECS or not (codec == "none" or pa.Codec.is_available(codec)):
        raise InvalidInputError(
            f"The compression {codec!r} is not available.",
            remedy=f"Choose one of {', '.join(CODECS)}.",
        )
    if options.rows_per_file is not None:
        _check_number(options, "rows_per_file")
    if options.bytes_per_file is not None:
        _check_number(options, "bytes_per_file", whole=False)
    for name in ("row_group_rows", "max_open_partitions"):
        _check_number(options, name)
    _check_number(options, "part_bytes", _PARTS.smallest, _PARTS.largest)
    if options.storage_class in ARCHIVES:
        raise InvalidInputError(
            f"storage_class={options.storage_class!r} is an archive, from which nothing can be "
            "read before it is restored: not even by this job.",
            remedy="Choose a class that is read at once, such as GLACIER_IR or STANDARD_IA.",
        )
    Encryption.named(options.encryption, options.encryption_key)
    _check_metadata(options)
    _check_tags(options)


def _check_number(
    options: FileOptions, name: str, least: int = 1, most: float = inf, whole: bool = True
) -> None:
    value: Any = getattr(options, name)
    is_fit = is_number(value) and (not whole or isinstance(value, Integral))
    if is_fit and least <= float(value) <= most and value != inf:
        return
    limits = f"from {least} on" if most == inf else f"from {least} to {most}"
    raise InvalidInputError(
        f"Invalid {name}={value!r}: it must be a {'whole ' * whole}number {limits}. Nothing was "
        "written.",
        remedy=f"Give such a number, or leave {name} out for {getattr(FileOptions, name)}.",
    )


def _check_texts(name: str, given: object) -> None:
    """Refuse an option that is not a mapping of texts to texts."""
    what = "it must be a mapping of texts to texts"
    if isinstance(given, Mapping):
        wrong = [it for pair in given.items() for it in pair if not isinstance(it, str)]
        if not wrong:
            return
        what = f"{wrong[0]!r} in it is not a text"
    raise InvalidInputError(
        f"Invalid {name}={str(given)[:200]}: {what}. Nothing was written.",
        remedy=f"Give names and values as texts: {name}={{'team': 'lake'}}.",
    )


def _check_metadata(options: FileOptions) -> None:
    _check_texts("metadata", options.metadata)
    for name, value in options.metadata.items():
        if name.lower().startswith("zero-rename"):
            raise InvalidInputError(
                f"The metadata {name!r} is this package's own.", remedy="Choose another name."
            )
        if not _HEADER.fullmatch(name):
            raise InvalidInputError(
                f"The metadata {name!r} has a name that no HTTP header can have. Nothing was "
                "written.",
                remedy="Name it by letters, digits, hyphens, underscores and dots.",
            )
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise InvalidInputError(
                f"The metadata {name!r} is not printable ASCII without blanks around it, which "
                "S3's headers need. Nothing was written.",
                remedy="Encode it, for example in base64 or percent signs.",
            )
    if len({name.lower() for name in options.metadata}) < len(options.metadata):
        raise InvalidInputError(
            f"Two names of the metadata {', '.join(options.metadata)} differ by case alone, and "
            "S3 would keep one of them. Nothing was written.",
            remedy="Rename one of them.",
        )
    if sum(len(n) + len(v) for n, v in options.metadata.items()) > _MAX_METADATA - 64:
        raise InvalidInputError(f"More than S3's {_MAX_METADATA} bytes of metadata per object.")


def _check_tags(options: FileOptions) -> None:
    _check_texts("tags", options.tags)
    if len(options.tags) > _MAX_TAGS:
        raise InvalidInputError(f"{len(options.tags)} tags; S3 takes {_MAX_TAGS} per object.")
    for name, value in options.tags.items():
        if not 1 <= len(name) <= 128 or len(value) > 256 or name.lower().startswith("aws:"):
            raise InvalidInputError(
                f"The tag {name[:140]!r} is not one S3 takes.",
                remedy="Names have 1 to 128 characters and do not begin with aws:, values "
                "at most 256.",
            )
