"""Records of a run's attempts and writes with Hadoop's committers."""
