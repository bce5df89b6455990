"""The command about a table's encryption by the store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..committer.errors import InvalidInputError, TableNotFoundError
from ..committer.store.encryption import Encryption
from .output import DRY, Apply, AsJson, Url, print_rows, say
from .tables import refuse_apply_alone, table_of_directories


def encryption(
    table: Url,
    algorithm: Annotated[
        str | None,
        typer.Argument(
            metavar="[SSE-S3|SSE-KMS|DSSE-KMS|none]",
            help="The encryption from now on. none: the bucket's own. Without it, only show it.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="With KMS: the key, by its id, ARN or alias.")
    ] = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Show or change the encryption that the store applies to a table's objects.

    It holds for all that is written from now on: files, records and markers. Existing objects stay
    as they are.
    """
    found = table_of_directories(
        table,
        "it keeps no encryption of its own",
        "Set the bucket's default, or the connection's or resource's encryption: jobs use that.",
    )
    if algorithm is None and key is not None:
        raise InvalidInputError(
            "--key is given without an encryption. Nothing was changed.",
            table=table,
            remedy="Name it before the key, SSE-KMS or DSSE-KMS; or leave --key out to see the "
            "table's encryption.",
        )
    if algorithm is None:
        refuse_apply_alone(table, apply, "encryption")
        if not found.exists():
            raise TableNotFoundError(
                "There is no table here. Nothing was changed.",
                table=found.root.url,
                remedy="Check the root.",
            )
        before = after = found.encryption
    else:
        change = found.set_encryption(None if algorithm == "none" else algorithm, key, apply)
        before, after = change.before, change.after
    document: dict[str, Any] = {"before": _plain(before), "after": _plain(after)}
    named = (("before", before), ("after", after))
    rows = [(name, it.algorithm, it.key) for name, it in named if it is not None]
    print_rows(
        as_json,
        ("", "encryption", "key"),
        rows,
        document,
        "The table has no encryption of its own.",
    )
    if algorithm is None:
        say(f"The table's encryption is {before or _BUCKETS}.")
        return
    is_now = "is" if apply else "would be"
    say(f"The encryption {is_now} {after or _BUCKETS}; it was {before or _BUCKETS}.")
    if not apply:
        say(DRY)


_BUCKETS = "the bucket's own"


def _plain(encryption: Encryption | None) -> dict[str, str | None] | None:
    if encryption is None:
        return None
    return {"algorithm": str(encryption.algorithm), "key": encryption.key}
