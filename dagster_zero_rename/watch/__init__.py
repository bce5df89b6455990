"""Tables that Dagster looks at, whoever writes them: checks, a sensor, observations."""
