"""Checks of a root for a new Delta table.

It must not have files that the table would hide or take for its own, and no lifecycle rule may
remove the table's files or log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..committer.commit.state.context import Context
from ..committer.commit.state.found_table import refuse_below_swept, refuse_partition_folder
from ..committer.commit.state.table_kind import TableKind, table_kind
from ..committer.errors import StoreUnfitError, TableMismatchError
from ..committer.format.layout import TableRoot, is_job_id
from ..committer.format.schema.other_formats import find_log
from ..committer.store.lifecycle import LifecycleRule
from ..committer.store.listing import first_object
from ..committer.store.requests import LifecycleRules, ListedObject, ListLifecycleRules, Step

#: Prefixes of records that jobs may leave before there is a table.
_RECORDS = tuple(f"_zero_rename/{name}/" for name in ("open", "jobs", "failures", "probe"))


def check_free(root: TableRoot) -> Step[None]:
    """Refuse a root that has files or a table already. This takes one request if there are none,
    and two for each folder above the root.

    :raises TableMismatchError: there are files already, or a table of another kind.
    :raises InvalidInputError: the root is a partition's directory of a table, or lies below a table
        whose clean-up would delete its files.
    """
    yield from refuse_partition_folder(Context(root))
    yield from refuse_below_swept(root)
    found = yield from first_object(f"{root.prefix}/", lambda item: not _is_of_jobs(root, item))
    if found is None:
        return
    if (yield from table_kind(root)) is TableKind.DIRECTORIES:
        raise TableMismatchError(
            "A table of directories lies here, and layout='delta' is asked for: a table's layout "
            "does not change. Nothing was written.",
            table=root.url,
            remedy="Leave the layout out to write that table (in Python: zero_rename.Table), or "
            f"make a Delta table of it: zero-rename copy {root.url} NEW --layout delta",
        )
    name = found.key.removeprefix(f"{root.prefix}/")
    log = find_log(root, [found.key])
    what = f"a table of {log[0].name}" if log else f"the file {name}"
    raise TableMismatchError(
        f"There is no Delta table yet, and the root holds {what}. Nothing was written.",
        table=root.url,
        key=found.key,
        remedy="Write to another root. Of a directory of Parquet files "
        f"`zero-rename adopt {root.url} --layout delta` makes a Delta table where they lie, and "
        f"`zero-rename copy {root.url} NEW --layout delta` one elsewhere.",
    )


def refuse_expiry(
    root: TableRoot, tags: Mapping[str, str], adopted: Iterable[str] = ()
) -> Step[None]:
    """Refuse to make a table if a lifecycle rule of the bucket deletes its files or its log by age,
    or moves them where they cannot be read: one request. If the store does not show its rules to
    this writer, nothing is refused.

    :param tags: the tags of the files that the first job writes.
    :param adopted: keys of files that are there already and become the table's.
    :raises StoreUnfitError: there is such a rule.
    """
    found = yield from ListLifecycleRules()
    rules = found.rules if isinstance(found, LifecycleRules) else ()
    removing = [it for it in rules if it.expires or it.archives]
    if not removing:
        return
    places = {f"{root.prefix}/_delta_log/": {}, f"{root.prefix}/data/": tags}
    places |= {key: {} for key in adopted}
    for place, marked in places.items():
        for rule in removing:
            if rule.concerns(place, marked):
                raise _expires(root, rule, place)


def _expires(root: TableRoot, rule: LifecycleRule, place: str) -> StoreUnfitError:
    """Build the error of a rule that removes what lies below a folder, or a file."""
    does = "deletes by age" if rule.expires else f"moves to {rule.archives} by age"
    what = f"what lies below {place}" if place.endswith("/") else place
    return StoreUnfitError(
        f"The bucket's lifecycle rule {rule.name!r} {does} {what}: files that the table's log "
        "names, or the log itself. Nothing was written.",
        table=root.url,
        key=place,
        remedy="Exclude the table's prefix from the rule; zero-rename purge removes what was "
        "replaced, after the table's retention. Or write to a root that no such rule concerns.",
    )


def _is_of_jobs(root: TableRoot, item: ListedObject) -> bool:
    name = item.key.removeprefix(f"{root.prefix}/")
    first, _, rest = name.partition("/")
    return name.startswith(_RECORDS) or (first == "data" and is_job_id(rest.split("/")[0]))
