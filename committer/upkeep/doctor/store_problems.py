"""Problems of a store, its changes since a table was made, and missing rights."""

from __future__ import annotations

from dataclasses import replace

from ...commit.state.context import Context
from ...commit.state.found_table import table_not_confirmed
from ...commit.state.probe import probe
from ...commit.state.rights import FINISHING, READING, WRITING, missing_rights
from ...errors import FastRootGoneError, StoreRefusedError, StoreUnfitError
from ...format.job_spec import Coordination
from ...format.layout import TableRoot, new_write_id
from ...format.records.store_facts import StoreFacts, other_stores
from ...format.records.table_record import TableRecord
from ...store.conditional_put import Written, put_record
from ...store.fast_root import FastRoot
from ...store.requests import Found, Get, Put, Step
from ..problem import Problem
from ..table_encryption import about_demand, about_refusal


def about_rights(context: Context) -> Step[list[Problem]]:
    """Find the rights of a writer that these credentials lack, except s3:PutObject."""
    folder = context.root.probe_key("")
    missing = yield from missing_rights(folder, context.write_id(), READING + FINISHING)
    return [_right(right.action, str(right), right.need) for right in missing]


def about_fast_root(root: TableRoot, data_root: FastRoot) -> Step[list[Problem]]:
    """Find whether a table's data root is out of reach, and which rights of a writer are missing
    there. Writes an object and removes it."""
    folder, name = root.fast_data_prefix(data_root), new_write_id()
    try:
        missing = yield from missing_rights(folder, name, WRITING)
        missing += yield from missing_rights(folder, name, READING + FINISHING)
    except (FastRootGoneError, StoreRefusedError) as error:
        url = data_root.url
        return [Problem("fast root out of reach", url, error.message, error.remedy or "")]
    place = f" in the fast root {data_root.url}"
    return [_right(right.action, str(right), right.need, place) for right in missing]


def _right(action: str, named: str, need: str, place: str = "") -> Problem:
    return Problem(
        "right missing",
        action,
        f"These credentials lack {named}{place}. Nobody can {need} without it.",
        "Grant it where they are to write; a reader needs s3:GetObject and s3:ListBucket only.",
    )


def about_store(context: Context, table: TableRecord | None) -> Step[list[Problem]]:
    """Probe the store, and find its problems and its changes since the table was made.

    Writes small objects and an upload below ``_zero_rename/probe/``, and removes them.

    :param table: ``None`` if there is no table yet.
    :raises StoreUnreachableError: the store gave no certain answer.
    """
    try:
        now = yield from probe(context.root, context.write_id)
        if table is None:
            now.require_listing(context.root)
            now.require_coordination(context.root)
    except StoreUnfitError as error:
        return [Problem("store unfit", context.root.bucket, error.message, error.remedy or "")]
    except StoreRefusedError as error:
        if not error.lacks_right:
            what = "store refuses writes"
            return [Problem(what, context.root.bucket, error.message, error.remedy or "")]
        refused = yield from about_refusal(context, table)
        right = "s3:PutObject", "s3:PutObject or s3:DeleteObject", "write or probe"
        return refused or [_right(*right)]
    known = now if table is None else table.facts.weaker(now)
    coordination = Coordination.STORE if table is None else table.coordination
    problems = (yield from about_demand(context, table)) + _about_facts(known, coordination)
    return problems if table is None else problems + _about_changes(context, table.facts, now)


def _about_facts(facts: StoreFacts, coordination: Coordination) -> list[Problem]:
    server = facts.server or "unnamed"
    if coordination is Coordination.STORE and not facts.atomic:
        return [
            Problem(
                "store not atomic",
                server,
                "This store checks a condition and writes in two steps, so two writers may both "
                "win. A second writer is refused while one is open.",
                "Let one job write at a time, or move the table to another store: "
                f"{other_stores(facts.server)}.",
            )
        ]
    if coordination is Coordination.NONE and facts.atomic and facts.conditional_put:
        return [
            Problem(
                "not coordinated",
                server,
                "The table has coordination=none, and this store keeps conditional writes.",
                "Write new tables with coordination=store: writers then notice each other and "
                "any process can finish a commit.",
            )
        ]
    return []


def _about_changes(context: Context, then: StoreFacts, now: StoreFacts) -> list[Problem]:
    return [
        Problem(
            "store has changed",
            name,
            f"When the table was made, the store ({now.server or 'unnamed'}) behaved otherwise: "
            f"{follows}. Every job goes by what table.json says.",
            f"Undo the change, or record it: zero-rename doctor {context.root.url} --apply",
        )
        for name, follows in then.lost(now).items()
    ]


def renew_facts(context: Context) -> Step[StoreFacts]:
    """Probe the store, and remove guarantees from ``table.json`` that it no longer keeps
    (:meth:`.table.Table.renew_facts`).

    Guarantees are never added, since a race without a loser proves nothing. Open jobs go by what
    they have read.

    :returns: the guarantees that ``table.json`` has now; without a table, those that the probe
        found.
    """
    key = context.root.table_key
    found = yield from Get(key)
    if not isinstance(found, Found):
        return (yield from probe(context.root, context.write_id))
    record = TableRecord.decode(found.body, key)
    now = yield from probe(context.root, context.write_id)
    facts = record.facts.weaker(now)
    if facts == replace(record.facts, server=facts.server):
        return record.facts
    write_id = context.write_id()
    changed = replace(record, write_id=write_id, facts=facts)
    condition = found.etag if facts.conditional_put else None
    outcome = yield from put_record(Put(key, changed.encode(), if_match=condition), write_id)
    if not isinstance(outcome, Written):
        raise table_not_confirmed(context)
    return facts
