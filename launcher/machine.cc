#include "launcher/machine.h"

#include <fmt/core.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "core/base/error.h"
#include "core/transport/file_descriptor.h"
#include "launcher/options/text_file.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {
namespace {

std::string machine_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

/// As the shell spells it, so that the path is likely to exist on other hosts too.
std::string working_folder(const Environment& environment) {
  std::error_code problem;
  const auto pwd = environment.find("PWD");
  if (pwd != environment.end() && pwd->second.starts_with('/') &&
      std::filesystem::equivalent(pwd->second, ".", problem))
    return pwd->second;
  return std::filesystem::current_path(problem).string();
}

/// If /proc does not show this process: the path with which it was started.
std::string own_path() {
  std::error_code problem;
  const auto shown = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (!problem) return shown.string();
  const auto* started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return std::filesystem::canonical(started, problem).string();
}

bool is_free(uint16_t port) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

/// Below the range from which Linux takes the ports of outgoing connections, since a rank listens
/// on it only after it has started.
uint16_t free_port() {
  constexpr uint16_t kFirst = 20000;
  constexpr uint16_t kLast = 32767;
  constexpr int kAttempts = 1000;
  std::random_device random;
  std::uniform_int_distribution<uint16_t> ports(kFirst, kLast);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint16_t port = ports(random);
    if (is_free(port)) return port;
  }
  fail(Code::internal, fmt::format("no TCP port from {} to {} is free", kFirst, kLast));
}

Machine this_machine() {
  Machine machine;
  machine.name = machine_name();
  machine.environment = process_environment();
  machine.program = own_path();
  machine.folder = working_folder(machine.environment);
  machine.addresses = interface_addresses;
  machine.has_interface = [](const std::string& name) { return if_nametoindex(name.c_str()) != 0; };
  machine.free_port = free_port;
  machine.read_file = read_text_file;
  machine.find_command = find_command;
  machine.find_program = [path = path_of(machine.environment)](const std::string& program) {
    return find_program(program, path);
  };
  machine.find_python = [program = machine.program](const std::string& path) {
    return find_python(program, path);
  };
  return machine;
}

}  // namespace hvd::launcher
