package org.apache.hadoop.fs;

import java.io.IOException;

public class FileAlreadyExistsException extends IOException {
  private static final long serialVersionUID = 1L;
}
