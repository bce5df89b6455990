package org.apache.hadoop.fs;

import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;

public abstract class FSDataOutputStream extends DataOutputStream implements Abortable {
  public FSDataOutputStream(OutputStream out) {
    super(out);
  }

  public abstract boolean hasCapability(String capability);

  @Override
  public abstract void close() throws IOException;
}
