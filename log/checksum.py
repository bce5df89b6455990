"""Checksum file ``N.crc``: the state after entry N in one small object, to open without a replay.

=============================  =====================================  ===========================
written by                     used if                                otherwise
=============================  =====================================  ===========================
this package                   the ETags that it names are those      a writer without conditions
                               that the listing shows                 has overwritten an entry
another engine                 its ``txnId`` is that of ``N.json``    the same
=============================  =====================================  ===========================

Delta's protocol lets a checksum file, or an entry, name no transaction. Then another engine's file
is not used, and it proves nothing about the entry.

Members that Delta defines are complete or absent, since other engines assume that they are
complete. This package's data (ETags, the newest transactions, the entry itself) lies in a member of
its own, which other engines ignore.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..committer.errors import RecordDamagedError
from ..committer.store.requests import Found
from .actions import (
    AddFile,
    AppTransaction,
    DomainMetadata,
    LogMetadata,
    LogProtocol,
    action_members,
    read_action,
)
from .entries import OURS, ListedLog, LogEntry
from .ranks import standing_ranks
from .replay import LogState
from .settling import standing

#: How many live files a checksum file names at most.
FILES = 400
#: How many actions of the entry it keeps at most. A replace of 365 partitions has two or three
#: times 365.
ACTIONS = 2_000
#: The member with the actions of the entry.
KEPT = "entry"
#: How many transactions it names at most: the newest. Settlements that stand come in addition.
TRANSACTIONS = 1_000
#: For how many partitions without files it also names ranks, at most.
RANKED = 1_000
#: Errors of reading a file whose members are missing, or are not what they are to be.
_UNREADABLE = (
    ValueError,
    LookupError,
    OverflowError,
    RecursionError,
    AttributeError,
    TypeError,
    RecordDamagedError,
)


def write_checksum(state: LogState, entry: LogEntry) -> bytes | None:
    """Return the checksum file of a state; ``None``: the counts that it must have are unknown.

    :param entry: the state's newest entry. If it has few actions, the file keeps them: they show
        what the entry was if a writer without conditions overwrites it.
    """
    if state.count is None or state.protocol is None or state.metadata is None:
        return None
    newest = list(state.transactions.values())[-TRANSACTIONS:]
    newest = [*(it for it in standing_ranks(state)[-RANKED:] if it not in newest), *newest]
    newest = [*(it for it in standing(state) if it not in newest), *newest]
    whole = state.all_transactions and len(newest) == len(state.transactions)
    transactions = [action_members(it)[1] for it in newest]
    members: dict[str, Any] = {
        "txnId": entry.txn_id or "",
        "tableSizeBytes": state.size,
        "numFiles": state.count,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": action_members(state.metadata)[1],
        "protocol": action_members(state.protocol)[1],
        "domainMetadata": [action_members(it)[1] for it in state.domains.values()],
        OURS: {
            "checkpoint": state.checkpoint,
            "etags": {str(version): etag for version, etag in state.etags.items()},
            **({} if whole else {"newestTransactions": transactions}),
            **({KEPT: kept_actions(entry)} if _is_kept(entry) else {}),
        },
    }
    if whole:
        members["setTransactions"] = transactions
    if state.files is not None and state.all_files and state.count <= FILES:
        members["allFiles"] = [action_members(it)[1] for it in state.files.values()]
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def keeps_actions(body: bytes | None, entry: LogEntry) -> bool:
    """Return whether the checksum file of an entry keeps the entry's actions.

    :param body: the file; ``None``: there is none.
    """
    return body is not None and _is_kept(entry)


def _is_kept(entry: LogEntry) -> bool:
    return len(entry.actions) <= ACTIONS


def kept_actions(entry: LogEntry) -> list[dict[str, Any]]:
    """Return the actions of an entry, as JSON."""
    return [dict([action_members(it)]) for it in entry.actions]


@dataclass(frozen=True)
class ReadChecksum:
    """A checksum file as it was read.

    :param etags: the ETags of entries, by version; ``None``: another engine wrote the file.
    """

    state: LogState
    txn_id: str | None
    etags: Mapping[int, str] | None

    def overwritten(self, listed: ListedLog) -> tuple[int, ...]:
        """Return the versions whose entries have changed since the checksum file was written."""
        named = self.etags or {}
        return tuple(
            version
            for version, etag in sorted(named.items())
            if version in listed.entries and listed.entries[version].etag != etag
        )


def read_checksum(found: Found, version: int) -> ReadChecksum | None:
    """Read a checksum file; ``None``: it is damaged, or lacks what an opening needs.

    No answer depends on such a file: the checkpoint and the entries have the same information.
    """
    try:
        members = json.loads(found.body)
        return _read(members, version, found.key)
    except _UNREADABLE:
        return None


def _read(members: dict[str, Any], version: int, key: str) -> ReadChecksum | None:
    ours = members.get(OURS) or {}
    transactions = members.get("setTransactions", ours.get("newestTransactions"))
    if transactions is None or "metadata" not in members or "protocol" not in members:
        return None

    def actions(kind: str, rows: list[Any]) -> list[Any]:
        return [read_action(kind, row, key) for row in rows]

    files: dict[str, AddFile] | None = None
    if (rows := members.get("allFiles")) is not None:
        files = {it.path: it for it in actions("add", rows)}
    known: dict[str, AppTransaction] = {it.app: it for it in actions("txn", transactions)}
    domains: dict[str, DomainMetadata] = {
        it.domain: it for it in actions("domainMetadata", members.get("domainMetadata") or [])
    }
    (metadata,) = actions("metaData", [members["metadata"]])
    (protocol,) = actions("protocol", [members["protocol"]])
    assert isinstance(metadata, LogMetadata)
    assert isinstance(protocol, LogProtocol)
    etags = {int(at): str(etag) for at, etag in ours["etags"].items()} if ours else None
    if etags is not None and version not in etags:
        return None
    count, size = int(members["numFiles"]), int(members["tableSizeBytes"])
    if count < 0 or size < 0:
        return None
    state = LogState(
        version,
        protocol,
        metadata,
        known,
        domains,
        files,
        None,
        count,
        size,
        etags or {},
        int(ours.get("checkpoint", -1)),
        "setTransactions" in members,
        vectors=frozenset(it.path for it in (files or {}).values() if it.vector is not None),
    )
    txn_id = members.get("txnId")
    return ReadChecksum(state, txn_id if isinstance(txn_id, str) and txn_id else None, etags)
