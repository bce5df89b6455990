"""Reports of runs that are gone: another program deleted them, though the log knows the runs.

A run whose transaction is not among the newest 1,000 is known by its report alone, to a job that
appends. Trino's ``vacuum`` deletes all that is older than its retention and is neither live nor in
the log's folder. So it deletes reports, and such a run would load its rows a second time. The whole
state of the log still has the transactions, from which the reports are written again.
"""

from __future__ import annotations

from ..committer.errors import counted
from ..committer.format.layout import TableRoot
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Put, Step
from ..committer.upkeep.problem import Problem
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.change import RUN
from ..log.job_files import JobFiles, report_body
from ..log.opening import LogDepth, open_log
from ..log.replay import LogState
from .delta_upkeep import store_now

#: Milliseconds after its entry from which on a run must have a report. A job writes it soon after
#: the entry, or recovery does.
_LATE = 86_400_000
#: How many reports are written at once.
_AT_ONCE = 64


def runs_without_report(layout: DeltaLayout, state: LogState) -> Step[dict[str, int]]:
    """Return the runs whose reports are gone, with the versions of their last entries.

    :param state: the present state, with all of its transactions.
    """
    now = yield from store_now(layout)
    runs = {
        it.app.removeprefix(RUN): it.version
        for it in state.transactions.values()
        if it.app.startswith(RUN) and (it.updated_at or 0) < now - _LATE
    }
    if not runs:
        return {}
    records = JobFiles(layout.control)
    there = {*(yield from list_objects(records.reports)).keys}
    return {run: version for run, version in runs.items() if records.run(run) not in there}


def write_reports(layout: DeltaLayout, apply: bool) -> Step[int]:
    """Write the reports of runs that are gone again; return how many are gone.

    :param apply: ``False`` only counts them.
    """
    opened = yield from open_log(layout, LogDepth.WHOLE)
    gone = yield from runs_without_report(layout, opened.state)
    records, runs = JobFiles(layout.control), [*gone.items()]
    for start in range(0, len(runs) if apply else 0, _AT_ONCE):
        # A run that loads again meanwhile writes a later version, over this one.
        yield from All(
            tuple(
                Put(records.run(run), report_body(run, "", version), if_none_match=True)
                for run, version in runs[start : start + _AT_ONCE]
            )
        )
    return len(gone)


def report_problems(root: TableRoot, layout: DeltaLayout, state: LogState) -> Step[list[Problem]]:
    """Find out whether reports of runs are gone.

    :param state: the present state, with all of its transactions.
    """
    gone = yield from runs_without_report(layout, state)
    if not gone:
        return []
    return [
        Problem(
            "reports of runs gone",
            JobFiles(layout.control).reports,
            f"{counted(len(gone), 'run')} that loaded the table have no report: another program "
            "deleted them, as Trino's vacuum does. Once 1,000 other runs have loaded since, such a "
            "run would load its rows a second time.",
            f"zero-rename repair {root.url} --apply writes them again. Let zero-rename purge "
            "remove replaced files, not that program.",
        )
    ]
