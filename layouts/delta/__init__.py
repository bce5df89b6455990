"""A real Delta table, whose log entries this package commits.

A file is visible with its entry: nothing is completed or moved after it.
"""
