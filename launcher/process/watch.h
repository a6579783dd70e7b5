// Adds descriptors to an epoll and removes them.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "core/base/error.h"
#include "core/transport/file_descriptor.h"

namespace hvd::launcher {

/// Events of `fd` carry `tag`. Throws Error{internal}.
inline void watch(const FileDescriptor& epoll, int fd, uint64_t tag = 0,
                  uint32_t events = EPOLLIN) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("watching a descriptor");
}

/// Ignores a descriptor that is not watched or not open.
inline void unwatch(const FileDescriptor& epoll, int fd) {
  if (fd >= 0) epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace hvd::launcher
