package org.apache.hadoop.fs;

public interface Abortable {
  AbortableResult abort();

  interface AbortableResult {}
}
