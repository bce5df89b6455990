"""Manifest: a folded list of a partition's files, named by its head instead of many decisions."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import Annotated

from ...errors import RecordDamagedError
from ...store.conditional_put import write_id_of
from ...store.requests import LIST_BYTES
from ..layout import TableRoot
from .codec import damaged, decode, encode
from .data_file import DataFile
from .marks import LEFT_OUT

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class ManifestOrigin:
    """The partition of a manifest, and the ETag of the head that it was made for."""

    partition: str
    follows: str | None = None

    @staticmethod
    def decode(body: bytes, key: str) -> ManifestOrigin:
        """Read the origin from a manifest's bytes.

        :raises RecordDamagedError: they are not a manifest.
        """
        return decode(_plain(body, key), "manifest", key).read(ManifestOrigin)


def write_id_of_manifest(body: bytes) -> str | None:
    """Return the write id in a manifest's bytes; ``None`` if they are not a manifest."""
    try:
        return write_id_of(_plain(body, ""))
    except RecordDamagedError:
        return None


def _plain(body: bytes, key: str) -> bytes:
    """Return a manifest's JSON, decompressed; former versions did not compress it."""
    if not body.startswith(_GZIP):
        return body
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = unpacking.decompress(body, LIST_BYTES)
    except zlib.error as error:
        raise damaged(key, "", f"is a list of files that cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise damaged(key, "", "is a list of files that is cut off, or larger than any")
    return plain


@dataclass(frozen=True)
class Manifest:
    """The files that a partition held when its decisions were folded into this object.

    :param follows: the ETag of the head that is to be swapped for one that names this manifest.
        While the head has that ETag, the swap may be under way. ``None`` in manifests of former
        versions.
    """

    partition: str
    write_id: str
    files: tuple[DataFile, ...]
    follows: Annotated[str | None, LEFT_OUT] = None

    def encode(self) -> bytes:
        """Return the manifest's bytes, compressed to a quarter of their number."""
        return gzip.compress(encode("manifest", self.write_id, self, format=2), mtime=0)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, partition: str) -> Manifest:
        document = decode(_plain(body, key), "manifest", key)
        manifest = document.read(Manifest)
        if manifest.partition != partition:
            raise document.damaged("partition", f"is not {partition!r}")
        for number, file in enumerate(manifest.files):
            member = f"files[{number}].key"
            document.check_place(member, file.key, root)
            if root.partition_of_data_key(file.key) != partition:
                raise document.damaged(member, f"lies outside the partition {partition!r}")
        return manifest
