"""Lineage of tables: what is stale or lost, and which jobs to run again, in which order."""

from .bound import AtRisk, at_risk, risks_of
from .graph import WRONG, LineageGraph, LineageState, PartitionLineage, look_up
from .nodes import JobNode, JobRun
from .plan import Plan, Refusal, Step, plan

__all__ = [
    "WRONG",
    "AtRisk",
    "JobNode",
    "JobRun",
    "LineageGraph",
    "LineageState",
    "PartitionLineage",
    "Plan",
    "Refusal",
    "Step",
    "at_risk",
    "look_up",
    "plan",
    "risks_of",
]
