"""Checks of the options of data files that need no request to the store."""

from __future__ import annotations

import pyarrow as pa

from ..errors import InvalidInputError
from ..store.encryption import Encryption
from ..store.lifecycle import ARCHIVES
from .job_spec import FileOptions

CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_MAX_METADATA = 2048  # S3's limit, bytes of names and values
_MAX_TAGS = 10


def check_options(options: FileOptions) -> None:
    """Check the options of data files without a request to the store.

    :raises InvalidInputError: an unknown codec or encryption, a storage class whose objects cannot
        be read at once, a limit below 1, more metadata or tags than S3 takes, or metadata under a
        name of this package.
    """
    codec = options.compression
    if codec not in CODECS or not (codec == "none" or pa.Codec.is_available(codec)):
        raise InvalidInputError(
            f"The compression {codec!r} is not available.",
            remedy=f"Choose one of {', '.join(CODECS)}.",
        )
    for name in ("rows_per_file", "bytes_per_file", "row_group_rows", "max_open_partitions"):
        value = getattr(options, name)
        optional = name.endswith("_per_file")
        if (value is None and not optional) or (value is not None and value < 1):
            raise InvalidInputError(f"{name} is {value}; it must be at least 1.")
    if options.storage_class in ARCHIVES:
        raise InvalidInputError(
            f"storage_class={options.storage_class!r} is an archive, from which nothing can be "
            "read before it is restored: not even by this job.",
            remedy="Choose a class that is read at once, such as GLACIER_IR or STANDARD_IA.",
        )
    Encryption.named(options.encryption, options.encryption_key)
    _check_metadata(options)
    _check_tags(options)


def _check_metadata(options: FileOptions) -> None:
    for name, value in options.metadata.items():
        if name.lower().startswith("zero-rename"):
            raise InvalidInputError(
                f"The metadata {name!r} is this package's own.", remedy="Choose another name."
            )
        if not (name and _is_plain(name) and _is_plain(value)):
            raise InvalidInputError(
                f"The metadata {name!r} is not printable ASCII, which S3's headers need.",
                remedy="Encode it, for example in base64 or percent signs.",
            )
    if sum(len(n) + len(v) for n, v in options.metadata.items()) > _MAX_METADATA - 64:
        raise InvalidInputError(f"More than S3's {_MAX_METADATA} bytes of metadata per object.")


def _check_tags(options: FileOptions) -> None:
    if len(options.tags) > _MAX_TAGS:
        raise InvalidInputError(f"{len(options.tags)} tags; S3 takes {_MAX_TAGS} per object.")
    for name, value in options.tags.items():
        if not 1 <= len(name) <= 128 or len(value) > 256 or name.lower().startswith("aws:"):
            raise InvalidInputError(
                f"The tag {name[:140]!r} is not one S3 takes.",
                remedy="Names have 1 to 128 characters and do not begin with aws:, values "
                "at most 256.",
            )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
