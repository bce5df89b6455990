"""Tables that Dagster watches, with any writer: checks, sensors, observations."""
