package org.apache.hadoop.fs;

public interface StreamCapabilities {
  String ABORTABLE_STREAM = "fs.capability.outputstream.abortable";
}
