#include "launcher/through/through.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/process_watch.h"
#include "launcher/driver/driver.h"
#include "launcher/options/environment.h"
#include "launcher/process/caller.h"
#include "launcher/process/command.h"
#include "launcher/process/descendants.h"
#include "launcher/process/piped_child.h"
#include "launcher/process/spawn.h"
#include "launcher/through/jsrun.h"
#include "launcher/through/mpirun.h"

namespace hvd::launcher {
namespace {

constexpr int kNotStarted = 127;
/// After SIGKILL. Processes that are blocked in the kernel for longer are left behind.
constexpr std::chrono::seconds kLastPatience{10};
/// From another signal that ends jobs to SIGTERM, the same as for horovodrun's own ranks.
constexpr std::chrono::seconds kInterruptPatience =
    std::chrono::ceil<std::chrono::seconds>(DriverOptions().interrupt_patience);
/// Every MPI prints its name in the first lines.
constexpr size_t kVersionBytes = 65536;
/// Time for `mpirun --version`. On a slow file system, loading the libraries of an MPI takes
/// seconds.
constexpr std::chrono::seconds kVersionPatience{60};

/// Arguments of exec, prepared before the fork.
struct Image {
  Image(const std::vector<std::string>& words, const Environment& variables)
      : lines(assignments(variables)), arguments(pointers(words)), environment(pointers(lines)) {}
  std::vector<std::string> lines;
  std::vector<char*> arguments, environment;
};

pid_t forked() {
  const pid_t pid = fork();
  if (pid < 0) fail_errno("starting a process");
  return pid;
}

/// Timeout of poll(); 0 once it has passed.
int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

/// Collects the beginning of what a program writes into a pipe.
class Beginning {
 public:
  explicit Beginning(const FileDescriptor& pipe) : pipe_(pipe) {}
  /// -1, which poll() ignores, once nothing more comes.
  int fd() const { return ended_ ? -1 : pipe_.get(); }
  bool complete() const { return ended_ || text_.size() >= kVersionBytes; }
  const std::string& text() const { return text_; }

  /// Reads once. Output beyond the limit is discarded, so that the program never blocks.
  void take() {
    std::array<char, 4096> chunk{};
    const ssize_t count = read(pipe_.get(), chunk.data(), chunk.size());
    if (count <= 0) {
      ended_ = count == 0 || errno != EAGAIN;
    } else if (!complete()) {
      text_.append(chunk.data(), static_cast<size_t>(count));
    }
  }

 private:
  const FileDescriptor& pipe_;
  std::string text_;
  bool ended_ = false;
};

/// Returns standard output, then standard error of the program, as far as it writes them in time.
/// Both are read in parallel: a program that fills one pipe would block otherwise.
std::string output_of(const std::string& program, const std::vector<std::string>& words,
                      const Environment& environment) {
  PipedChild child({.path = program, .arguments = words, .environment = assignments(environment)},
                   current_defaults());
  child.in.reset();
  Beginning out(child.out), err(child.err);
  const auto deadline = std::chrono::steady_clock::now() + kVersionPatience;
  while (!(out.complete() && err.complete())) {
    const int left = milliseconds_until(deadline);
    std::array<pollfd, 2> watched{{{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}}};
    if (left == 0 || poll(watched.data(), watched.size(), left) <= 0) break;
    if (watched[0].revents != 0) out.take();
    if (watched[1].revents != 0) err.take();
  }
  return out.text() + err.text();
}

/// The signals that end a job, except ignored ones (nohup), and SIGCHLD.
sigset_t watched_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  return watched;
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Waits for the other launcher. A terminal signals the whole foreground process group, including
/// the child; a process signals only horovodrun, which forwards the signal. MPICH's mpirun may
/// report success for a job that a signal ended; horovodrun does not. A child that does not end on
/// another signal gets SIGTERM after the time that horovodrun's own ranks have from SIGINT to
/// SIGTERM. If it does not end within `patience` after SIGTERM, it is killed with all its
/// descendants.
class Waiting {
 public:
  Waiting(pid_t pid, const sigset_t& watched, FileDescriptor caller, std::chrono::seconds patience)
      : pid_(pid),
        signals_(signalfd(-1, &watched, SFD_CLOEXEC)),
        caller_(std::move(caller)),
        patience_(patience) {
    if (!signals_) fail_errno("watching signals");
    descendants_.add(pid);
  }

  int run() {
    while (!status_) {
      std::array<pollfd, 2> events{
          {{signals_.get(), POLLIN, 0}, {caller_ ? caller_.get() : -1, POLLIN, 0}}};  // -1: ignored
      const int count = poll(events.data(), events.size(), milliseconds_left());
      if (count < 0) continue;  // EINTR
      if (count > 0 && events[1].revents != 0) end_without_caller();
      if (count > 0 && events[0].revents != 0) take_signal();
      if (!status_ && next_step_at_ && Clock::now() >= *next_step_at_) take_next_step();
    }
    const int code = exit_code_of(*status_);
    return code == 0 && ended_by_ != 0 ? 128 + ended_by_ : code;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void end_without_caller() {
    caller_.reset();
    pass_on(SIGTERM);
  }

  void take_signal() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      descendants_.reap([this](pid_t pid, int status) { take_end(pid, status); });
    } else if (info.ssi_code <= 0) {
      pass_on(signal);
    } else {
      note(signal);
    }
  }

  void pass_on(int signal) {
    note(signal);
    if (!status_) kill(pid_, signal);
  }

  void note(int signal) {
    if (signal == SIGUSR1 || signal == SIGUSR2) return;
    ended_by_ = signal;
    if (signal == SIGTERM && !terminated_) {
      terminated_ = true;
      next_step_at_ = Clock::now() + patience_;
    } else if (!next_step_at_) {
      next_step_at_ = Clock::now() + std::max(patience_, kInterruptPatience);
    }
  }

  void take_next_step() {
    if (terminated_) return kill_all();
    const int first = ended_by_;
    pass_on(SIGTERM);
    ended_by_ = first;
  }

  /// The message is written last: it may raise SIGPIPE, which ends this process.
  void kill_all() {
    next_step_at_.reset();
    descendants_.kill_all(kLastPatience, [this](pid_t pid, int status) { take_end(pid, status); });
    if (!status_) status_ = W_EXITCODE(0, SIGKILL);
    std::fputs(
        fmt::format("horovodrun: {} s after SIGTERM the launcher of the ranks was still running "
                    "and was killed; --grace-seconds allows more time\n",
                    patience_.count())
            .c_str(),
        stderr);
  }

  void take_end(pid_t pid, int status) {
    if (pid == pid_) status_ = status;
  }

  /// Timeout of poll(); -1: none.
  int milliseconds_left() const { return next_step_at_ ? milliseconds_until(*next_step_at_) : -1; }

  pid_t pid_;
  Descendants descendants_;
  FileDescriptor signals_;
  FileDescriptor caller_;  ///< the process that the job ends with, if any
  const std::chrono::seconds patience_;
  int ended_by_ = 0;
  std::optional<int> status_;  ///< of the child, once it has ended
  bool terminated_ = false;
  std::optional<Clock::time_point> next_step_at_;
};

/// From SIGTERM to SIGKILL: the time that horovodrun's own ranks have from the first failure.
std::chrono::seconds patience_with(const ForeignLauncher& launcher) {
  const Duration both = knobs_from(launcher.environment).grace + DriverOptions().patience;
  return std::chrono::ceil<std::chrono::seconds>(both);
}

int run_to_end(const std::string& program, const ForeignLauncher& launcher,
               const std::optional<int>& caller) {
  FileDescriptor caller_process;
  if (caller) caller_process = open_process(*caller);
  const Image image(launcher.arguments, launcher.environment);
  const std::chrono::seconds patience = patience_with(launcher);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // its remaining descendants become ours
  const sigset_t watched = watched_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  const pid_t self = getpid();
  const pid_t pid = forked();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (getppid() != self) _exit(kNotStarted);  // the parent ended before PDEATHSIG was set
    execve(program.c_str(), image.arguments.data(), image.environment.data());
    fmt::print(stderr, "horovodrun: {} could not be started: {}\n", program, errno_text(errno));
    std::fflush(stderr);
    _exit(kNotStarted);
  }
  return Waiting(pid, watched, std::move(caller_process), patience).run();
}

int run(const std::string& program, const ForeignLauncher& launcher, const Options& options) {
  for (const std::string& warning : launcher.warnings)
    fmt::print(stderr, "horovodrun: {}\n", warning);
  for (const std::string& folder : launcher.folders) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem)
      fail(Code::invalid_argument,
           fmt::format("--output-filename: {} cannot be created: {}", folder, problem.message()));
  }
  if (options.verbose)
    fmt::print(stderr, "horovodrun: {} ({})\n", fmt::join(launcher.arguments, " "), program);
  return run_to_end(program, launcher, options.caller);
}

/// Writes a new file, and removes it if that fails.
void write_new(const FileDescriptor& file, const std::string& path, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t size = write(file.get(), rest.data(), rest.size());
    if (size >= 0) {
      rest.remove_prefix(static_cast<size_t>(size));
    } else if (errno != EINTR) {
      const int why = errno;
      unlink(path.c_str());
      fail(Code::internal,
           fmt::format("the rank file {} cannot be written: {}; set TMPDIR to another folder", path,
                       errno_text(why)));
    }
  }
}

/// A file that exists as long as this object. Throws Error{internal} if it cannot be written.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::error_code problem;
    // mkstemp replaces the last six letters.
    path_ = (std::filesystem::temp_directory_path(problem) / "horovodrun-ranks-XXXXXX").string();
    const FileDescriptor file(mkostemp(path_.data(), O_CLOEXEC));
    if (!file)
      fail_errno(fmt::format("creating the rank file {}; set TMPDIR to another folder", path_));
    write_new(file, path_, text);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The other launcher passes on no descriptor, so the caller's key is in the environment of the
/// ranks, which remove it at their start.
Environment environment_of_ranks(const Environment& job, const Options& options) {
  Environment result = foreign_environment(job, options);
  if (!options.caller_key) return result;
  std::string digits;
  for (const std::byte one : read_caller_key(*options.caller_key).bytes)
    digits += fmt::format("{:02x}", std::to_integer<int>(one));
  result.insert_or_assign("HOROVOD_CALLER_KEY", digits);
  return result;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Environment foreign_environment(const Environment& job, const Options& options) {
  Environment result = job;
  for (const char* name :
       {"HOROVOD_HOSTNAME", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_KEY_SOCKET",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"})
    result.erase(name);
  result.insert_or_assign("HOROVOD_CONTROLLER", "mpi");
  result.emplace("PYTHONUNBUFFERED", "1");
  if (options.interfaces.empty()) return result;
  result.insert_or_assign("HOROVOD_GLOO_IFACE", options.interfaces.front());
  result.insert_or_assign("NCCL_SOCKET_IFNAME",
                          fmt::format("{}", fmt::join(options.interfaces, ",")));
  return result;
}

int launch_through_mpirun(const Options& options, const std::vector<Host>& hosts,
                          const Environment& job) {
  constexpr const char* kInstall =
      "install one (apt-get install openmpi-bin), or use horovodrun's own launcher: --gloo";
  const std::string program = find_program("mpirun", path_of(job));
  if (program.empty())
    fail(Code::invalid_argument, fmt::format("--mpi: mpirun was not found in PATH; {}", kInstall));
  const std::string version = output_of(program, {"mpirun", "--version"}, job);
  const auto flavour = flavour_of(version);
  if (!flavour)
    fail(Code::invalid_argument,
         fmt::format(
             "--mpi: {} --version prints '{}', which is none of Open MPI, Spectrum MPI, MPICH "
             "and Intel MPI; {}",
             program, first_line(version), kInstall));
  const Environment environment = environment_of_ranks(job, options);
  return run(program, through_mpirun(*flavour, options, hosts, environment), options);
}

int launch_through_jsrun(const Options& options, const std::vector<Host>& hosts,
                         const Environment& job) {
  if (!is_in_lsf(job))
    fail(Code::invalid_argument,
         "--jsrun: no LSF job was found (LSB_JOBID is not set); start it inside a bsub job, or "
         "choose another launcher: --gloo or --mpi");
  const std::string program = find_program("jsrun", path_of(job));
  if (program.empty())
    fail(Code::invalid_argument,
         "--jsrun: jsrun was not found in PATH; load its module, or choose another "
         "launcher: --gloo or --mpi");
  const Environment environment = environment_of_ranks(job, options);
  if (!needs_rank_file(options))
    return run(program, through_jsrun(options, "", environment), options);
  const TemporaryFile ranks(rank_file(filled(hosts, options.num_proc), lsf_allocation(job)));
  return run(program, through_jsrun(options, ranks.path(), environment), options);
}

}  // namespace hvd::launcher
