"""Records of jobs beside the log, below the table's control prefix.

====================  =======================================  ==================================
key                   written                                  deleted
====================  =======================================  ==================================
``open/J.json``       before the job reads its base            last of all, by the process that
                                                               finishes J
``jobs/J.json``       when the job is handed over              by the process that closes J, before
                                                               the open record
``runs/<key>.json``   by finish, before the open record is     never; so an opening needs no
                      removed                                  checkpoint for a run's key
``entries/J.json``    by finish, before the open record is     by purge, a week later, but not
                      removed, if ``N.crc`` has no room for    while a repair may need it
                      the entry (:mod:`.kept_entries`)
====================  =======================================  ==================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..committer.errors import RecordDamagedError
from ..committer.format.run_file import file_of_run
from .actions import (
    ActionReader,
    AddFile,
    LogMetadata,
    LogProtocol,
    RemoveFile,
    action_members,
    read_action,
)
from .change import LogBase, LogChange, Overtaking
from .ranks import read_log_ranks
from .scope import read_scope
from .settling import read_settles, settles_as_json

#: The kind that an open record names. Tables of directories have open records of another kind under
#: the same names.
KIND = "open-in-log"


@dataclass(frozen=True)
class JobFiles:
    """The keys of a table's job records.

    :param control: the control prefix, with a slash at its end.
    """

    control: str

    @property
    def opened(self) -> str:
        return f"{self.control}open/"

    @property
    def waiting(self) -> str:
        return f"{self.control}jobs/"

    def open(self, job: str) -> str:
        return f"{self.opened}{job}.json"

    def handed_over(self, job: str) -> str:
        return f"{self.waiting}{job}.json"

    @property
    def reports(self) -> str:
        return f"{self.control}runs/"

    def run(self, key: str) -> str:
        return f"{self.reports}{file_of_run(key)}"

    @property
    def kept(self) -> str:
        return f"{self.control}entries/"

    def kept_entry(self, job: str) -> str:
        return f"{self.kept}{job}.json"

    def job_of(self, key: str) -> str:
        """Return the job that the key of an open record, or of a handed-over job, belongs to."""
        return key.rpartition("/")[2].removesuffix(".json")


def open_body(job: str, owner: Mapping[str, Any], run: str | None = None) -> bytes:
    """Return the bytes of an open record."""
    of_run = {} if run is None else {"run": run}
    members = {"kind": KIND, "job": job, "owner": dict(owner), **of_run}
    return json.dumps(members, ensure_ascii=False).encode()


def run_of_record(body: bytes, key: str) -> str | None:
    """Read the run's key from an open record; ``None``: its job has none.

    :raises RecordDamagedError: the record cannot be read, so its job may be of any run.
    """
    members = _read_json(
        body,
        key,
        "An open record is not JSON, so nobody can tell of which run it is. Nothing was changed.",
        "Delete it by hand, if no job of that name is at work.",
    )
    return ActionReader("open record", members, key).text_or("run")


def report_body(run: str, job: str, version: int, owner: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of a run's report.

    :param owner: of the job, as its entry has it, which may be cleaned; ``None``: not known.
    """
    members = {"run": run, "job": job, "version": version, **({"owner": owner} if owner else {})}
    return json.dumps(members, ensure_ascii=False).encode()


def owner_of_report(body: bytes, version: int) -> Mapping[str, Any] | None:
    """Return the owner of a run's last job from the run's report.

    :param version: of the run's last entry.
    :return: ``None``: the report does not have it, or is of an earlier entry.
    """
    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or members.get("version") != version:
        return None
    owner = members.get("owner")
    return owner if isinstance(owner, dict) else None


def version_of_report(body: bytes, key: str) -> int:
    """Read the version of a run's last entry from its report.

    :raises RecordDamagedError: the report has no valid version.
    """
    members = _read_json(
        body,
        key,
        "The report of a run is not JSON, so nobody can tell what it has committed. "
        "Nothing was changed.",
        "Write it again, with the version of the run's last entry in the log.",
    )
    return ActionReader("report", members, key).number("version")


def _read_json(body: bytes, key: str, problem: str, remedy: str | None = None) -> Any:
    """Read a record as JSON.

    :raises RecordDamagedError: it is not JSON; the error has ``problem`` and ``remedy``.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordDamagedError(problem, key=key, remedy=remedy) from error


def hand_over(change: LogChange) -> bytes:
    """Return a change as bytes, from which any process can commit it."""
    columns, metadata, protocol = change.columns, change.metadata, change.protocol

    def members(action: Any) -> Any:
        return None if action is None else action_members(action)[1]

    return json.dumps(
        {
            "job": change.job,
            "base": {"version": change.base.version, "table": change.base.table_id},
            "columns": members(columns),
            "adds": [members(add) for add in change.adds],
            "removes": sorted(change.removes),
            "returned": [members(add) for add in change.returned],
            "replaced": change.replaced.as_json() if change.replaced else None,
            "reads": change.reads.as_json() if change.reads else None,
            "overtaking": change.overtaking.value,
            "ranks": change.ranks.as_json(),
            "run": change.run,
            "former": change.former,
            "fences": sorted(change.fences),
            "forgets": [members(it) for it in change.forgets],
            "metadata": members(metadata),
            "protocol": members(protocol),
            "changesData": change.changes_data,
            "operation": change.operation,
            "settles": settles_as_json(change.settles),
            "owner": dict(change.owner),
            "told": dict(change.told),
            "own": sorted(change.own),
        },
        ensure_ascii=False,
    ).encode()


def take_over(body: bytes, key: str) -> LogChange:
    """Read a change that was handed over.

    :raises RecordDamagedError: a member cannot be read; the error names it.
    """
    members = _read_json(body, key, "The job's record is not JSON. Nothing was committed.")
    given = ActionReader("job", members, key)
    base = ActionReader("job.base", members.get("base"), key)

    def listed(name: str, kind: str) -> tuple[Any, ...]:
        rows = members.get(name) or []
        if not isinstance(rows, list):
            raise given.damage(name, "must be a list")
        return tuple(read_action(kind, row, key) for row in rows)

    def one(name: str, kind: str) -> Any:
        return read_action(kind, members[name], key) if given.has(name) else None

    metadata: LogMetadata | None = one("metadata", "metaData")
    protocol: LogProtocol | None = one("protocol", "protocol")
    columns: LogMetadata | None = one("columns", "metaData")
    adds: tuple[AddFile, ...] = listed("adds", "add")
    returned: tuple[AddFile, ...] = listed("returned", "add")
    forgets: tuple[RemoveFile, ...] = listed("forgets", "remove")
    overtaking = given.text("overtaking")
    if overtaking not in {it.value for it in Overtaking}:
        raise given.damage("overtaking", f"is unknown: {overtaking!r}")
    owner, told = members.get("owner"), members.get("told")
    return LogChange(
        given.text("job"),
        LogBase(base.number("version"), base.text_or("table")),
        columns,
        adds,
        frozenset(given.texts("removes")),
        returned,
        read_scope(members.get("replaced")),
        read_scope(members.get("reads")),
        Overtaking(overtaking),
        read_log_ranks(members.get("ranks"), key),
        given.text_or("run"),
        given.number_or("former"),
        frozenset(given.texts("fences")),
        forgets,
        metadata,
        protocol,
        given.flag("changesData", True),
        given.text("operation"),
        read_settles(members.get("settles", []), key),
        owner if isinstance(owner, dict) else {},
        told if isinstance(told, dict) else {},
        own=frozenset(given.texts("own")) if given.has("own") else frozenset(),
    )
