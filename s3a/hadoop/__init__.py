"""Hadoop's side of the S3A committers: settings, jars, paths, and the files they write."""
