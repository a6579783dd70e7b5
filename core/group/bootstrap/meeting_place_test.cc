#include "core/group/bootstrap/meeting_place.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
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
/// there. All keep it until the last has done so.
void expect_all_meet(std::vector<Identity> identities, const Knobs& knobs,
                     const std::vector<Spread>& spreads = {}) {
  std::promise<void> all_have_met;
  const std::shared_future<void> end = all_have_met.get_future().share();
  std::vector<std::promise<std::string>> seen(identities.size());
  std::vector<std::future<void>> ranks;  // go first: their threads use what is above
  for (size_t i = 0; i < identities.size(); ++i) {
    ranks.push_back(std::async(std::launch::async, [&, i] {
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
  const auto taken = open_door(name + "/horovod-1-all");
  EXPECT_NE(error_of(identity_of(0, 2, Meeting::local, name), impatient()).find("horovod-door"),
            std::string::npos);
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

}  // namespace
}  // namespace hvd
