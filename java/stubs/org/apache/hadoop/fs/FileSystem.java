package org.apache.hadoop.fs;

import java.io.IOException;

public abstract class FileSystem {
  public abstract FSDataOutputStream create(Path path, boolean overwrite) throws IOException;

  public abstract FSDataOutputStreamBuilder<?, ?> createFile(Path path);

  public abstract FSDataInputStream open(Path path) throws IOException;
}
