// Identifies the machine of this process, and lists its addresses.
#pragma once

#include <string>
#include <vector>

namespace hvd {

/// The boot id of the running kernel.
std::string kernel_name();
/// The network namespace of this thread, as the kernel names it.
std::string network_name();

/// The addresses of one interface. Throws Error{invalid_argument} listing the interfaces that are
/// up if there is none of this name.
std::vector<std::string> addresses_on(const std::string& interface_name);

}  // namespace hvd
