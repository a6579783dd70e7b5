#include "core/bootstrap/job_store.h"

#include <fmt/core.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/abstract_name_testing.h"
#include "core/bootstrap/generation.h"
#include "core/bootstrap/job_key.h"
#include "core/bootstrap/local_rendezvous.h"
#include "core/bootstrap/secret_file_testing.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGeneration = 1;

std::string unique_name() {
  static int last = 0;
  return fmt::format("test/{}/{}", ::getpid(), ++last);
}

Identity identity_of(int rank, int size, RendezvousMethod rendezvous, const std::string& name) {
  Identity identity;
  identity.rank = rank;
  identity.size = size;
  identity.rendezvous = rendezvous;
  identity.job_name = name;
  identity.launcher = "the test";
  return identity;
}

/// Every rank, in a thread of its own, opens the Store and reads what rank 0 has put there. All
/// keep it open until the last has read. `begin` is called on each rank first.
void expect_common_store(
    std::vector<Identity> identities, const Knobs& knobs,
    const std::vector<RendezvousFunction>& functions = {},
    const std::function<void(size_t rank)>& begin = [](size_t) {}) {
  std::promise<void> all_have_read;
  const std::shared_future<void> end = all_have_read.get_future().share();
  std::vector<std::promise<std::string>> seen(identities.size());
  std::vector<std::future<void>> ranks;  // go first: their threads use what is above
  for (size_t i = 0; i < identities.size(); ++i) {
    ranks.push_back(std::async(std::launch::async, [&, i] {
      begin(i);
      try {
        JobStore store = open_job_store(identities[i], {}, kGeneration, knobs,
                                        functions.empty() ? RendezvousFunction() : functions[i]);
        if (i == 0) store.of_this_job()->set("k", as_bytes("from rank 0"));
        const auto value = store.of_this_job()->get("k", 10s);
        seen[i].set_value(std::string(as_text(value)));
        end.wait();
      } catch (const std::exception& error) {
        seen[i].set_value(error.what());
      }
    }));
  }
  for (auto& one : seen) EXPECT_EQ(one.get_future().get(), "from rank 0");
  all_have_read.set_value();
}

std::string error_of(Identity identity, const Knobs& knobs) {
  try {
    open_job_store(identity, {}, kGeneration, knobs, {});
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

Knobs impatient() {
  Knobs knobs;
  knobs.start_timeout = 1s;
  return knobs;
}

TEST(JobStore, AJobOfOneHasNone) {
  Identity alone;
  EXPECT_EQ(open_job_store(alone, {}, kGeneration, Knobs(), {}).store, nullptr);
}

TEST(JobStore, RanksOfOneMachineFindRankZeroAtItsListener) {
  const std::string name = unique_name();
  std::vector<Identity> identities;
  for (int rank = 0; rank < 4; ++rank)
    identities.push_back(identity_of(rank, 4, RendezvousMethod::local, name));
  expect_common_store(identities, Knobs());
}

TEST(JobStore, TwoPartsOfOneJobStayApart) {
  const std::string name = unique_name();
  Identity first = identity_of(0, 4, RendezvousMethod::local, name);
  Identity second = first;
  second.rank = 2;
  const auto keep = open_job_store(first = part_of(first, {0, 1}), {}, 1, Knobs(), {});
  const auto other = open_job_store(second = part_of(second, {2, 3}), {}, 1, Knobs(), {});
  EXPECT_NE(keep.key.bytes, other.key.bytes);
}

TEST(JobStore, ARankZeroThatDoesNotComeIsNamed) {
  EXPECT_EQ(error_of(identity_of(1, 2, RendezvousMethod::local, unique_name()), impatient()),
            "rank 0 has not joined the job within 1 s (HOROVOD_START_TIMEOUT)");
}

TEST(JobStore, ATakenListenerIsReported) {
  const std::string name = unique_name();
  const RendezvousListener taken(name + "/horovod-1-all", "");
  EXPECT_NE(error_of(identity_of(0, 2, RendezvousMethod::local, name), impatient())
                .find("horovod-rendezvous"),
            std::string::npos);
}

/// Processes of another user that connect to a listener as fast as they can. All users find its
/// name in /proc. The processes end by themselves after kMostSeconds.
class Flood {
 public:
  static constexpr int kProcesses = 2;
  static constexpr auto kMostSeconds = 180s;

  explicit Flood(std::string listener)
      : listener_(std::move(listener)),
        attempts_(static_cast<std::atomic<int64_t>*>(::mmap(nullptr, sizeof(std::atomic<int64_t>),
                                                            PROT_READ | PROT_WRITE,
                                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    for (int i = 0; i < kProcesses; ++i) {
      processes_.push_back(::fork());
      if (processes_.back() == 0) run();
    }
  }
  ~Flood() {
    for (const pid_t process : processes_) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
    ::munmap(attempts_, sizeof(std::atomic<int64_t>));
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  int64_t attempts() const { return attempts_->load(); }
  bool goes_on() const {
    return std::ranges::all_of(processes_, [](pid_t process) {
      siginfo_t ended{};  // left for the destructor to reap
      return ::waitid(P_PID, process, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             ended.si_pid == 0;
    });
  }

 private:
  [[noreturn]] void run() {
    if (::setgroups(0, nullptr) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const TimePoint end = std::chrono::steady_clock::now() + kMostSeconds;
    while (std::chrono::steady_clock::now() < end) {
      if (try_connect_unix(listener_, end)) {
        ++*attempts_;
      } else {
        ::sched_yield();
      }
    }
    ::_exit(0);
  }

  std::string listener_;
  std::atomic<int64_t>* attempts_;
  std::vector<pid_t> processes_;
};

/// Four ranks start and end under a flood, with at most one line of log.
TEST(JobStore, AFloodOfAnotherUserDelaysNoStartOrEnd) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = unique_name();
  std::vector<Identity> identities;
  for (int rank = 0; rank < 4; ++rank)
    identities.push_back(identity_of(rank, 4, RendezvousMethod::local, name));
  Knobs knobs;
  knobs.start_timeout = 60s;
  const std::string listener =
      test::abstract_name_of(RendezvousListener(name + "/horovod-1-all", "").fd());
  const Flood flood(listener);
  ::testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  expect_common_store(identities, knobs, {}, [&](size_t rank) {
    // The others come when the flood has found the listener of rank 0.
    while (rank > 0 && flood.attempts() < 1000 && flood.goes_on()) std::this_thread::yield();
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 1) << log.substr(0, 1000);
  EXPECT_TRUE(flood.goes_on());
  fmt::print("{} connections of another user; the ranks started and ended in {:.2f} s\n",
             flood.attempts(), took.count());
}

TEST(JobStore, TheListenerClosesOnceAllAreConnected) {
  const std::string name = unique_name();
  Identity zero = identity_of(0, 2, RendezvousMethod::local, name);
  const JobStore store = open_job_store(zero, {}, kGeneration, Knobs(), {});
  const std::string socket = name + "/horovod-1-all";
  EXPECT_NE(request_root_address(socket, StartDeadline(10s)), "");
  store.host->all_connected();
  const StartDeadline deadline(20s);
  std::optional<RendezvousListener> again;
  while (!again && deadline.left() > 0s) {
    try {
      again.emplace(socket, "another address");
    } catch (const Error&) {
      std::this_thread::yield();  // the name is still taken
    }
  }
  EXPECT_TRUE(again);
}

TEST(JobStore, ACallersFunctionCarriesTheRootAddress) {
  std::promise<std::string> sent;
  const std::shared_future<std::string> root = sent.get_future().share();
  const RendezvousFunction zero = [&](const std::string&, const std::string& text) {
    sent.set_value(text);
    return text;
  };
  const RendezvousFunction others = [&](const std::string&, const std::string& text) {
    EXPECT_EQ(text, "");
    return root.get();
  };
  std::vector<Identity> identities;
  for (int rank = 0; rank < 3; ++rank)
    identities.push_back(identity_of(rank, 3, RendezvousMethod::caller, ""));
  expect_common_store(identities, Knobs(), {zero, others, others});
}

TEST(JobStore, WithoutTheCallersFunctionTheErrorSaysWhatToSet) {
  const std::string text = error_of(identity_of(0, 2, RendezvousMethod::caller, ""), Knobs());
  EXPECT_NE(text.find("HOROVOD_GLOO_RENDEZVOUS_ADDR"), std::string::npos) << text;
}

uint16_t free_port() { return port_of(listen_tcp("127.0.0.1", 0)); }

TEST(JobStore, AtAnAddressRankZeroMayComeLast) {
  const test::SecretFile secret("0123456789abcdef0123456789abcdef\n");
  Knobs knobs;
  knobs.secret_file = secret.path();
  std::vector<Identity> identities;
  const uint16_t port = free_port();
  for (int rank = 0; rank < 3; ++rank) {
    identities.push_back(identity_of(rank, 3, RendezvousMethod::address, ""));
    identities.back().store_host = "localhost";
    identities.back().store_port = port;
  }
  expect_common_store(identities, knobs);
}

/// horovodrun: a keeper that gives the key once, with a generation that it chooses, and a Store.
class Launcher {
 public:
  explicit Launcher(uint32_t generation) {
    store_.open(std::nullopt);
    answering_ = std::async(std::launch::async, [this, generation] {
      if (!wait_until_ready(listener_.get(), POLLIN, StartDeadline(10s).at)) return;
      answer_shortly(accept_visitor(listener_),
                     to_bytes(KeyAnswer{.key = key_, .generation = generation}));
    });
  }
  ~Launcher() { store_.all_connected(); }
  Environment environment() const { return {{kKeySocketVariable, name_}}; }
  uint16_t port() const { return store_.port(); }

 private:
  const JobKey key_ = make_job_key();
  const std::string name_ = unique_name();
  const FileDescriptor listener_ = listen_unix(name_);
  StoreHost store_{key_, "127.0.0.1", 0};
  std::future<void> answering_;
};

JobStore store_assigned(uint32_t generation, const std::vector<int>& members) {
  const Launcher launcher(generation);
  Identity identity = identity_of(0, 3, RendezvousMethod::launcher, "");
  identity.store_host = "127.0.0.1";
  identity.store_port = launcher.port();
  if (!members.empty()) identity = part_of(identity, members);
  JobStore store = open_job_store(identity, launcher.environment(), 1, Knobs(), {});
  store.of_this_job()->set("k", as_bytes("v"));
  const std::string key = members.empty() ? "k" : rendezvous_name(generation, members) + "/k";
  EXPECT_TRUE(store.store->peek(key).has_value()) << key;
  return store;
}

TEST(JobStore, TheGenerationThatTheLauncherAssignsIsUsed) {
  EXPECT_EQ(store_assigned(7, {}).generation, 7u);
  EXPECT_EQ(store_assigned(12, {0, 2}).generation, 12u);
}

TEST(JobStore, ALauncherCannotAssignGenerationZero) { EXPECT_THROW(store_assigned(0, {}), Error); }

/// Hydra's side of the connections to its ranks. Answers have their fields in varying order.
class PmiLauncher {
 public:
  explicit PmiLauncher(int size) {
    for (int rank = 0; rank < size; ++rank) {
      int pair[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      ranks_.emplace_back(pair[0]);
      ours_.emplace_back(pair[1]);
    }
  }
  int fd_of(int rank) const { return ranks_[static_cast<size_t>(rank)].get(); }
  void hang_up() { ours_.clear(); }
  const std::vector<std::string>& heard() const { return heard_; }

  /// Serves rank 0 until its put request, and answers that with `last`; empty: not at all.
  void answer_put_with(const std::string& last) {
    answer(ours_[0], "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0");
    answer(ours_[0], "cmd=my_kvsname rc=0 kvsname=kvs_7");
    read_line(ours_[0]);
    if (!last.empty()) write(ours_[0], last);
  }

  /// Serves all until each has got the value.
  void serve() {
    for (auto& one : ours_) answer(one, "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0");
    for (auto& one : ours_) answer(one, "cmd=my_kvsname rc=0 kvsname=kvs_7");
    const std::string put = answer(ours_[0], "rc=0 cmd=put_result msg=success");
    const std::string value = put.substr(put.find("value=") + 6);
    for (auto& one : ours_) read_line(one);
    for (auto& one : ours_) write(one, "cmd=barrier_out");
    for (auto& one : ours_) answer(one, "cmd=get_result rc=0 msg=success value=" + value);
  }

 private:
  std::string answer(const FileDescriptor& rank, const std::string& text) {
    std::string asked = read_line(rank);
    write(rank, text);
    return asked;
  }
  static void write(const FileDescriptor& rank, const std::string& text) {
    send_all(rank.get(), as_bytes(text + "\n"), std::chrono::steady_clock::now() + 10s, "test");
  }
  std::string read_line(const FileDescriptor& rank) {
    std::string line;
    for (char next; ::recv(rank.get(), &next, 1, 0) == 1 && next != '\n';) line += next;
    heard_.push_back(line);
    return line;
  }

  std::vector<FileDescriptor> ranks_, ours_;
  std::vector<std::string> heard_;
};

std::vector<Identity> pmi_ranks(const PmiLauncher& launcher, int size) {
  std::vector<Identity> identities;
  for (int rank = 0; rank < size; ++rank) {
    identities.push_back(identity_of(rank, size, RendezvousMethod::pmi, ""));
    identities.back().pmi_fd = launcher.fd_of(rank);
  }
  return identities;
}

TEST(JobStore, PmiCarriesTheRootAddressAndStaysOpen) {
  PmiLauncher launcher(3);
  auto serving = std::async(std::launch::async, [&] { launcher.serve(); });
  expect_common_store(pmi_ranks(launcher, 3), Knobs());
  serving.get();
  for (const std::string& line : launcher.heard())
    EXPECT_EQ(line.find("finalize"), std::string::npos);
}

TEST(JobStore, ASilentLauncherIsGivenUp) {
  PmiLauncher launcher(2);
  const std::string text = error_of(pmi_ranks(launcher, 2)[1], impatient());
  EXPECT_EQ(text,
            "the test has not answered \"cmd=init pmi_version=1 pmi_subversion=1\" within 1 s "
            "(HOROVOD_START_TIMEOUT)");
  launcher.hang_up();
  const std::string gone = error_of(pmi_ranks(launcher, 2)[1], impatient());
  EXPECT_NE(gone.find("asking the launcher (PMI)"), std::string::npos) << gone;
}

/// Every error that the launcher can provoke on rank 0 once it has been given the key.
TEST(JobStore, NoErrorOfPmiShowsTheKey) {
  const std::string key(64, 'a');
  const std::string root = "horovod1,4711," + key + ",0123456789abcdef";
  const std::vector<std::string> last_answers{
      "",  // none
      "cmd=put_result rc=-1 msg=no_room value=" + root,
      "rc=0 value=" + root + " cmd=get_result",
      "cmd=unknown echo=" + root,
  };
  for (const std::string& answer : last_answers) {
    PmiLauncher launcher(1);
    auto serving = std::async(std::launch::async, [&] { launcher.answer_put_with(answer); });
    Knobs knobs = impatient();
    Identity zero = pmi_ranks(launcher, 1)[0];
    const auto rendezvous = make_pmi_rendezvous(zero);
    std::string text = "no error";
    try {
      rendezvous->broadcast("horovod-1-all", root, StartDeadline(1s));
    } catch (const Error& error) {
      text = error.what();
    }
    serving.get();
    EXPECT_NE(text.find("cmd=put"), std::string::npos) << text;
    EXPECT_EQ(text.find(key.substr(0, 16)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace hvd
