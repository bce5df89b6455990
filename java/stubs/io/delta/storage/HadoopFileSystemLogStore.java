package io.delta.storage;

import org.apache.hadoop.conf.Configuration;

public abstract class HadoopFileSystemLogStore extends LogStore {
  public HadoopFileSystemLogStore(Configuration configuration) {}
}
