#include "job/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>

#include "core/base/error.h"

namespace hvd::job {
namespace {

/// What a handful of system calls need, with room.
constexpr size_t kStackBytes = size_t{64} << 10;

/// As the kernel takes them.
std::vector<cpu_set_t> mask_of(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  const int last = *std::ranges::max_element(cpus);
  std::vector<cpu_set_t> mask(static_cast<size_t>(last / CPU_SETSIZE) + 1);
  for (const int cpu : cpus)
    CPU_SET_S(static_cast<size_t>(cpu), mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

/// Gives `source` the number `target` and lets it survive exec.
bool place_descriptor(int source, int target) {
  if (source == target) return fcntl(target, F_SETFD, 0) == 0;
  return dup2(source, target) >= 0;
}

bool prepare_child(const Program& program, const ProcessDefaults& defaults) {
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (!place_descriptor(program.in, STDIN_FILENO) ||
      !place_descriptor(program.out, STDOUT_FILENO) ||
      !place_descriptor(program.err, STDERR_FILENO))
    return false;
  if (program.key >= 0 && !place_descriptor(program.key, program.key_target)) return false;
  if (setrlimit(RLIMIT_NOFILE, &defaults.open_files) != 0) return false;
  return sigaction(SIGPIPE, &defaults.on_broken_pipe, nullptr) == 0 &&
         sigprocmask(SIG_SETMASK, &defaults.signal_mask, nullptr) == 0;
}

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// The child shares our memory, as after vfork, but we do not wait for it: 64 processes start in the
// time that the slower of two cores needs, not one after the other. It has a stack of its own.
Spawned::Spawned(const Program& program, const ProcessDefaults& defaults)
    : program_(program),
      defaults_(defaults),
      arguments_(pointers(program.arguments)),
      environment_(pointers(program.environment)),
      cpus_(mask_of(program.cpus)),
      stack_(new std::byte[kStackBytes]) {
  pid_ = clone(child, stack_.get() + kStackBytes, CLONE_VM | SIGCHLD, this);
  if (pid_ < 0) fail_errno("starting a process");
}

/// Runs beside the parent in its memory: system calls only, and nothing of ours is changed but
/// error_.
int Spawned::child(void* spawned) {
  auto& self = *static_cast<Spawned*>(spawned);
  // A CPU may have just been taken from us: unbound the program runs as well.
  if (!self.cpus_.empty())
    sched_setaffinity(0, self.cpus_.size() * sizeof(cpu_set_t), self.cpus_.data());
  if (prepare_child(self.program_, self.defaults_))
    execve(self.program_.path.c_str(), self.arguments_.data(), self.environment_.data());
  self.error_ = errno;
  _exit(127);
}

std::string find_program(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : std::string{};
  std::stringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(candidate)) return candidate;
  }
  return {};
}

}  // namespace hvd::job
