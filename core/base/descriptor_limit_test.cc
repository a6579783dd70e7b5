// Each test changes the limits of a child process.
#include "core/base/descriptor_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "core/base/error.h"
#include "core/base/sanitizer_testing.h"

namespace hvd {
namespace {

void set_limits(size_t soft, size_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::perror("setrlimit"), std::exit(1);
}

template <class Work>
[[noreturn]] void end_with_text_of(Work work) {
  try {
    work();
    std::fprintf(stderr, "soft limit %zu", descriptor_limit().soft);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

TEST(DescriptorLimit, IsLeftAloneWhileThereIsRoom) {
  EXPECT_EXIT(
      {
        set_limits(100, 200);
        end_with_text_of([] { make_room_for_descriptors(10, "this job"); });
      },
      testing::ExitedWithCode(0), "^soft limit 100$");
}

TEST(DescriptorLimit, IsRaisedToTheHardOneWhereMoreAreNeeded) {
  EXPECT_EXIT(
      {
        set_limits(100, 200);
        end_with_text_of([] { make_room_for_descriptors(120, "this job"); });
      },
      testing::ExitedWithCode(0), "^soft limit 200$");
}

TEST(DescriptorLimit, ThatIsTooLowIsNamedWithWhatToDo) {
  EXPECT_EXIT(
      {
        set_limits(100, 200);
        end_with_text_of([] { make_room_for_descriptors(1000, "this job"); });
      },
      testing::ExitedWithCode(0),
      "^this job needs 10[0-9]+ open descriptors, but the limit of this process is 200; raise the "
      "hard "
      "limit, which is 200");
}

TEST(DescriptorLimit, IsPartOfEveryErrorWhereDescriptorsHaveRunOut) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "UBSan needs descriptors";
  EXPECT_EXIT(
      {
        set_limits(20, 200);
        end_with_text_of([] {
          while (::open("/dev/null", O_RDONLY) >= 0) continue;
          fail_errno("opening it");
        });
      },
      testing::ExitedWithCode(0),
      "^opening it: Too many open files: the limit of this process is 20 open descriptors; raise "
      "the "
      "limit: ulimit -n 200$");
}

}  // namespace
}  // namespace hvd
