package io.delta.storage;

import java.io.IOException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public abstract class LogStore {
  public abstract void write(
      Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException;

  public abstract Boolean isPartialWriteVisible(Path path, Configuration configuration)
      throws IOException;
}
