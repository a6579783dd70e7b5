#include "core/transport/dialer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace hvd {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Dialed> outcomes(Dialer& dialer, size_t count) {
  std::vector<Dialed> all;
  const TimePoint until = std::chrono::steady_clock::now() + 30s;
  while (all.size() < count && wait_until_ready(dialer.fd(), POLLIN, until))
    for (Dialed& one : dialer.step()) all.push_back(std::move(one));
  return all;
}

TEST(Dialer, OpensSeveralConnectionsAtOnce) {
  const FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  Dialer dialer;
  for (const int id : {3, 4, 4}) dialer.dial(id, {"127.0.0.1", port_of(listener)});
  EXPECT_TRUE(dialer.is_dialing(4));
  const auto all = outcomes(dialer, 3);
  ASSERT_EQ(all.size(), 3u);
  for (const Dialed& one : all) EXPECT_TRUE(one.socket) << one.why;
  EXPECT_FALSE(dialer.is_dialing(4));
}

TEST(Dialer, TellsWhyAnAttemptFailed) {
  uint16_t port = 0;
  {
    const FileDescriptor listener = listen_tcp("127.0.0.1", 0);
    port = port_of(listener);
  }
  Dialer dialer;
  dialer.dial(1, {"127.0.0.1", port});
  dialer.dial(2, {"a-name", port});
  const auto all = outcomes(dialer, 2);
  ASSERT_EQ(all.size(), 2u);
  for (const Dialed& one : all) {
    EXPECT_FALSE(one.socket);
    EXPECT_THAT(one.why, HasSubstr(to_text(one.address)));
  }
}

TEST(Dialer, ForgetsAnIdWithAllItsAttempts) {
  const FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  Dialer dialer;
  dialer.dial(1, {"127.0.0.1", port_of(listener)});
  dialer.dial(1, {"127.0.0.1", port_of(listener)});
  dialer.forget(1);
  EXPECT_FALSE(dialer.is_dialing(1));
  EXPECT_THAT(dialer.step(), IsEmpty());
}

}  // namespace
}  // namespace hvd
