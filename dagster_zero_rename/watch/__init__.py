"""Tables that Dagster or other programs write, under watch: checks, sensors, observations."""
