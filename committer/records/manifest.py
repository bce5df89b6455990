"""Folded list of a partition's files, which heads name instead of many decisions."""

from __future__ import annotations

from dataclasses import dataclass

from ..layout import TableRoot
from .codec import decode, encode
from .data_file import DataFile


@dataclass(frozen=True)
class _Partition:
    """As much of a manifest as tells what it is of."""

    partition: str


def partition_of_manifest(body: bytes, key: str) -> str:
    """The partition whose files a manifest lists.

    :raises RecordDamagedError: it is none.
    """
    return decode(body, "manifest", key).read(_Partition).partition


@dataclass(frozen=True)
class Manifest:
    """The files a partition held when many decisions became one object."""

    partition: str
    write_id: str
    files: tuple[DataFile, ...]

    def encode(self) -> bytes:
        return encode("manifest", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, partition: str) -> Manifest:
        document = decode(body, "manifest", key)
        manifest = document.read(Manifest)
        if manifest.partition != partition:
            raise document.damaged("partition", f"is not {partition!r}")
        for number, file in enumerate(manifest.files):
            if root.partition_of_data_key(file.key) != partition:
                raise document.damaged(
                    f"files[{number}].key", f"lies outside the partition {partition!r}"
                )
        return manifest
