"""Garbage collection of records: those of old jobs are condensed to a few bytes, or removed."""
