"""Changes of a table's encryption, and problems with an encryption that its bucket demands."""

from __future__ import annotations

from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.demanded_encryption import as_arguments, find_demanded
from ..commit.state.found_table import existing_table, is_changed
from ..format.records.table_record import TableRecord
from ..store.encryption import Encryption
from ..store.requests import DemandedEncryption, Step
from .problem import Problem


@dataclass(frozen=True)
class EncryptionChange:
    """A change of the encryption that is requested for all objects of a table; ``None``: the
    bucket's default encryption."""

    before: Encryption | None
    after: Encryption | None


def change_encryption(
    context: Context, encryption: Encryption | None, apply: bool
) -> Step[EncryptionChange]:
    """Change the encryption of a table (:meth:`.table.Table.set_encryption`)."""
    while True:
        found = yield from existing_table(context)
        change = EncryptionChange(found.record.encryption, encryption)
        if not apply or change.before == encryption:
            return change
        if (yield from is_changed(context, found, encryption=encryption)):
            return change


def about_demand(context: Context, table: TableRecord | None) -> Step[list[Problem]]:
    """Find whether the bucket refuses writes with the encryption that the table's record names.

    Sends no request if the bucket has refused no write of this process.
    """
    demanded = yield from DemandedEncryption(context.root.probe_key(""))
    return [] if demanded is None else [_not_on_record(context, table, demanded)]


def about_refusal(context: Context, table: TableRecord | None) -> Step[list[Problem]]:
    """Find whether a write was refused for its encryption. Returns nothing if a right is missing
    instead."""
    demanded = yield from find_demanded(context)
    return [] if demanded is None else [_not_on_record(context, table, demanded)]


def _not_on_record(context: Context, table: TableRecord | None, demanded: Encryption) -> Problem:
    detail = f"The bucket takes only objects that name their encryption, {demanded}"
    if table is None:
        remedy = f"Give the first job {as_arguments(demanded)}; the table keeps it."
        return Problem("encryption demanded", context.root.bucket, f"{detail}.", remedy)
    said = "none" if table.encryption is None else str(table.encryption)
    key = f" --key {demanded.key}" if demanded.key else ""
    return Problem(
        "encryption demanded",
        context.root.bucket,
        f"{detail}; the table's record names {said}. Jobs and maintenance that name no other are "
        "refused, or send each first write twice.",
        f"zero-rename encryption {context.root.url} {demanded.algorithm}{key} --apply",
    )
