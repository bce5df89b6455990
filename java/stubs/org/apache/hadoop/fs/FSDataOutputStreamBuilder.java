package org.apache.hadoop.fs;

import java.io.IOException;

public abstract class FSDataOutputStreamBuilder<
        S extends FSDataOutputStream, B extends FSDataOutputStreamBuilder<S, B>>
    implements FSBuilder<S, B> {
  public abstract B create();

  @Override
  public abstract S build() throws IOException;
}
