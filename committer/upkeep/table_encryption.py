"""Change of a table's encryption, and what doctor says of the bucket's."""

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
    """A change of what is asked of the store for all that is written for a table; ``None``: the
    bucket's own encryption."""

    before: Encryption | None
    after: Encryption | None


def change_encryption(
    context: Context, encryption: Encryption | None, apply: bool
) -> Step[EncryptionChange]:
    """As :meth:`.table.Table.set_encryption`."""
    while True:
        found = yield from existing_table(context)
        change = EncryptionChange(found.record.encryption, encryption)
        if not apply or change.before == encryption:
            return change
        if (yield from is_changed(context, found, encryption=encryption)):
            return change


def about_demand(context: Context, table: TableRecord | None) -> Step[list[Problem]]:
    """Whether the bucket refuses what this package writes as the table's record says.

    Requests: none, where it refused nothing to this process.
    """
    demanded = yield from DemandedEncryption(context.root.probe_key(""))
    return [] if demanded is None else [_not_on_record(context, table, demanded)]


def about_refusal(context: Context, table: TableRecord | None) -> Step[list[Problem]]:
    """Whether a write was refused for its encryption; nothing where it was for want of a right."""
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
