#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>

#include "launcher/process/raw_syscall.h"

namespace hvd::launcher {
namespace {

/// Enough for a handful of system calls.
constexpr size_t kStackBytes = size_t{64} << 10;

/// The CPU masks in the kernel's format.
std::vector<cpu_set_t> mask_of(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  const int last = *std::ranges::max_element(cpus);
  std::vector<cpu_set_t> mask(static_cast<size_t>(last / CPU_SETSIZE) + 1);
  for (const int cpu : cpus)
    CPU_SET_S(static_cast<size_t>(cpu), mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

template <typename T>
long address_of(const T* object) {
  return reinterpret_cast<long>(object);
}

/// Duplicates `source` to the number `target`, which survives exec. Negative: -errno.
long place_descriptor(int source, int target) {
  if (source == target) return raw_syscall(SYS_fcntl, target, F_SETFD, 0);
  return raw_syscall(SYS_dup3, source, target, 0);
}

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

ProcessDefaults current_defaults() {
  ProcessDefaults defaults;
  sigprocmask(SIG_SETMASK, nullptr, &defaults.signal_mask);
  sigaction(SIGPIPE, nullptr, &defaults.on_broken_pipe);
  getrlimit(RLIMIT_NOFILE, &defaults.open_files);
  return defaults;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// The child shares our memory, as after vfork, but we do not wait for it, so many processes start
// in parallel. It has its own stack.
Spawned::Spawned(const Program& program, const ProcessDefaults& defaults)
    : program_(program),
      defaults_(defaults),
      parent_(getpid()),
      arguments_(pointers(program.arguments)),
      environment_(pointers(program.environment)),
      cpus_(mask_of(program.cpus)),
      stack_(new std::byte[kStackBytes]),
      in_our_memory_(1) {
  pid_ = clone(child, stack_.get() + kStackBytes, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, this,
               nullptr, nullptr, &in_our_memory_);
  if (pid_ >= 0) return;
  error_.store(errno, std::memory_order_relaxed);
  in_our_memory_.store(0, std::memory_order_relaxed);
}

Spawned::~Spawned() {
  // Acquire: the child's writes are visible after this. Partner: the kernel, at exec or exit.
  while (const int here = in_our_memory_.load(std::memory_order_acquire)) {
    kill(pid_, SIGKILL);  // not reaped yet: waits until it has left our memory
    raw_syscall(SYS_futex, address_of(&in_our_memory_), FUTEX_WAIT, here, 0);
  }
}

/// Runs beside the parent in its memory and with its thread-local storage. It must not allocate,
/// must change nothing of ours except error_, and may use only libc functions that cannot fail:
/// errno is shared.
int Spawned::child(void* spawned) {
  auto& self = *static_cast<Spawned*>(spawned);
  self.error_.store(static_cast<int>(-self.become_program()),
                    std::memory_order_release);  // partner: error()
  _exit(127);
}

long Spawned::become_program() const {
  // Ignores failure: a CPU may have just been removed, and the program also runs unbound.
  if (!cpus_.empty())
    raw_syscall(SYS_sched_setaffinity, 0, static_cast<long>(cpus_.size() * sizeof(cpu_set_t)),
                address_of(cpus_.data()));
  long result = raw_syscall(SYS_setpgid, 0, 0);
  if (result >= 0) result = raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (raw_syscall(SYS_getppid) != parent_) _exit(127);  // the parent ended before PDEATHSIG was set
  if (result >= 0) result = place_descriptor(program_.in, STDIN_FILENO);
  if (result >= 0) result = place_descriptor(program_.out, STDOUT_FILENO);
  if (result >= 0) result = place_descriptor(program_.err, STDERR_FILENO);
  if (result >= 0)
    result = raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, address_of(&defaults_.open_files), 0);
  if (result < 0) return result;
  sigaction(SIGPIPE, &defaults_.on_broken_pipe, nullptr);
  sigprocmask(SIG_SETMASK, &defaults_.signal_mask, nullptr);
  return raw_syscall(SYS_execve, address_of(program_.path.c_str()), address_of(arguments_.data()),
                     address_of(environment_.data()));
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

}  // namespace hvd::launcher
