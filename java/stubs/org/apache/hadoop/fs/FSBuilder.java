package org.apache.hadoop.fs;

import java.io.IOException;

public interface FSBuilder<S, B extends FSBuilder<S, B>> {
  B must(String key, boolean value);

  S build() throws IOException;
}
