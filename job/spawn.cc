#include "job/spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace hvd::job {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Gives `source` the number `target` and lets it survive exec.
bool place_descriptor(int source, int target) {
  if (source == target) return fcntl(target, F_SETFD, 0) == 0;
  return dup2(source, target) >= 0;
}

/// Runs in the memory of the parent, which waits: system calls only, nothing of ours is changed.
bool prepare_child(const Program& program, const ProcessDefaults& defaults) {
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (!place_descriptor(program.in, STDIN_FILENO) ||
      !place_descriptor(program.out, STDOUT_FILENO) ||
      !place_descriptor(program.err, STDERR_FILENO) ||
      !place_descriptor(program.key, program.key_target))
    return false;
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

Spawned spawn(const Program& program, const ProcessDefaults& defaults) {
  const std::vector<char*> arguments = pointers(program.arguments);
  const std::vector<char*> environment = pointers(program.environment);
  volatile int error = 0;
  const pid_t pid = vfork();
  if (pid == 0) {
    if (prepare_child(program, defaults))
      execve(program.path.c_str(), arguments.data(), environment.data());
    error = errno;
    _exit(127);
  }
  if (pid < 0) return {.error = errno};
  if (error != 0) waitpid(pid, nullptr, 0);
  return {.pid = pid, .error = error};
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
