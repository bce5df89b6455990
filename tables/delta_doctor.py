"""Examination of a Delta table: present and future problems of its store, jobs and log."""

from __future__ import annotations

from ..committer.commit.state.context import Context
from ..committer.errors import ZeroRenameError
from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..committer.upkeep.checkpoint import late_files
from ..committer.upkeep.doctor.examination import about_fast_rules, about_place, longest_job
from ..committer.upkeep.doctor.store_problems import about_fast_root
from ..committer.upkeep.problem import Problem
from ..committer.upkeep.recovery import Outcome
from ..layouts.delta.data_roots import data_root_of, roots_of
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.opening import LogDepth, open_log
from ..log.replay import LogState
from .delta_files import snapshot_of
from .delta_upkeep import plan_recovery, store_now
from .gone_entries import gone_problems
from .run_reports import report_problems


def examine(
    root: TableRoot, layout: DeltaLayout, max_duration: float | None
) -> Step[list[Problem]]:
    """Find the problems of a Delta table.

    :param max_duration: seconds that the longest job may take; ``None``: the longest of
        the open jobs, at least the default.
    """
    longest = max_duration or (yield from longest_job(Context(root)))
    found = yield from about_place(Context(root), longest)
    try:
        opened = yield from open_log(layout, LogDepth.WHOLE)
    except ZeroRenameError as error:
        remedy = error.remedy or "Find out who wrote what cannot be read."
        return [*found, Problem("log not readable", error.key or root.url, error.message, remedy)]
    found += _about_writing(root, layout, opened.state)
    data_root = data_root_of(opened.state)
    if data_root is not None:
        found += yield from about_fast_root(root, data_root)
        found += yield from about_fast_rules(root, data_root, longest)
    if roots_of(opened.state) and not (data_root and data_root.temporary):
        now = (yield from store_now(layout)) / 1000
        found += late_files(root, snapshot_of(root, layout, opened.state), now)
    found += [
        Problem(
            "entry written over",
            layout.folder.entry(version),
            f"Version {version} is not the entry that was committed: a writer without conditional "
            "writes has written over it, and what it had added or removed is lost.",
            "Let that writer use a log store that writes conditionally, then commit it again: "
            f"zero-rename repair {root.url} --apply",
        )
        for version in opened.overwritten
    ]
    found += yield from gone_problems(root, layout)
    found += yield from report_problems(root, layout, opened.state)
    for job in (yield from plan_recovery(layout, None)):
        if job.outcome is not Outcome.LEFT:
            remedy = f"zero-rename recover {root.url} --apply"
            found.append(Problem("job not finished", job.job, job.detail, remedy))
    return found


def _about_writing(root: TableRoot, layout: DeltaLayout, state: LogState) -> list[Problem]:
    """Return what refuses each job of this package: a feature or a property that another engine has
    switched on. Jobs, recovery and purge would only say so one by one."""
    found = []
    for check in (lambda: layout.check_writable(state, False), lambda: layout.retention(state)):
        try:
            check()
        except ZeroRenameError as error:
            remedy = error.remedy or "Set it as it was, by the engine that changed it."
            found.append(Problem("table not writable here", root.url, error.message, remedy))
    return found
