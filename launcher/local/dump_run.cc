#include "launcher/local/dump_run.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/knobs.h"
#include "core/transport/process_watch.h"
#include "launcher/options/environment.h"
#include "launcher/process/watch.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxPrintedBytes = 12 * MiB;

Program program_for(pid_t supervisor, Question question) {
  const char* const flag = question == Question::everything ? "--dump-host" : "--states-of-host";
  Program program{.path = "/proc/self/exe",
                  .arguments = {"horovodrun", flag, std::to_string(supervisor)},
                  .environment = {}};
  program.environment = assignments(process_environment());
  return program;
}

}  // namespace

DumpRun::DumpRun(pid_t supervisor, Question question, const ProcessDefaults& defaults)
    : question_(question),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      child_(std::make_unique<PipedChild>(program_for(supervisor, question), defaults)) {
  child_->in.reset();
  child_->err.reset();
  for (const int fd : {child_->process().get(), child_->out.get()}) watch(events_, fd);
}

/// Returns false if there is nothing more now.
bool DumpRun::read() {
  char bytes[16 * KiB];
  const ssize_t size = child_->out ? ::read(child_->out.get(), bytes, sizeof bytes) : 0;
  if (size > 0 && printed_.size() < kMaxPrintedBytes)
    printed_.append(bytes, static_cast<size_t>(size));
  if (size == 0) child_->out.reset();
  return size > 0;
}

std::optional<std::string> DumpRun::take() {
  while (read()) {
  }
  if (!has_ended(child_->process())) return std::nullopt;
  while (read()) {
  }
  return child_->wait() == 0 ? std::move(printed_) : std::string();
}

}  // namespace hvd::launcher
