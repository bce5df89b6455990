"""Records of a run's tries and writes with Hadoop's committers."""
