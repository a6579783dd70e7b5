// The machine that this process is on: how it is told from others, and how it is reached.
#pragma once

#include <string>
#include <vector>

namespace hvd {

/// Of the running kernel; new with every boot.
std::string kernel_name();
/// Of the network that this thread is in, as its kernel names it.
std::string network_name();

/// The addresses of one interface. Throws Error{invalid_argument} naming those that there are when
/// there is no such one.
std::vector<std::string> addresses_on(const std::string& interface_name);

}  // namespace hvd
