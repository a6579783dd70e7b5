// For tests: the name of an abstract unix socket, which the kernel shows to all users.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstddef>
#include <string>

namespace hvd::test {

inline std::string abstract_name_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  constexpr size_t kBegin = offsetof(sockaddr, sa_data) + 1;  // behind the leading 0
  return {reinterpret_cast<const char*>(&address) + kBegin, size - kBegin};
}

}  // namespace hvd::test
