"""Data roots of a Delta table: further places for its files, recorded in its properties.

Other engines keep properties that they do not know. A path into a recorded root names a file of the
table if it lies in the table's own folder there. Any other path leads out of the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...committer.errors import InvalidInputError, RecordDamagedError, without_secrets
from ...committer.store.fast_root import FastRoot
from ...log.replay import LogState

#: The property with the root in which jobs write their files first.
DATA_ROOT = "zero_rename.dataRoot"
#: The property with former roots, where files may still lie; a JSON list.
FORMER_ROOTS = "zero_rename.formerDataRoots"


def data_root_of(state: LogState) -> FastRoot | None:
    """Return the root in which jobs of a table write their files first; ``None``: the table's own.

    :raises RecordDamagedError: the property cannot be read.
    """
    return None if state.metadata is None else present_root(state.metadata.properties)


def present_root(properties: Mapping[str, str]) -> FastRoot | None:
    """Return the root in which jobs write their files first, from a table's properties; ``None``:
    the table's own.

    :raises RecordDamagedError: the property cannot be read.
    """
    text = properties.get(DATA_ROOT)
    return _read(text, DATA_ROOT) if text else None


def roots_of(state: LogState) -> tuple[FastRoot, ...]:
    """Return all recorded roots in which files of a table may lie, the present one first.

    :raises RecordDamagedError: a property cannot be read.
    """
    return _roots({} if state.metadata is None else state.metadata.properties)


def _roots(properties: Mapping[str, str]) -> tuple[FastRoot, ...]:
    try:
        former = json.loads(properties.get(FORMER_ROOTS, "[]"))
        texts = [*filter(None, [properties.get(DATA_ROOT)]), *former]
    except (ValueError, TypeError, RecursionError) as error:
        raise _damage(FORMER_ROOTS, properties[FORMER_ROOTS]) from error
    return tuple(_read(it, DATA_ROOT if not i else FORMER_ROOTS) for i, it in enumerate(texts))


def _read(text: object, name: str) -> FastRoot:
    try:
        if isinstance(text, str):
            return FastRoot.parse(text)
    except InvalidInputError as error:
        raise _damage(name, text) from error
    raise _damage(name, text)


def _damage(name: str, text: object) -> RecordDamagedError:
    return RecordDamagedError(
        f"The property {name} is not a data root: {without_secrets(str(text))!r}. Nothing was read "
        "or written.",
        field=name,
        remedy="Set it as it was, by the engine that changed it.",
    )


def with_data_root(properties: Mapping[str, str], root: FastRoot | None) -> dict[str, str]:
    """Return the properties of a table after a change of its data root.

    A recorded root with the same bucket and prefix is replaced by the new one: it is the same place
    with another endpoint, profile or purpose.

    :param root: the new data root; ``None``: jobs write in the table itself.
    """
    known = {(it.bucket, it.prefix): it.place.url for it in _roots(properties)}
    if root is not None:
        known.pop((root.bucket, root.prefix), None)
    former = [*known.values()]
    changed = {k: v for k, v in properties.items() if k not in (DATA_ROOT, FORMER_ROOTS)}
    if root is not None:
        changed[DATA_ROOT] = root.url
    if former:
        changed[FORMER_ROOTS] = json.dumps(former)
    return changed


def keeping_roots(properties: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Return former properties of a table with its present data roots, where live files may still
    lie."""
    kept = {name: it for name, it in present.items() if name in (DATA_ROOT, FORMER_ROOTS)}
    others = {k: v for k, v in properties.items() if k not in (DATA_ROOT, FORMER_ROOTS)}
    return others | kept
