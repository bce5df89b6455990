"""Broken variants of the protocol, one for each rule about order: the simulation must catch each.

A variant puts a function with a rule broken in the place of the committer's; its scenario is one of
the catalogue, explored to the same bound without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zero_rename.committer.commit import abort, apply, claim, close, commit, markers, snapshot
from zero_rename.committer.commit import open as opening
from zero_rename.committer.commit.state import decide, heads, partition_files
from zero_rename.committer.upkeep import recovery
from zero_rename.committer.upkeep.purging import purge

#: The invariants, by which a variant may be caught.
COMPLETENESS = "completeness"
EXCLUSIVITY = "exclusivity"
CONSISTENCY = "consistency"
CONCURRENT = "concurrent"
ABORT = "ability to abort"
CONTINUITY = "continuity of correctness"

#: A module or a class, and one of its attributes.
Place = tuple[Any, str]
#: The same, and what is put there.
Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Variant:
    """A broken protocol.

    :param name: the rule that is broken.
    :param patches: what makes it so.
    :param scenario: one of the catalogue that meets the flaw.
    :param caught_as: the invariants that may catch it.
    """

    name: str
    patches: Sequence[Patch]
    scenario: str
    caught_as: frozenset[str]


#: All that were noted by :func:`breaks`.
VARIANTS: list[Variant] = []


def breaks(
    where: Place | list[Place],
    scenario: str,
    *caught_as: str,
    through: Callable[[Any], Any] = lambda broken: broken,
    also: Sequence[Patch] = (),
) -> Callable[[Any], Any]:
    """Note a variant that is named as the decorated function and has it in one or more places.

    :param through: makes of the function what is put there.
    :param also: what is broken besides.
    """

    def noted(broken: Any) -> Any:
        places = where if isinstance(where, list) else [where]
        patches = [*((*place, through(broken)) for place in places), *also]
        name = broken.__name__.replace("_", " ")
        VARIANTS.append(Variant(name, patches, scenario, frozenset(caught_as)))
        return broken

    return noted


_ALL = (
    abort,
    apply,
    claim,
    close,
    partition_files,
    decide,
    commit,
    markers,
    opening,
    purge,
    recovery,
    heads,
    snapshot,
)


def everywhere(name: str, *modules: Any) -> list[Place]:
    """Wherever some modules, or all with steps, import a name."""
    return [(module, name) for module in modules or _ALL if hasattr(module, name)]
