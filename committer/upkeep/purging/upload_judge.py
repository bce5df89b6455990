"""Judge of the uploads below a path: finds the table and the owner of each, and whether a job may
still complete it. It reads the records of tables and jobs when their uploads come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...commit.state.context import Context
from ...commit.state.decide import decide_abort
from ...commit.state.found_table import find_table
from ...commit.state.table_kind import TableKind, table_kind
from ...commit.state.tolerance import or_damage
from ...errors import DamagedError, ZeroRenameError
from ...format.job_spec import Coordination
from ...format.layout import TableRoot, job_in_key, log_job_in_key
from ...store.requests import All, Found, Head, ListedUpload, ListObjects, Step
from ..recovery import JudgedJob, Recovered, judge_job, known, settle_jobs
from .purge_plan import Fate, Judged, Wanted, Whose, folders_of, judge_page, look_for_tables
from .upload_selection import Name, Selection, Spared, UploadsPath, name_of, spare_needed

#: For how many folders it is remembered whether they are tables.
_FOLDERS = 20_000

#: A job with an open record, or the error of its decision; ``None``: it has just closed.
_Asked = JudgedJob | DamagedError | None


@dataclass(frozen=True)
class _UploadTable:
    """A table that uploads lie in, and the known decisions of its jobs."""

    context: Context
    coordination: Coordination
    fates: dict[str, Fate | None]


class UploadJudge:
    """Judge of the uploads below a path. It remembers the tables and jobs that it has read."""

    def __init__(
        self,
        path: UploadsPath,
        selection: Selection,
        apply: bool,
        spared: Spared,
        context: Callable[[TableRoot], Context],
    ) -> None:
        self._path = path
        self._context = context
        self._jobs = selection.jobs
        self._fences = apply and (not selection.whose or Whose.OURS in selection.whose)
        self._spared = spared
        self._folders: dict[str, bool] = {}
        self._no_job: set[tuple[str, str]] = set()
        self._tables: dict[str, _UploadTable | DamagedError] = {}
        self._open: dict[tuple[str, str], _Asked] = {}
        self._fenced: dict[tuple[str, str], str] = {}

    def look_at_path(self) -> Step[None]:
        """Find out whether the path itself is the root of a table of directories.

        Records alone count: a first job that died before its commit leaves no ``table.json``."""
        folder = self._path.prefix.rstrip("/")
        if folder:
            root = TableRoot(self._path.bucket, folder)
            records = yield from ListObjects(root.control_prefix)
            has_records = bool(records.objects)
            self._folders[folder] = has_records and (
                (yield from table_kind(root)) is not TableKind.DELTA
            )

    def judged(self, uploads: Sequence[ListedUpload]) -> Step[list[tuple[str | None, Judged]]]:
        """Judge uploads, each with the root of its table, in the order given.

        The table is the innermost one around the upload that has a record of its job."""
        in_logs = [upload for upload in uploads if log_job_in_key(upload.key)]
        if in_logs:
            left = [upload for upload in uploads if not log_job_in_key(upload.key)]
            met = {name_of(it[1].upload): it for it in (yield from self.judged(left))}
            met |= yield from self._of_log_jobs(in_logs)
            return [met[name_of(upload)] for upload in uploads]
        if not uploads:
            return []
        if len(self._folders) + len(self._no_job) > _FOLDERS:
            self._folders.clear()
            self._no_job.clear()
            yield from self.look_at_path()
        folders = {folder for upload in uploads for folder in folders_of(upload.key)}
        yield from look_for_tables(self._path.bucket, folders, self._folders)
        yield from self._look_for_first_jobs(uploads)
        by_name = {name_of(upload): upload for upload in uploads}
        found: dict[Name, tuple[str | None, Judged]] = {
            name: (None, self._in_no_table(upload)) for name, upload in by_name.items()
        }
        todo = {name_of(u): [f for f in folders_of(u.key) if self._folders[f]] for u in uploads}
        while groups := _by_next_folder(todo):
            for folder, names in groups.items():
                judged = yield from self._judged_in(folder, [by_name[name] for name in names])
                for it in judged:
                    found[name_of(it.upload)] = (f"s3://{self._path.bucket}/{folder}", it)
                    if it.whose is not Whose.UNKNOWN:
                        todo[name_of(it.upload)] = []
        tables, judged = zip(*(found[name_of(it)] for it in uploads), strict=True)
        return list(zip(tables, (yield from spare_needed(judged, self._spared)), strict=True))

    def _of_log_jobs(
        self, uploads: Sequence[ListedUpload]
    ) -> Step[dict[Name, tuple[str | None, Judged]]]:
        """Judge uploads of jobs in Delta tables by the jobs' open records: one request for a job.

        An open record is written before any upload of the job, and removed last. Entries name
        complete files, so no entry needs an upload of a closed job."""
        places = sorted({it for upload in uploads if (it := log_job_in_key(upload.key))})
        keys = [TableRoot(self._path.bucket, root).open_key(job) for root, job in places]
        found = yield from All(tuple(Head(key) for key in keys))
        opened = dict(zip(places, (isinstance(it, Found) for it in found), strict=True))
        judged: dict[Name, tuple[str | None, Judged]] = {}
        for upload in uploads:
            place = log_job_in_key(upload.key)
            assert place is not None
            root, job = place
            url = f"s3://{self._path.bucket}/{root}"
            reason = (
                f"its job is open: zero-rename recover {url} settles it, if it is dead"
                if opened[place]
                else "its job is closed, and no file that it left can be committed"
            )
            it = Judged(upload, job, not opened[place], reason, Whose.OURS, opened[place])
            judged[name_of(upload)] = (url, it)
        return judged

    def _look_for_first_jobs(self, uploads: Sequence[ListedUpload]) -> Step[None]:
        """Find folders where a first job has an open record, but its table is not made yet. They
        count as tables."""
        asked = set()
        for upload in uploads:
            job, folders = job_in_key(upload.key), folders_of(upload.key)
            if job is not None and not any(self._folders[folder] for folder in folders):
                asked |= {(folder, job) for folder in folders}
        places = sorted(asked - self._no_job)
        roots = [TableRoot(self._path.bucket, folder) for folder, _ in places]
        keys = [root.open_key(job) for root, (_, job) in zip(roots, places, strict=True)]
        found = yield from All(tuple(Head(key) for key in keys))
        for place, it in zip(places, found, strict=True):
            if isinstance(it, Found):
                self._folders[place[0]] = True
            else:
                self._no_job.add(place)

    def _in_no_table(self, upload: ListedUpload) -> Judged:
        job = job_in_key(upload.key)
        if job is None:
            return Judged(upload, None, True, "foreign, and in no table", Whose.FOREIGN)
        reason = "of a job that no table around it has a record of"
        return Judged(upload, job, job in self._jobs, reason, Whose.UNKNOWN)

    def _judged_in(self, folder: str, uploads: Sequence[ListedUpload]) -> Step[list[Judged]]:
        """Judge uploads by the records of the table in ``folder``."""
        if folder not in self._tables:
            context = self._context(TableRoot(self._path.bucket, folder))
            self._tables[folder] = yield from or_damage(_table(context))
        table = self._tables[folder]
        if isinstance(table, DamagedError):
            why = f"the record of its table cannot be read: {table.message}"
            return [Judged(u, job_in_key(u.key), False, why, Whose.OURS) for u in uploads]
        # The selection has checked their age already.
        wanted = Wanted(foreign_older_than=0.0, jobs=self._jobs)
        judged = yield from judge_page(table.context, wanted, uploads, table.fates, self._folders)
        if table.coordination is Coordination.NONE:
            return judged
        jobs = sorted({it.job for it in judged if it.is_open and it.job is not None})
        jobs = [job for job in jobs if (folder, job) not in self._fenced]
        asked = yield from All(tuple(self._ask_job(table, job) for job in jobs))
        for job, (found, fenced) in zip(jobs, asked, strict=True):
            self._open[folder, job] = found
            if fenced:
                self._fenced[folder, job] = fenced
        return [self._of_open_job(folder, it) if it.is_open else it for it in judged]

    def _ask_job(self, table: _UploadTable, job: str) -> Step[tuple[_Asked, str]]:
        """Judge an open job. If uploads are to be aborted, a dead job is fenced first.

        :returns: the job, and why it was fenced; ``""``: it was not.
        """
        judged = yield from or_damage(judge_job(table.context, job, None))
        if not (self._fences and isinstance(judged, JudgedJob) and judged.is_dead):
            return judged, ""
        try:
            decided = yield from decide_abort(table.context, job, owner=judged.entry.owner)
        except ZeroRenameError as error:
            return DamagedError(f"it could not be fenced: {error.message}"), ""
        if decided.decision.is_commit:
            return replace(judged, decided=decided), ""
        return judged, judged.why_aborted or "it is aborted"

    def _of_open_job(self, folder: str, it: Judged) -> Judged:
        """Return the judgement of an upload whose job has an open record."""
        name = (folder, it.job or "")
        if name in self._fenced:
            return replace(it, abort=True, reason=f"of a dead job: {self._fenced[name]}")
        judged = self._open.get(name)
        if judged is None:
            return replace(it, reason="its job has just closed")
        if isinstance(judged, DamagedError):
            return replace(it, reason=f"its job is open, and {judged.message}")
        if judged.is_committed:
            return replace(it, reason="of a job that is committed and not finished: recover it")
        if judged.may_live:
            return replace(it, reason=f"its job is open: {judged.why_left}")
        return replace(
            it, abort=True, reason=f"of a dead job: {judged.why_aborted or 'it is aborted'}"
        )

    def settled(self) -> Step[list[Recovered]]:
        """Finish the abort of fenced jobs, in tables that lie completely below the path."""
        outcomes: list[Recovered] = []
        for folder in sorted({folder for folder, _ in self._fenced}):
            table = self._tables[folder]
            if f"{folder}/".startswith(self._path.prefix) and isinstance(table, _UploadTable):
                jobs = sorted(job for place, job in self._fenced if place == folder)
                outcomes += yield from settle_jobs(table.context, jobs)
        return outcomes


def job_of_upload(key: str) -> str | None:
    """Return the job of this package that an upload's key names, in a table of any layout."""
    in_log = log_job_in_key(key)
    return job_in_key(key) if in_log is None else in_log[1]


def _by_next_folder(todo: Mapping[Name, list[str]]) -> dict[str, list[Name]]:
    """Group uploads by the next table to ask, and remove this table from their lists."""
    groups: dict[str, list[Name]] = {}
    for name, folders in todo.items():
        if folders:
            groups.setdefault(folders.pop(0), []).append(name)
    return groups


def _table(context: Context) -> Step[_UploadTable]:
    context, coordination = yield from known(context, (yield from find_table(context)))
    return _UploadTable(context, coordination, {})
