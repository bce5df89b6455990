"""A root for a new Delta table: nothing may lie there that the table would hide or take for its
own."""

from __future__ import annotations

from ..committer.commit.state.context import Context
from ..committer.commit.state.found_table import refuse_partition_folder
from ..committer.errors import TableMismatchError
from ..committer.format.layout import TableRoot, is_job_id
from ..committer.format.schema.other_formats import find_log
from ..committer.store.listing import first_object
from ..committer.store.requests import ListedObject, Step

#: What jobs leave before there is a table: their records, and files that no entry names.
_RECORDS = tuple(f"_zero_rename/{name}/" for name in ("open", "jobs", "failures", "probe"))


def check_free(root: TableRoot) -> Step[None]:
    """Refuse a root where a table or files are: one request where there are none.

    :raises TableMismatchError: files are there already, or a table of another kind.
    :raises InvalidInputError: it is a partition's directory of a table.
    """
    yield from refuse_partition_folder(Context(root))
    found = yield from first_object(f"{root.prefix}/", lambda item: not _is_of_jobs(root, item))
    if found is None:
        return
    name = found.key.removeprefix(f"{root.prefix}/")
    log = find_log(root, [found.key])
    what = f"a table of {log[0].name}" if log else f"the file {name}"
    raise TableMismatchError(
        f"There is no Delta table yet, and the root holds {what}. Nothing was written.",
        table=root.url,
        key=found.key,
        remedy="Write to another root, or copy what is there into a new table by zero-rename copy.",
    )


def _is_of_jobs(root: TableRoot, item: ListedObject) -> bool:
    name = item.key.removeprefix(f"{root.prefix}/")
    first, _, rest = name.partition("/")
    return name.startswith(_RECORDS) or (first == "data" and is_job_id(rest.split("/")[0]))
