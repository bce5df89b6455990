package zero_rename;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;

/**
 * Delta's log on S3: an entry is written by one PUT with If-None-Match, so that of two writers of
 * one number the store lets one win, in whatever processes they are.
 *
 * <p>It needs S3A's conditional create, of hadoop-aws 3.4.2 and later; an earlier one is refused
 * before anything is sent.
 */
public final class ConditionalLogStore extends HadoopFileSystemLogStore {
  /** S3A's option: the PUT that ends the stream says If-None-Match. */
  private static final String ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite";

  public ConditionalLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(
      Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    FileSystem store = path.getFileSystem(configuration);
    byte[] body = linesOf(actions);
    if (overwrite) {
      send(store.create(path, true), body);
      return;
    }
    FSDataOutputStream entry = openIfAbsent(store, path);
    if (entry == null) {
      throw new FileAlreadyExistsException(path.toString());
    }
    try {
      send(entry, body);
    } catch (IOException error) {
      explain(store, path, body, error);
    }
  }

  /** Nobody sees a part of an object. */
  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return false;
  }

  /** Open an entry that is not there; null: it is. */
  private static FSDataOutputStream openIfAbsent(FileSystem store, Path path) throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder = store.createFile(path).create();
    builder.must(ONLY_IF_ABSENT, true);
    try {
      return builder.build();
    } catch (org.apache.hadoop.fs.FileAlreadyExistsException error) {
      return null;
    } catch (IllegalArgumentException | UnsupportedOperationException error) {
      throw new IOException(
          "The file system of "
              + path
              + " has no conditional create, so that this entry could write over another one."
              + " Nothing was written. Use hadoop-aws 3.4.2 or later, or write the table by"
              + " zero_rename's save().",
          error);
    }
  }

  /** Write all of an object; what fails before its end leaves none. */
  private static void send(FSDataOutputStream stream, byte[] body) throws IOException {
    try {
      stream.write(body);
    } catch (IOException | RuntimeException error) {
      if (stream.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) {
        stream.abort();
      }
      throw error;
    }
    stream.close();
  }

  /**
   * Tell by what lies at the number what became of a PUT that failed: ours (its answer was lost, and
   * a repeated request was refused), another's, or not known. A commit has an id of its own, so that
   * no two have the same bytes.
   */
  private static void explain(FileSystem store, Path path, byte[] body, IOException error)
      throws IOException {
    byte[] there;
    try (InputStream found = store.open(path)) {
      there = found.readAllBytes();
    } catch (IOException unread) {
      error.addSuppressed(unread);
      throw error;
    }
    if (Arrays.equals(there, body)) {
      return;
    }
    FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
    taken.initCause(error);
    throw taken;
  }

  private static byte[] linesOf(Iterator<String> actions) {
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append(actions.next()).append('\n');
    }
    return lines.toString().getBytes(StandardCharsets.UTF_8);
  }
}
