"""Sensors that wait for a particular committed job."""
