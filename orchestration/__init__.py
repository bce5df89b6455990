"""Loads from a scheduler, whichever it is: runs, submissions, outcomes, upkeep."""
