"""Layouts: how files of a table are written, become visible and leave, on the one kernel of log/.

Nothing of the package uses them yet.
"""
