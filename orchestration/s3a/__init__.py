"""Loads of a scheduler's run by Hadoop's S3A committers."""
