"""Actions of a log entry in Delta Lake's format: each is a line of JSON.

==================  =========================================================================
action              effect on a table's state
==================  =========================================================================
``protocol``        replaces the versions and features that readers and writers must know
``metaData``        replaces columns, partition columns, properties
``add``             the file is live, with these statistics and tags
``remove``          the file is not live any more; a *tombstone* says since when
``txn``             the application has reached this version
``domainMetadata``  replaces or removes the configuration of one domain
``commitInfo``      none; says who wrote the entry and why. Checkpoints leave it out
==================  =========================================================================

Other actions (``cdc``, and those of unknown features) have no effect here. If a feature gives them
an effect, ``protocol`` names this feature, and tables with features outside an allow-list are
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..committer.errors import RecordDamagedError

#: The time of tombstones that purge has made: their files are *forgotten*, never brought back.
FORGOTTEN = 0


@dataclass(frozen=True, slots=True)
class AddFile:
    """A live file.

    :param path: a URL relative to the table, or absolute.
    :param values: the partition's values as strings, by column; ``None`` is null.
    :param modified: Unix milliseconds.
    :param changes_data: ``False`` if its rows were in the table before, as after a compaction.
    :param statistics: JSON; exact or absent.
    :param vector: the deletion vector, which names rows of the file that are deleted, as JSON.
        Entries from before a table has dropped that feature may have such files. A state with one
        is refused, and none is ever written.
    """

    path: str
    values: Mapping[str, str | None]
    size: int
    modified: int
    changes_data: bool = True
    statistics: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    vector: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """The tombstone of a removed file.

    :param values: as of :class:`AddFile`; ``None``: the writer did not record them.
    :param removed_at: Unix milliseconds; :data:`FORGOTTEN` for a file that purge deletes.
    """

    path: str
    removed_at: int
    changes_data: bool = True
    values: Mapping[str, str | None] | None = None
    size: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AppTransaction:
    """The version that an application has reached. This package uses transactions for runs, fences,
    ranks and settlements."""

    app: str
    version: int
    updated_at: int | None = None


@dataclass(frozen=True)
class LogMetadata:
    """Columns and properties of a table.

    :param schema: the columns as Delta's JSON.
    """

    id: str
    schema: str
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    created_at: int | None = None


@dataclass(frozen=True)
class LogProtocol:
    """The versions and features that readers and writers must support.

    :param reader_features: ``None`` if the reader version has no list of features;
        ``writer_features`` likewise.
    """

    reader: int = 1
    writer: int = 2
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None


@dataclass(frozen=True)
class DomainMetadata:
    domain: str
    configuration: str = ""
    removed: bool = False


@dataclass(frozen=True)
class CommitInfo:
    """The origin of an entry, as its writer records it. No two entries have the same ``txnId``."""

    members: Mapping[str, Any] = field(default_factory=dict)

    @property
    def txn_id(self) -> str | None:
        found = self.members.get("txnId")
        return found if isinstance(found, str) else None


Action = (
    AddFile | RemoveFile | AppTransaction | LogMetadata | LogProtocol | DomainMetadata | CommitInfo
)


class UnreadFeatureError(RecordDamagedError):
    """An action needs a feature for readers that is not supported here.

    :param feature: its name.
    """

    def __init__(self, message: str, feature: str, field: str, key: str) -> None:
        super().__init__(
            message,
            field=field,
            key=key,
            remedy="Use the engine that made the table, or drop the feature there.",
        )
        self.feature = feature


class ActionReader:
    """A JSON object whose members are read by type. An error names the object and the member."""

    def __init__(self, kind: str, members: Any, key: str) -> None:
        self.kind, self.key = kind, key
        if not isinstance(members, dict):
            raise self.damage("", "must be a JSON object")
        self._members = members

    def damage(self, name: str, problem: str) -> RecordDamagedError:
        path = f"{self.kind}.{name}" if name else self.kind
        return RecordDamagedError(
            f"The log entry cannot be read: {path} {problem}. Nothing was changed.",
            field=path,
            key=self.key,
            remedy="Restore the object from a version or a backup of the bucket.",
        )

    def unread(self, name: str, feature: str) -> UnreadFeatureError:
        """Build the error of a member that needs a feature."""
        path = f"{self.kind}.{name}"
        return UnreadFeatureError(
            f"The log entry cannot be read: {path} is the feature {feature}, not supported here. "
            "Nothing was changed.",
            feature,
            path,
            self.key,
        )

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

    def _typed(self, name: str, wanted: type, words: str) -> Any:
        found = self._members.get(name)
        if not isinstance(found, wanted) or (wanted is int and isinstance(found, bool)):
            raise self.damage(name, f"must be {words}")
        return found

    def _check_text(self, name: str, found: str) -> None:
        """Refuse a string that cannot be encoded as UTF-8: no entry or checkpoint can hold it."""
        if found.isascii():
            return
        try:
            found.encode()
        except UnicodeEncodeError as error:
            raise self.damage(name, "must be Unicode, not half of a surrogate pair") from error

    def text(self, name: str) -> str:
        found: str = self._typed(name, str, "a string")
        self._check_text(name, found)
        return found

    def text_or(self, name: str, other: Any = None) -> Any:
        return self.text(name) if self.has(name) else other

    def number(self, name: str) -> int:
        found: int = self._typed(name, int, "a whole number")
        if not -(2**63) <= found < 2**63:
            raise self.damage(name, "must have 64 bits")
        return found

    def number_or(self, name: str, other: Any = None) -> Any:
        return self.number(name) if self.has(name) else other

    def flag(self, name: str, other: bool) -> bool:
        return self._typed(name, bool, "true or false") if self.has(name) else other

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._typed(name, list, "a list of strings")
        if not all(isinstance(item, str) for item in found):
            raise self.damage(name, "must be a list of strings")
        for item in found:
            self._check_text(name, item)
        return tuple(found)

    def features(self, name: str) -> frozenset[str] | None:
        return frozenset(self.texts(name)) if self.has(name) else None

    def json(self, name: str) -> str:
        """Return a member of any type as JSON that is equal for equal members."""
        return json.dumps(self._members[name], sort_keys=True)

    def map(self, name: str, nulls: bool = False) -> dict[str, Any]:
        """Read a JSON object of strings; an empty one if it is absent.

        :param nulls: values may be null, too.
        """
        if not self.has(name):
            return {}
        found = self._typed(name, dict, "a JSON object of strings")
        for value in found.values():
            if not isinstance(value, str) and not (nulls and value is None):
                raise self.damage(name, "must be a JSON object of strings")
        for text in (*found, *found.values()):
            if text is not None:
                self._check_text(name, text)
        return found


def _read_add(given: ActionReader) -> AddFile:
    size = given.number("size")
    if size < 0:
        raise given.damage("size", "must not be negative")
    return AddFile(
        given.text("path"),
        given.map("partitionValues", nulls=True),
        size,
        given.number("modificationTime"),
        given.flag("dataChange", True),
        given.text_or("stats"),
        given.map("tags", nulls=True),
        given.json("deletionVector") if given.has("deletionVector") else None,
    )


def _read_remove(given: ActionReader) -> RemoveFile:
    return RemoveFile(
        given.text("path"),
        given.number_or("deletionTimestamp", FORGOTTEN),
        given.flag("dataChange", True),
        given.map("partitionValues", nulls=True) if given.has("partitionValues") else None,
        given.number_or("size"),
        given.map("tags", nulls=True),
    )


def _read_metadata(given: ActionReader) -> LogMetadata:
    form = ActionReader("metaData.format", given._members.get("format") or {}, given.key)
    return LogMetadata(
        given.text("id"),
        given.text("schemaString"),
        given.texts("partitionColumns"),
        given.map("configuration"),
        given.text_or("name"),
        given.text_or("description"),
        form.text_or("provider", "parquet"),
        form.map("options"),
        given.number_or("createdTime"),
    )


def _read_protocol(given: ActionReader) -> LogProtocol:
    return LogProtocol(
        given.number("minReaderVersion"),
        given.number("minWriterVersion"),
        given.features("readerFeatures"),
        given.features("writerFeatures"),
    )


_READERS: Mapping[str, Callable[[ActionReader], Action]] = {
    "add": _read_add,
    "remove": _read_remove,
    "metaData": _read_metadata,
    "protocol": _read_protocol,
    "txn": lambda it: AppTransaction(
        it.text("appId"), it.number("version"), it.number_or("lastUpdated")
    ),
    "domainMetadata": lambda it: DomainMetadata(
        it.text("domain"), it.text_or("configuration", ""), it.flag("removed", False)
    ),
    "commitInfo": lambda it: CommitInfo(it._members),
}


def read_action(kind: str, members: Any, key: str) -> Action | None:
    """Read one action; ``None``: its kind has no effect here."""
    read = _READERS.get(kind)
    return read(ActionReader(kind, members, key)) if read else None


def read_actions(body: bytes, key: str) -> tuple[Action, ...]:
    """Read the actions of an entry.

    :raises RecordDamagedError: a line or member cannot be read; the error names it.
    """
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            wrapped = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ActionReader(f"line {number}", {}, key).damage("", "is not JSON") from error
        outer = ActionReader(f"line {number}", wrapped, key)
        kinds = [kind for kind in wrapped if outer.has(kind)]
        if len(kinds) > 1:
            raise outer.damage("", "must hold one action")
        found += [read_action(kind, wrapped[kind], key) for kind in kinds]
    return tuple(action for action in found if action is not None)


def action_members(action: Action) -> tuple[str, dict[str, Any]]:
    """Return the name of an action and its members, as JSON and as a checkpoint's row have them."""
    match action:
        case AddFile():
            name, members = "add", _add_members(action)
        case RemoveFile():
            name, members = "remove", _remove_members(action)
        case AppTransaction():
            name, members = (
                "txn",
                _present(appId=action.app, version=action.version, lastUpdated=action.updated_at),
            )
        case LogMetadata():
            name, members = "metaData", _metadata_members(action)
        case LogProtocol():
            name, members = "protocol", _protocol_members(action)
        case DomainMetadata():
            name, members = (
                "domainMetadata",
                _present(
                    domain=action.domain, configuration=action.configuration, removed=action.removed
                ),
            )
        case CommitInfo():
            name, members = "commitInfo", dict(action.members)
    return name, members


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _add_members(action: AddFile) -> dict[str, Any]:
    if action.vector is not None:
        raise ValueError(f"{action.path} has a deletion vector: without it, deleted rows come back")
    return _present(
        path=action.path,
        partitionValues=dict(action.values),
        size=action.size,
        modificationTime=action.modified,
        dataChange=action.changes_data,
        stats=action.statistics,
        tags=dict(action.tags) or None,
    )


def _remove_members(action: RemoveFile) -> dict[str, Any]:
    # A remove with partition values and size must also set extendedFileMetadata.
    full = action.values is not None and action.size is not None
    return _present(
        path=action.path,
        deletionTimestamp=action.removed_at,
        dataChange=action.changes_data,
        extendedFileMetadata=full or None,
        partitionValues=dict(action.values) if action.values is not None else None,
        size=action.size,
        tags=dict(action.tags) or None,
    )


def _metadata_members(action: LogMetadata) -> dict[str, Any]:
    return _present(
        id=action.id,
        name=action.name,
        description=action.description,
        format={"provider": action.provider, "options": dict(action.options)},
        schemaString=action.schema,
        partitionColumns=list(action.partition_columns),
        createdTime=action.created_at,
        configuration=dict(action.properties),
    )


def _protocol_members(action: LogProtocol) -> dict[str, Any]:
    def listed(features: frozenset[str] | None) -> list[str] | None:
        return None if features is None else sorted(features)

    return _present(
        minReaderVersion=action.reader,
        minWriterVersion=action.writer,
        readerFeatures=listed(action.reader_features),
        writerFeatures=listed(action.writer_features),
    )


def write_actions(actions: Iterable[Action]) -> bytes:
    """Return the bytes of an entry: a line of JSON for each action."""
    lines = []
    for action in actions:
        name, members = action_members(action)
        lines.append(json.dumps({name: members}, separators=(",", ":"), ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode()
