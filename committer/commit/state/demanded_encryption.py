"""Encryption that a bucket's policy demands of each object, searched after a write was refused."""

from __future__ import annotations

from ...errors import StoreRefusedError
from ...format.layout import TableRoot
from ...store.encryption import Algorithm, Encryption
from ...store.requests import DefaultEncryption, Delete, Done, ObjectSettings, PutFile, Step
from .context import Context


def find_demanded(context: Context) -> Step[Encryption | None]:
    """Find an encryption for objects, if the store refuses them as this process writes them.

    Tried are the bucket's own encryption, if the store reports it, and those without a key.
    Requests: one if nothing is refused; else up to five. Objects that were written are removed
    again.

    :returns: ``None``: the store refuses nothing, or refuses every encryption that was tried.
    """
    key = context.root.probe_key(f"{context.write_id()}-encryption")
    if (yield from _takes(key, None)):
        return None
    own = yield from DefaultEncryption()
    likely = [own] if isinstance(own, Encryption) else []
    for encryption in dict.fromkeys(
        (*likely, Encryption(Algorithm.SSE_S3), Encryption(Algorithm.SSE_KMS))
    ):
        if (yield from _takes(key, encryption)):
            return encryption
    return None


def _takes(key: str, encryption: Encryption | None) -> Step[bool]:
    try:
        answer = yield from PutFile(key, b"", ObjectSettings(encryption=encryption))
    except StoreRefusedError:
        return False
    yield from Delete(key)
    return isinstance(answer, Done)


def encryption_refused(
    root: TableRoot, named: Encryption | None, demanded: Encryption
) -> StoreRefusedError:
    """Build the error of a job whose objects the bucket refuses for their encryption."""
    asked = "names none" if named is None else f"names {named}"
    return StoreRefusedError(
        f"The bucket {root.bucket!r} takes only objects that name their encryption, {demanded}, "
        f"and the job {asked}. Nothing was written.",
        remedy=f"Give {as_arguments(demanded)}: the table keeps it for all jobs and maintenance.",
    )


def as_arguments(encryption: Encryption) -> str:
    """Return an encryption as the arguments that name it for a job."""
    key = f" and encryption_key={encryption.key!r}" if encryption.key else ""
    return f"encryption={str(encryption.algorithm)!r}{key}"
