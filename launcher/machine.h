// The facts about this machine that a plan needs (plan.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/transport/interfaces.h"
#include "launcher/process/command.h"

namespace hvd::launcher {

/// The values are read once. The functions provide facts that only some plans need: listing the
/// addresses takes as long as starting a process. Tests replace both.
struct Machine {
  std::string name;
  Environment environment;
  std::string program;  ///< path of this horovodrun
  std::string folder;   ///< the working folder, as the shell spells it
  std::function<std::vector<InterfaceAddress>()> addresses;
  std::function<bool(const std::string& interface)> has_interface;
  /// Returns a TCP port on which no process of this machine listens. Throws Error{internal}.
  std::function<uint16_t()> free_port;
  /// Throws Error{invalid_argument} naming the file and `what` it is.
  std::function<std::string(const std::string& path, const char* what)> read_file;
  std::function<FoundCommand(const std::vector<std::string>& command, const Environment&)>
      find_command;
  /// Returns the path of a program; empty if it is not in PATH.
  std::function<std::string(const std::string& program)> find_program;
  /// Returns the interpreter that was installed with `program`, else python3 of `path`; empty if
  /// there is none.
  std::function<std::string(const std::string& path)> find_python;
};

Machine this_machine();
/// Machine::free_port of this machine.
uint16_t free_port();

}  // namespace hvd::launcher
