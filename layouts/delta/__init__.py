"""Layout of Delta tables, whose log entries this package commits.

A file is visible with its entry: no file is completed or moved after the commit.
"""
