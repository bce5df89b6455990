"""Names of the arguments by which a submitter's instructions are set, for the errors of a write."""

from __future__ import annotations

from collections.abc import Mapping

from ..committer.format.handoff import Handoff
from ..committer.format.records.run_conflict import is_dagsters

#: Where a user of Dagster gives an instruction; an asset's argument may be in its metadata, too.
_OF_DAGSTER: Mapping[str, str] = {"committer": "resource", "layout": "asset or resource"}


def instruction(handoff: Handoff, name: str) -> str:
    """Name an instruction of the submitter by its variable, and by what sets the variable.

    :param name: of a field of the hand-off.
    """
    variable, where = Handoff.variable(name), argument(handoff, name)
    return variable if where == variable else f"{variable}, which {where} sets"


def argument(handoff: Handoff, name: str) -> str:
    """Name the argument that sets an instruction: of Airflow's operator, or of a Dagster asset.

    A variable that a user has set by hand is named itself.
    """
    if is_dagsters(handoff.owner, handoff.idempotency_key):
        return f"{name}= of the Dagster {_OF_DAGSTER.get(name, 'asset')}"
    if handoff.dag is None and handoff.idempotency_key is None:
        return Handoff.variable(name)
    return f"{name}= of the Airflow operator"
