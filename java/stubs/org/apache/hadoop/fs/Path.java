package org.apache.hadoop.fs;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;

public abstract class Path {
  public abstract FileSystem getFileSystem(Configuration configuration) throws IOException;

  @Override
  public abstract String toString();
}
