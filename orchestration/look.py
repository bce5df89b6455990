"""Poll of a table for many sensors at once: the objects at the keys that they wait for."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, MutableMapping

from ..committer.format.layout import CONTROL
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step

#: The objects at a key or in a folder: keys and ETags.
State = tuple[tuple[str, str], ...]


def look(wanted: Collection[str], pages: MutableMapping[str, int]) -> Step[dict[str, State]]:
    """List the objects at some keys and in some folders.

    Keys of one folder share one listing, of the prefix that their names have in common. It takes a
    request for each thousand objects, for any number of sensors. If the folder's last listing took
    more pages than there are keys, each key is listed by itself.

    :param wanted: keys, and folders with a slash at their end.
    :param pages: the number of pages that each folder's last listing took; updated here.
    :return: by key or folder; an empty state if there is nothing.
    """
    groups: dict[str, list[str]] = {}
    for name in wanted:
        groups.setdefault(_parent(name), []).append(name)
    asked = {parent: _prefixes(names, pages.get(parent, 1)) for parent, names in groups.items()}
    prefixes = [(parent, prefix) for parent, found in asked.items() for prefix in found]
    listings = yield from All(tuple(list_objects(prefix) for _, prefix in prefixes))
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in wanted}
    for (parent, _), listing in zip(prefixes, listings, strict=True):
        if len(asked[parent]) < len(groups[parent]):
            pages[parent] = 1 + len(listing.objects) // 1000
        for name, item in _placed(listing.objects, found):
            found[name].append((item.key, item.etag))
    return {name: tuple(sorted(set(items))) for name, items in found.items()}


def _parent(name: str) -> str:
    """Return the folder whose names are listed together; all heads share one folder."""
    before, heads, _ = name.partition(f"/{CONTROL}/heads/")
    if heads:
        return before + heads
    return name.rstrip("/").rpartition("/")[0] + "/"


def _prefixes(names: list[str], pages: int) -> list[str]:
    if pages > len(names):
        return names
    first, last = min(names), max(names)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return ["".join(character for character, _ in same)]


def _placed(
    objects: Iterable[ListedObject], wanted: Collection[str]
) -> Iterator[tuple[str, ListedObject]]:
    """Yield the objects at a wanted key or directly in a wanted folder, each with that name."""
    for item in objects:
        for name in (item.key, item.key.rpartition("/")[0] + "/"):
            if name in wanted:
                yield name, item
