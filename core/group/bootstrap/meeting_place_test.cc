#include "core/group/bootstrap/meeting_place.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "core/base/error.h"
#include "core/group/bootstrap/local_introduction.h"
#include "core/group/bootstrap/secret_file.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGeneration = 1;

std::string unique_name() {
  static int last = 0;
  return fmt::format("test/{}/{}", ::getpid(), ++last);
}

Identity identity_of(int rank, int size, Meeting meeting, const std::string& name) {
  Identity identity;
  identity.rank = rank;
  identity.size = size;
  identity.meeting = meeting;
  identity.job_name = name;
  identity.launcher = "the test";
  return identity;
}

/// Every rank in a thread of its own finds the place, and sees in the Store what rank 0 has put
/// there. All keep it until the last has done so. `begin` is called on each rank first.
void expect_all_meet(
    std::vector<Identity> identities, const Knobs& knobs, const std::vector<Spread>& spreads = {},
    const std::function<void(size_t rank)>& begin = [](size_t) {}) {
  std::promise<void> all_have_met;
  const std::shared_future<void> end = all_have_met.get_future().share();
  std::vector<std::promise<std::string>> seen(identities.size());
  std::vector<std::future<void>> ranks;  // go first: their threads use what is above
  for (size_t i = 0; i < identities.size(); ++i) {
    ranks.push_back(std::async(std::launch::async, [&, i] {
      begin(i);
      try {
        MeetingPlace place = find_meeting_place(identities[i], {}, kGeneration, knobs,
                                                spreads.empty() ? Spread() : spreads[i]);
        if (i == 0) place.of_this_job()->set("k", as_bytes("from rank 0"));
        const auto value = place.of_this_job()->get("k", 10s);
        seen[i].set_value(std::string(as_text(value)));
        end.wait();
      } catch (const std::exception& error) {
        seen[i].set_value(error.what());
      }
    }));
  }
  for (auto& one : seen) EXPECT_EQ(one.get_future().get(), "from rank 0");
  all_have_met.set_value();
}

std::string error_of(Identity identity, const Knobs& knobs) {
  try {
    find_meeting_place(identity, {}, kGeneration, knobs, {});
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

TEST(MeetingPlace, AJobOfOneHasNone) {
  Identity alone;
  EXPECT_EQ(find_meeting_place(alone, {}, kGeneration, Knobs(), {}).store, nullptr);
}

TEST(MeetingPlace, RanksOfOneMachineFindRankZeroAtItsDoor) {
  const std::string name = unique_name();
  std::vector<Identity> identities;
  for (int rank = 0; rank < 4; ++rank)
    identities.push_back(identity_of(rank, 4, Meeting::local, name));
  expect_all_meet(identities, Knobs());
}

TEST(MeetingPlace, TwoPartsOfOneJobDoNotMeet) {
  const std::string name = unique_name();
  Identity first = identity_of(0, 4, Meeting::local, name);
  Identity second = first;
  second.rank = 2;
  const auto keep = find_meeting_place(first = part_of(first, {0, 1}), {}, 1, Knobs(), {});
  const auto other = find_meeting_place(second = part_of(second, {2, 3}), {}, 1, Knobs(), {});
  EXPECT_NE(keep.key.bytes, other.key.bytes);
}

TEST(MeetingPlace, ARankZeroThatDoesNotComeIsNamed) {
  EXPECT_EQ(error_of(identity_of(1, 2, Meeting::local, unique_name()), impatient()),
            "rank 0 has not come within 1 s (HOROVOD_START_TIMEOUT)");
}

TEST(MeetingPlace, ADoorThatIsTakenIsSaid) {
  const std::string name = unique_name();
  const Door taken(name + "/horovod-1-all", "");
  EXPECT_NE(error_of(identity_of(0, 2, Meeting::local, name), impatient()).find("horovod-door"),
            std::string::npos);
}

/// Processes of another user that connect to every door of this machine as fast as they can, and
/// find it as anybody does. They end by themselves after kMostSeconds.
class Flood {
 public:
  static constexpr int kProcesses = 2;
  static constexpr auto kMostSeconds = 40s;

  Flood()
      : attempts_(static_cast<std::atomic<int64_t>*>(::mmap(nullptr, sizeof(std::atomic<int64_t>),
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
      siginfo_t ended{};  // who has ended is left for the destructor to reap
      return ::waitid(P_PID, process, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             ended.si_pid == 0;
    });
  }

 private:
  static std::vector<std::string> doors() {
    std::vector<std::string> names;
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      const size_t at = line.find("@horovod-door-");
      if (at != std::string::npos) names.push_back(line.substr(at + 1));
    }
    return names;
  }

  [[noreturn]] void run() {
    if (::setgroups(0, nullptr) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const TimePoint end = std::chrono::steady_clock::now() + kMostSeconds;
    while (std::chrono::steady_clock::now() < end) {
      for (const std::string& name : doors())
        for (int i = 0; i < 1000 && try_connect_unix(name, end); ++i) ++*attempts_;
    }
    ::_exit(0);
  }

  std::atomic<int64_t>* attempts_;
  std::vector<pid_t> processes_;
};

/// Four ranks meet and part under a flood; how many lines of log that makes.
TEST(MeetingPlace, AFloodOfAnotherUserKeepsNoRankFromMeetingOrParting) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = unique_name();
  std::vector<Identity> identities;
  for (int rank = 0; rank < 4; ++rank)
    identities.push_back(identity_of(rank, 4, Meeting::local, name));
  Knobs knobs;
  knobs.start_timeout = 20s;
  const Flood flood;
  ::testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  expect_all_meet(identities, knobs, {}, [&](size_t rank) {
    // The others come when rank 0's door is found.
    while (rank > 0 && flood.attempts() < 1000 && flood.goes_on()) std::this_thread::yield();
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 1) << log.substr(0, 1000);
  EXPECT_TRUE(flood.goes_on());
  fmt::print("{} connections of another user; the ranks met and parted in {:.2f} s\n",
             flood.attempts(), took.count());
}

TEST(MeetingPlace, TheDoorClosesOnceAllHaveMet) {
  const std::string name = unique_name();
  Identity zero = identity_of(0, 2, Meeting::local, name);
  const MeetingPlace place = find_meeting_place(zero, {}, kGeneration, Knobs(), {});
  const std::string door = name + "/horovod-1-all";
  EXPECT_NE(ask_at_door(door, StartDeadline(10s)), "");
  place.host->all_have_met();
  const StartDeadline deadline(20s);
  std::optional<Door> again;
  while (!again && deadline.left() > 0s) {
    try {
      again.emplace(door, "another word");
    } catch (const Error&) {
      std::this_thread::yield();  // the name is still taken
    }
  }
  EXPECT_TRUE(again);
}

TEST(MeetingPlace, ACallerWhoCanIntroducesTheRanks) {
  std::promise<std::string> said;
  const std::shared_future<std::string> word = said.get_future().share();
  const Spread zero = [&](const std::string&, const std::string& mine) {
    said.set_value(mine);
    return mine;
  };
  const Spread others = [&](const std::string&, const std::string& mine) {
    EXPECT_EQ(mine, "");
    return word.get();
  };
  std::vector<Identity> identities;
  for (int rank = 0; rank < 3; ++rank)
    identities.push_back(identity_of(rank, 3, Meeting::caller, ""));
  expect_all_meet(identities, Knobs(), {zero, others, others});
}

TEST(MeetingPlace, ACallerWhoCannotIsToldWhatToSet) {
  const std::string text = error_of(identity_of(0, 2, Meeting::caller, ""), Knobs());
  EXPECT_NE(text.find("HOROVOD_GLOO_RENDEZVOUS_ADDR"), std::string::npos) << text;
}

class SecretFile {
 public:
  explicit SecretFile(const std::string& text, mode_t mode = 0600)
      : path_(fmt::format("{}/horovod-secret-{}", ::testing::TempDir(), ::getpid())) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string refusal_of(const Knobs& knobs) {
  try {
    shared_key(knobs, {"node1", 7});
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
    return error.what();
  }
}

uint16_t free_port() { return port_of(listen_tcp("127.0.0.1", 0)); }

TEST(MeetingPlace, AtAnAddressRankZeroMayComeLast) {
  const SecretFile secret("0123456789abcdef0123456789abcdef\n");
  Knobs knobs;
  knobs.secret_file = secret.path();
  std::vector<Identity> identities;
  const uint16_t port = free_port();
  for (int rank = 0; rank < 3; ++rank) {
    identities.push_back(identity_of(rank, 3, Meeting::address, ""));
    identities.back().store_host = "localhost";
    identities.back().store_port = port;
  }
  expect_all_meet(identities, knobs);
}

TEST(MeetingPlace, WithoutASecretAnAddressIsRefusedUnlessAskedFor) {
  Knobs knobs;
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("HOROVOD_SECRET_FILE"), std::string::npos) << text;
  EXPECT_NE(text.find("node1:7"), std::string::npos) << text;
  knobs.no_secret = true;
  EXPECT_EQ(refusal_of(knobs), "no error");
}

TEST(MeetingPlace, ASecretThatIsNoneIsRefused) {
  Knobs knobs;
  knobs.secret_file = "/nonesuch";
  EXPECT_NE(refusal_of(knobs).find("No such file"), std::string::npos);
  {
    const SecretFile open("0123456789abcdef0123456789abcdef\n", 0644);
    knobs.secret_file = open.path();
    EXPECT_NE(refusal_of(knobs).find("chmod 600"), std::string::npos);
  }
  const SecretFile brief("short\n");
  knobs.secret_file = brief.path();
  EXPECT_NE(refusal_of(knobs).find("5 bytes"), std::string::npos);
}

TEST(MeetingPlace, ASecretFileThatIsNoRegularFileIsRefusedAtOnce) {
  const std::string path = fmt::format("{}/horovod-fifo-{}", ::testing::TempDir(), ::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  Knobs knobs;
  knobs.secret_file = path;
  std::promise<std::string> refused;
  std::thread reading([&] { refused.set_value(refusal_of(knobs)); });
  auto answer = refused.get_future();
  if (answer.wait_for(5s) != std::future_status::ready) {
    ADD_FAILURE() << "it waits for somebody to write";
    const FileDescriptor writer(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  EXPECT_NE(answer.get().find("is a FIFO, not a regular file"), std::string::npos);
  reading.join();
  ::unlink(path.c_str());
  knobs.secret_file = "/dev/zero";
  EXPECT_NE(refusal_of(knobs).find("is a device, not a regular file"), std::string::npos);
}

TEST(MeetingPlace, ASecretFileOfAnotherUserIsRefusedEvenToRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const SecretFile theirs("0123456789abcdef0123456789abcdef\n");
  ASSERT_EQ(::chown(theirs.path().c_str(), 65534, 65534), 0);
  Knobs knobs;
  knobs.secret_file = theirs.path();
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("belongs to user 65534"), std::string::npos) << text;
  EXPECT_NE(text.find("chown 0 " + theirs.path()), std::string::npos) << text;
}

TEST(MeetingPlace, ASecretIsNotCutShort) {
  const SecretFile longer(std::string(5000, 'x'));
  Knobs knobs;
  knobs.secret_file = longer.path();
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("5000 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("4096"), std::string::npos) << text;
}

TEST(MeetingPlace, TheEndOfTheSecretsLineDoesNotMatter) {
  Knobs knobs;
  const auto key_of = [&](const std::string& text) {
    const SecretFile file(text);
    knobs.secret_file = file.path();
    return shared_key(knobs, {"node1", 7}).bytes;
  };
  EXPECT_EQ(key_of("0123456789abcdef"), key_of("0123456789abcdef\n"));
  EXPECT_NE(key_of("0123456789abcdef"), key_of("0123456789abcdeF"));
}

/// Hydra's side of a connection for each of its ranks: as it answers, with fields in an order of
/// its own.
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

  /// Serves rank 0 until it has put its word, and answers that with `last`; empty: not at all.
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
    identities.push_back(identity_of(rank, size, Meeting::pmi, ""));
    identities.back().meeting_fd = launcher.fd_of(rank);
  }
  return identities;
}

TEST(MeetingPlace, PmiCarriesTheWordAndStaysOpen) {
  PmiLauncher launcher(3);
  auto serving = std::async(std::launch::async, [&] { launcher.serve(); });
  expect_all_meet(pmi_ranks(launcher, 3), Knobs());
  serving.get();
  for (const std::string& line : launcher.heard())
    EXPECT_EQ(line.find("finalize"), std::string::npos);
}

TEST(MeetingPlace, ASilentLauncherIsGivenUp) {
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
TEST(MeetingPlace, NoErrorOfPmiShowsTheKey) {
  const std::string key(64, 'a');
  const std::string word = "horovod1,4711," + key + ",0123456789abcdef";
  const std::vector<std::string> last_answers{
      "",  // none
      "cmd=put_result rc=-1 msg=no_room value=" + word,
      "rc=0 value=" + word + " cmd=get_result",
      "cmd=unknown echo=" + word,
  };
  for (const std::string& answer : last_answers) {
    PmiLauncher launcher(1);
    auto serving = std::async(std::launch::async, [&] { launcher.answer_put_with(answer); });
    Knobs knobs = impatient();
    Identity zero = pmi_ranks(launcher, 1)[0];
    const auto introduction = introduce_by_pmi(zero);
    std::string text = "no error";
    try {
      introduction->spread("horovod-1-all", word, StartDeadline(1s));
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
