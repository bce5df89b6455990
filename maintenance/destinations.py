"""Destinations of maintenance: tables, Delta tables, outputs of Hadoop's committers,
directories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.format.layout import CONTROL, TableRoot
from ..committer.format.records.success_marker import COMMITTER
from ..committer.store.listing import Children, list_folders, list_uploads
from ..committer.store.requests import All, ListObjects, Step
from ..committer.upkeep.purging.upload_selection import UploadsPath
from ..committer.upkeep.tables_below import may_hold_tables, walk_below
from ..s3a.hadoop.job_traces import MAGIC_JOB, Marker, read_marker
from ..s3a.runs.ledger import RUNS, runs_prefix

#: The message about a folder in which there is nothing to maintain.
NOTHING = "There is no table, and no destination of Hadoop's committers."
_MARKER = "_SUCCESS"


@dataclass(frozen=True)
class Destination:
    """A folder and its writers, as records, magic trees and the marker show them.

    :param is_table: this package's committer writes here, into directories.
    :param is_s3a: one of Hadoop's S3A committers writes here; both are true if one took over from
        the other.
    :param is_delta: a Delta table, of this package or of another engine.
    :param others: the prefixes, each with a slash at its end, of destinations in a directory. Each
        of them is maintained separately.
    """

    root: TableRoot
    is_table: bool = False
    is_s3a: bool = False
    others: tuple[str, ...] = ()
    is_delta: bool = False

    @property
    def is_directory(self) -> bool:
        """True if nothing shows which committer writes here."""
        return not (self.is_table or self.is_s3a or self.is_delta)

    @property
    def is_hadoops(self) -> bool:
        """True if only Hadoop's committers write here: they leave no heads and record no inputs."""
        return self.is_s3a and not (self.is_table or self.is_delta)

    @property
    def kind(self) -> str:
        """``table``, ``delta``, ``s3a``, or two of these joined by ``and``; ``directory`` if
        nothing shows which committer writes here."""
        kinds = {"table": self.is_table, "delta": self.is_delta, "s3a": self.is_s3a}
        return " and ".join(name for name, it in kinds.items() if it) or "directory"


def destination_at(root: TableRoot) -> Step[Destination]:
    """Find out the kind of a folder, by six requests that change nothing; by seven if there is no
    table's record.

    It is a destination of Hadoop's committers if the ledger beside it names a run, if a magic tree
    lies in it, or if an S3A committer has written its ``_SUCCESS``.
    """
    kind, runs, trees, marker = yield from All(
        (
            _kind_of(root),
            ListObjects(runs_prefix(root)),
            ListObjects(f"{root.prefix}/{MAGIC_JOB}"),
            read_marker(root.prefix),
        )
    )
    is_s3a = bool(runs.objects or trees.objects) or _is_of_s3a(marker)
    return _made(root, kind, is_s3a)


def _kind_of(root: TableRoot, folders: Collection[str] | None = None) -> Step[TableKind]:
    """Return the kind of table at a root (:func:`.table_kind`).

    Without ``table.json`` the heads show a table: that record may be lost, and maintenance must not
    pass over such a table.
    """
    kind = yield from table_kind(root, folders)
    if kind is not TableKind.NONE or (folders is not None and CONTROL not in folders):
        return kind
    heads = yield from ListObjects(root.heads_prefix)
    return TableKind.DIRECTORIES if heads.objects else kind


def _made(root: TableRoot, kind: TableKind, is_s3a: bool) -> Destination:
    is_ours, is_delta = kind is TableKind.DIRECTORIES, kind is TableKind.DELTA
    return Destination(root, is_ours, is_s3a, is_delta=is_delta)


def destinations_in(root: TableRoot) -> Step[list[Destination]]:
    """List what is to be maintained in a folder. This is the folder if it is a destination; else
    all destinations below it, and last the folder itself, for uploads in none of them."""
    here = yield from destination_at(root)
    if not here.is_directory:
        return [here]
    below = yield from destinations_below(UploadsPath(root.bucket, f"{root.prefix}/"))
    return [*below, replace(here, others=tuple(f"{it.root.prefix}/" for it in below))]


def destinations_of(path: UploadsPath) -> Step[list[Destination]]:
    """List what is to be maintained in a folder, like :func:`destinations_in`, or in a whole
    bucket. In a bucket, uploads in none of the destinations are maintained by topmost folder."""
    if path.prefix:
        return (yield from destinations_in(TableRoot(path.bucket, path.prefix.rstrip("/"))))
    found = yield from destinations_below(path)
    keys = [upload.key for upload in (yield from list_uploads(""))]
    topmost = {key.partition("/")[0] for key in keys if "/" in key}
    topmost = {it for it in topmost if may_hold_tables(it)} - {it.root.prefix for it in found}
    rest = []
    for name in sorted(topmost):
        within = [it.root.prefix for it in found if it.root.prefix.startswith(f"{name}/")]
        root = TableRoot(path.bucket, name)
        rest.append(Destination(root, others=tuple(f"{it}/" for it in within)))
    return found + rest


def destinations_below(path: UploadsPath) -> Step[list[Destination]]:
    """Find the destinations in and below a folder, sorted by their prefixes: tables, Delta tables,
    and those of Hadoop's committers.

    A destination of Hadoop's committers is found by its ledger, its marker, or the tree of a magic
    job that has not ended. One with none of these holds nothing to recover.
    """

    def look(prefix: str, children: Children) -> Step[Mapping[str, Destination]]:
        root = TableRoot(path.bucket, prefix.rstrip("/"))
        found = (yield from _in_ledger(path.bucket, prefix)) if CONTROL in children.folders else {}
        kind = (yield from _kind_of(root, children.folders)) if prefix else TableKind.NONE
        is_s3a = bool(prefix) and any(name.startswith(MAGIC_JOB) for name in children.folders)
        if prefix and not is_s3a and children.files:
            is_s3a = _is_of_s3a((yield from read_marker(root.prefix)))
        if kind is not TableKind.NONE or is_s3a:
            found[root.prefix] = _made(root, kind, is_s3a)
        return found

    found = yield from walk_below(path, look, files=(_MARKER,))
    return [found[prefix] for prefix in sorted(found)]


def _in_ledger(bucket: str, prefix: str) -> Step[dict[str, Destination]]:
    """Return the destinations directly in a folder whose ledger has their runs on record."""
    names = yield from list_folders(f"{prefix}{CONTROL}/{RUNS}/")
    roots = [TableRoot(bucket, f"{prefix}{name}") for name in names]
    # A table of this package keeps the ledger of the committers that wrote there before.
    kinds = yield from All(tuple(_kind_of(root) for root in roots))
    return {root.prefix: _made(root, kind, True) for root, kind in zip(roots, kinds, strict=True)}


def _is_of_s3a(marker: Marker) -> bool:
    return marker.said is not None and marker.said.marker.committer != COMMITTER
