"""Loads from any scheduler: runs, submissions, outcomes, maintenance."""
