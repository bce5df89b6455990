"""Loads by Hadoop's S3A committers from a run."""
