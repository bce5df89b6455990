"""Hadoop's part of the S3A committers: settings, jars, paths, and the files they write."""
