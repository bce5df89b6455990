"""Writing of data frames: the tasks of ``save()``, and what it shares with the data source."""
