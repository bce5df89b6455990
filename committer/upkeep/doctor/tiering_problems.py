"""Problems with configurations of S3 Intelligent-Tiering that archive a table's objects."""

from __future__ import annotations

from ...commit.state.context import Context
from ...format.layout import TableRoot
from ...store.listing import first_object
from ...store.requests import ListedObject, ListObjects, ListTieringRules, Step, Unknown
from ...store.tiering import INTELLIGENT_TIERING, TieringRule
from ..problem import Problem


def about_tiering(context: Context) -> Step[list[Problem]]:
    """Find configurations that move objects of a table to tiers where they cannot be read at once.

    Sends one request. If a configuration concerns the table, it also lists objects up to the first
    one of that class. If the store does not show its configurations, it lists one page.
    """
    root = context.root
    folder = f"{root.prefix}/"
    answer = yield from ListTieringRules(folder)
    if isinstance(answer, Unknown):
        page = yield from ListObjects(folder)
        found = next(filter(_is_tiered, page.objects), None)
        return [] if found is None else [_unknown(root, found, answer.cause)]
    rules = [rule for rule in answer if rule.concerns(folder)]
    if not rules:
        return []
    found = yield from first_object(folder, lambda item: _is_taken(item, rules))
    if found is None:
        return []
    return [_archived(rule, found) for rule in rules if found.key.startswith(rule.prefix)]


def _is_tiered(item: ListedObject) -> bool:
    return item.storage_class == INTELLIGENT_TIERING


def _is_taken(item: ListedObject, rules: list[TieringRule]) -> bool:
    return _is_tiered(item) and any(item.key.startswith(rule.prefix) for rule in rules)


def _archived(rule: TieringRule, found: ListedObject) -> Problem:
    tags = f", with the tags {dict(rule.tags)}," if rule.tags else ""
    return Problem(
        "intelligent tiering archives the table",
        rule.name,
        f"The configuration moves objects of the class {INTELLIGENT_TIERING}{tags} that were not "
        f"read for {rule.days} days to {rule.tier}, from where nothing can be read before it is "
        f"restored: reads, loads and maintenance then fail. Such an object is {found.key}.",
        "Exclude the table's prefix, or take the archive tiers out of the configuration: the other "
        "tiers of that class are read at once. What is archived is restored by aws s3api "
        "restore-object.",
    )


def _unknown(root: TableRoot, found: ListedObject, cause: str) -> Problem:
    return Problem(
        "intelligent tiering unknown",
        root.bucket,
        f"The table has objects of the class {INTELLIGENT_TIERING}, such as {found.key}, and the "
        f"store did not tell the bucket's configurations ({cause}): they may archive them.",
        "Grant s3:GetIntelligentTieringConfiguration, and look for configurations with "
        "ARCHIVE_ACCESS or DEEP_ARCHIVE_ACCESS.",
    )
