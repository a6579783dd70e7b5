#include "core/group/bootstrap/job_key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/transport/file_descriptor.h"

namespace hvd {
namespace {

/// As a launcher makes it: a memfd that is inherited by exec.
FileDescriptor file_with(ConstBytes content) {
  FileDescriptor fd(::memfd_create("key", 0));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()), ssize_t(content.size()));
  return fd;
}

Code code_of(const Environment& environment) {
  try {
    read_job_key(environment);
    return Code::ok;
  } catch (const Error& error) {
    return error.code();
  }
}

TEST(ReadJobKey, ReadsTheKeyAsOftenAsItIsAsked) {
  const JobKey key = make_job_key();
  const auto fd = file_with(key.bytes);
  const Environment environment{{"HOROVOD_KEY_FD", std::to_string(fd.get())}};
  EXPECT_EQ(read_job_key(environment).bytes, key.bytes);
  EXPECT_EQ(read_job_key(environment).bytes, key.bytes);
}

TEST(ReadJobKey, AProgramThatTheRankStartsDoesNotInheritIt) {
  const auto fd = file_with(make_job_key().bytes);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  read_job_key(fd.get());
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(ReadJobKey, WithoutAKeyThereIsNoJob) {
  EXPECT_EQ(code_of({}), Code::unauthorized);
  EXPECT_EQ(code_of({{"HOROVOD_KEY_FD", "65000"}}), Code::unauthorized);
  EXPECT_EQ(code_of({{"HOROVOD_KEY_FD", "stdin"}}), Code::invalid_argument);
  const auto half = file_with(ConstBytes(make_job_key().bytes).first(16));
  EXPECT_EQ(code_of({{"HOROVOD_KEY_FD", std::to_string(half.get())}}), Code::unauthorized);
}

}  // namespace
}  // namespace hvd
