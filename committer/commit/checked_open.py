"""Opening of a job after checking that the credentials can also finish it."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from ..errors import StoreRefusedError, about
from ..format.job_spec import JobSpec
from ..store.driver import Driver
from .open import checked, open_job, settle_aborted
from .state.context import Context
from .state.demanded_encryption import encryption_refused, find_demanded
from .state.job_state import OpenedJob
from .state.rights import missing_rights

#: By driver, the roots of the tables for which it was found to have all rights.
_seen: WeakKeyDictionary[Driver, set[str]] = WeakKeyDictionary()


def open_checked(driver: Driver, context: Context, spec: JobSpec) -> OpenedJob:
    """Begin a job after checking that its credentials can also finish it.

    The check sends four requests at once, the first time that this process writes to the table with
    these credentials. Afterwards clean up what aborted jobs have left.

    :raises StoreRefusedError: a right is missing; nothing was written.
    :raises ZeroRenameError: as :func:`.commit.open.open_job`.
    """
    with about(context.root.url):
        checked(context, spec)  # Invalid input is refused before anything is sent.
        # Encrypt from the first request on: a bucket's policy may deny requests without it.
        driver.encrypt(context.root.prefix, spec.files.encrypted)
        driver.encrypt_by_default(spec.default_encryption, context.root.prefix)
        default = driver.default_encryption(context.root.prefix)
        spec = replace(spec, default_encryption=default)
        url = context.root.url
        seen = _seen.setdefault(driver, set())
        if url not in seen:
            missing = driver.run(missing_rights(context.root.probe_key(""), context.write_id()))
            if missing:
                named = "; ".join(f"{right} (to {right.need})" for right in missing)
                raise StoreRefusedError(
                    "These credentials lack rights that a job needs once it is committed: "
                    f"{named}. Nothing was written.",
                    remedy="Grant them on the table's prefix, and on the bucket what is about the "
                    "bucket.",
                )
            seen.add(url)
        try:
            opened = driver.run(open_job(context, spec))
        except StoreRefusedError as error:
            demanded = driver.run(find_demanded(context)) if error.lacks_right else None
            if demanded is not None:
                named = spec.files.encrypted or default
                raise encryption_refused(context.root, named, demanded) from error
            raise
        if opened.others:
            driver.run(settle_aborted(context, opened))
        return opened
