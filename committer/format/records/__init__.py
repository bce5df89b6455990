"""Control records under ``_zero_rename/``: their fields and their JSON."""
