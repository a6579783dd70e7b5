// Tests input_source.h and input_pipe.h, the two ends of the input of a rank 0 on another host.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "core/base/bytes.h"
#include "launcher/stream/input_pipe.h"
#include "launcher/stream/input_source.h"

namespace hvd::launcher {
namespace {

constexpr size_t kPlenty = MiB;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader = FileDescriptor(ends[0]);
    writer = FileDescriptor(ends[1]);
  }
  void write(std::string_view text) const {
    EXPECT_EQ(::write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  FileDescriptor reader, writer;
};

std::string read_now(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char bytes[4096];
  for (ssize_t size = 0; (size = read(fd, bytes, sizeof bytes)) > 0;)
    all.append(bytes, static_cast<size_t>(size));
  return all;
}

TEST(InputSource, GivesWhatIsThereUpToTheLimitAndNeverBlocks) {
  const Pipe pipe;
  InputSource source(pipe.reader.get());
  EXPECT_EQ(source.read(kPlenty), std::nullopt);
  pipe.write(std::string("ab\0cd", 5));
  EXPECT_EQ(source.read(0), std::nullopt);
  EXPECT_EQ(source.read(2), "ab");
  EXPECT_EQ(source.read(kPlenty), std::string("\0cd", 3));
  EXPECT_EQ(source.read(kPlenty), std::nullopt);
}

TEST(InputSource, EndsOnceThereIsNoWriterAndStaysSo) {
  Pipe pipe;
  pipe.write("x");
  InputSource source(pipe.reader.get());
  pipe.writer.reset();
  EXPECT_EQ(source.read(kPlenty), "x");
  EXPECT_EQ(source.read(kPlenty), "");
  EXPECT_EQ(source.read(kPlenty), "");
}

TEST(InputSource, EndsWhereTheLastWriterHadGoneBefore) {
  Pipe pipe;
  pipe.writer.reset();
  EXPECT_EQ(InputSource(pipe.reader.get()).read(kPlenty), "");
}

TEST(InputSource, ReadsAFileFromWhereItIsAndMovesOnIt) {
  const FileDescriptor file(memfd_create("input", MFD_CLOEXEC));
  ASSERT_EQ(write(file.get(), "0123456789", 10), 10);
  lseek(file.get(), 4, SEEK_SET);
  InputSource source(file.get());
  EXPECT_EQ(source.read(3), "456");
  EXPECT_EQ(lseek(file.get(), 0, SEEK_CUR), 7);
  EXPECT_EQ(source.read(kPlenty), "789");
  EXPECT_EQ(source.read(kPlenty), "");
}

TEST(InputPipe, KeepsWhatDoesNotFitAndTellsWhatWasTaken) {
  InputPipe pipe;
  const auto capacity = static_cast<size_t>(fcntl(pipe.read_end(), F_GETPIPE_SZ));
  const std::string large(capacity + 1000, 'x');
  EXPECT_EQ(pipe.fd(), -1);
  pipe.add(large);
  pipe.add("");
  EXPECT_EQ(pipe.pump(), capacity);
  EXPECT_GE(pipe.fd(), 0);
  EXPECT_EQ(pipe.pump(), 0U);
  EXPECT_EQ(read_now(pipe.read_end()).size(), capacity);
  EXPECT_FALSE(pipe.closed());
  EXPECT_EQ(pipe.pump(), 1000U);
  EXPECT_EQ(pipe.fd(), -1);
  EXPECT_TRUE(pipe.closed());
  EXPECT_EQ(read_now(pipe.read_end()).size(), 1000U);
}

TEST(InputPipe, IsClosedWhenNobodyReadsAnyMore) {
  signal(SIGPIPE, SIG_IGN);
  InputPipe pipe;
  pipe.add("a");
  EXPECT_EQ(pipe.pump(), 1U);
  pipe.let_go();
  EXPECT_EQ(pipe.read_end(), -1);
  pipe.add("b");
  EXPECT_EQ(pipe.pump(), 0U);
  EXPECT_TRUE(pipe.closed());
  EXPECT_EQ(pipe.fd(), -1);
}

}  // namespace
}  // namespace hvd::launcher
