// PMIx: put, fence, get, and a second fence, without which a host that has finished may leave
// before it has answered the others. Where that may be done depends on the launcher
// (docs/decisions/0018-an-introduction-by-whoever-started-the-ranks.md):
//  - MPI runs in this process: here, since its library is at home here.
//  - Open MPI 5: in a child. A process that has once ended its PMIx cannot start MPI any more.
//  - Open MPI 4, Slurm: here, and PMIx ends with the process. A child would take what the daemon
//    knows of this rank with it.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/group/bootstrap/introduction.h"
#include "core/group/bootstrap/mpi_in_process.h"
#include "core/group/bootstrap/pmix_library.h"
#include "core/group/bootstrap/variables.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

enum class Where : uint8_t { here_beside_mpi, here_until_exit, in_a_child };

Where where_to(const Environment& environment) {
  if (mpi_in_process() == MpiState::running) return Where::here_beside_mpi;
  return variable(environment, "PRTE_LAUNCHED") ? Where::in_a_child : Where::here_until_exit;
}

/// What a callback brings. It may come when nobody waits for it any more.
class Answer {
 public:
  void come(pmix::Status status, std::string text) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    text_ = std::move(text);
    came_.notify_all();
  }
  /// Nothing at the deadline.
  std::optional<pmix::Status> wait(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return status_.has_value(); });
    return status_;
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<pmix::Status> status_;
  std::string text_;
};
using SharedAnswer = std::shared_ptr<Answer>;

/// The callback's share of it.
SharedAnswer take(void* object) {
  const std::unique_ptr<SharedAnswer> share(static_cast<SharedAnswer*>(object));
  return *share;
}

void done(pmix::Status status, void* object) { take(object)->come(status, ""); }

void got(pmix::Status status, pmix::Value* value, void* object) {
  const bool is_text = status == pmix::kSuccess && value != nullptr && value->type == pmix::kString;
  take(object)->come(status, is_text && value->string != nullptr ? value->string : "");
}

class Exchange {
 public:
  Exchange(const pmix::Library& library, const Identity& identity, const StartDeadline& deadline)
      : library_(library), identity_(identity), deadline_(deadline) {}

  std::string run(const std::string& name, const std::string& mine) {
    require(library_.init(&self_, nullptr, 0), "PMIx_Init");
    if (identity_.rank == 0) {
      pmix::Value value{.type = pmix::kString, .string = mine.c_str()};
      require(library_.put(pmix::kGlobalScope, name.c_str(), &value), "PMIx_Put");
    }
    require(library_.commit(), "PMIx_Commit");
    pmix::Info collect = info("pmix.collect", pmix::kBool);
    collect.value.flag = true;
    fence({&collect, 1});
    const std::string text = get(name);
    fence({});
    return text;
  }

  void finish() { require(library_.finalize(nullptr, 0), "PMIx_Finalize"); }

 private:
  static pmix::Info info(const char* key, uint16_t type) {
    pmix::Info made{};
    std::strncpy(made.key, key, sizeof made.key - 1);
    made.value.type = type;
    return made;
  }

  void require(pmix::Status status, const char* call) const {
    if (status == pmix::kSuccess) return;
    fail(Code::internal, fmt::format("{} of {} answers {} ({})", call, library_.path,
                                     library_.text_of(status), status));
  }

  /// `call` is given an object for its callback, which it owns unless it fails.
  template <class Call>
  std::string complete(const char* name, Call call) const {
    auto answer = std::make_shared<Answer>();
    auto share = std::make_unique<SharedAnswer>(answer);
    const pmix::Status begun = call(share.get());
    if (begun == pmix::kDoneAtOnce) return "";
    require(begun, name);
    static_cast<void>(share.release());
    const auto status = answer->wait(deadline_.at);
    if (!status) {
      deadline_.fail_at(fmt::format("{} has not come back: not all ranks that {} started have "
                                    "called init, or it is gone",
                                    name, identity_.launcher),
                        kNoRank);
    }
    require(*status, name);
    return answer->text();
  }

  void fence(std::span<const pmix::Info> options) const {
    complete("PMIx_Fence", [&](void* object) {
      return library_.fence(nullptr, 0, options.data(), options.size(), done, object);
    });
  }

  std::string get(const std::string& name) const {
    pmix::Process zero = self_;
    // By the launcher's number, in case the job is a part of what it started.
    zero.rank = static_cast<uint32_t>(identity_.launcher_rank(0));
    std::array<char, 512> key{};  // the type of a key has this size
    std::copy_n(name.begin(), std::min(name.size(), key.size() - 1), key.begin());
    return complete("PMIx_Get", [&](void* object) {
      return library_.get(&zero, key.data(), nullptr, 0, got, object);
    });
  }

  const pmix::Library& library_;
  const Identity& identity_;
  const StartDeadline& deadline_;
  pmix::Process self_{};
};

struct AtExit {
  pmix::Status (*finalize)(const pmix::Info*, size_t);
  pid_t process;
};

/// The launcher takes an end without it for a failure. A forked child is not the one to say it.
void finalize_at_exit(const pmix::Library& library) {
  ::on_exit(
      [](int, void* object) {
        const std::unique_ptr<AtExit> end(static_cast<AtExit*>(object));
        if (end->process == ::getpid()) end->finalize(nullptr, 0);
      },
      new AtExit{library.finalize, ::getpid()});
}

class PmixIntroduction final : public Introduction {
 public:
  PmixIntroduction(const Identity& identity, const Environment& environment)
      : identity_(identity),
        where_(where_to(environment)),
        paths_(pmix::library_paths(environment)) {}

  std::string spread(const std::string& name, const std::string& mine,
                     const StartDeadline& deadline) override {
    return where_ == Where::in_a_child ? in_a_child(name, mine, deadline)
                                       : here(name, mine, deadline);
  }

 private:
  std::string here(const std::string& name, const std::string& mine,
                   const StartDeadline& deadline) const {
    const pmix::Library library = pmix::load_library(paths_);
    Exchange exchange(library, identity_, deadline);
    if (where_ == Where::here_until_exit) finalize_at_exit(library);
    std::string text = exchange.run(name, mine);
    if (where_ != Where::here_until_exit) exchange.finish();
    return text;
  }

  std::string in_a_child(const std::string& name, const std::string& mine,
                         const StartDeadline& deadline) const {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("making a pipe");
    FileDescriptor reading(ends[0], AtFork::keep), writing(ends[1], AtFork::keep);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) fail_errno("starting a process that speaks to the launcher");
    if (child == 0) answer_and_exit(parent, writing.get(), name, mine, deadline);
    writing.reset();
    const auto answer = read_answer(reading, deadline);
    if (!answer) ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (!answer) deadline.fail_at("the launcher (PMIx) has not introduced the ranks", kNoRank);
    if (answer->empty() || answer->front() != '+') {
      fail(Code::internal, answer->empty() ? "the process that speaks to the launcher (PMIx) ended "
                                             "without a word"
                                           : answer->substr(1));
    }
    return answer->substr(1);
  }

  /// In the child; a boundary, since there is nobody above.
  [[noreturn]] void answer_and_exit(pid_t parent, int out, const std::string& name,
                                    const std::string& mine,
                                    const StartDeadline& deadline) const noexcept {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    std::string answer;
    try {
      answer = fmt::format("+{}", here(name, mine, deadline));
    } catch (const std::exception& error) {
      answer = fmt::format("-{}", error.what());
    }
    const ssize_t written = ::write(out, answer.data(), answer.size());  // less than a pipe holds
    ::_exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }

  /// All that the child says; nothing at the deadline.
  static std::optional<std::string> read_answer(const FileDescriptor& reading,
                                                const StartDeadline& deadline) {
    std::string answer;
    for (;;) {
      if (!wait_until_ready(reading.get(), POLLIN, deadline.at)) return std::nullopt;
      std::array<char, 4096> room;
      const ssize_t count = ::read(reading.get(), room.data(), room.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_errno("reading from the process that speaks to the launcher");
      if (count == 0) return answer;
      answer.append(room.data(), static_cast<size_t>(count));
    }
  }

  const Identity identity_;
  const Where where_;
  const std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<Introduction> introduce_by_pmix(const Identity& identity,
                                                const Environment& environment) {
  return std::make_unique<PmixIntroduction>(identity, environment);
}

}  // namespace hvd
