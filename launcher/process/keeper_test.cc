#include "launcher/process/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>

#include "core/base/sanitizer_testing.h"
#include "core/transport/job_number.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr uid_t kAnotherUser = 65534;
constexpr int kRank = 5;

TimePoint soon() { return std::chrono::steady_clock::now() + 20s; }

FileDescriptor ask(const std::string& keeper, const KeyRequest& request) {
  return try_connect_unix_as(to_socket_name(request), keeper, soon());
}

ByteVector told(const FileDescriptor& socket) {
  return receive_all(socket.get(), kMaxKeyAnswerBytes, soon(), "the test");
}

/// Which of the processes below a rank asks for the key.
enum class Who { itself, child, child_in_its_own_session, orphan };

/// A process that plays a rank. It, or a process that it started, asks when told to.
class RankProcess {
 public:
  RankProcess(const std::string& keeper, const KeyRequest& request, Who who) {
    if (::pipe(go_.data()) != 0 || ::pipe(answer_.data()) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) run(keeper, request, who);
    ::close(answer_[1]);
  }
  ~RankProcess() {
    ::close(go_[1]);  // a process that was never told to ask ends as well
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    for (const int fd : {go_[0], answer_[0]}) ::close(fd);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }

  KeyAnswer answer(Keeper& keeper) {
    EXPECT_EQ(::write(go_[1], "x", 1), 1);
    ByteVector bytes;
    for (std::array<std::byte, 2000> room{};;) {
      std::array<pollfd, 2> watched{{{keeper.fd(), POLLIN, 0}, {answer_[0], POLLIN, 0}}};
      ::poll(watched.data(), watched.size(), -1);
      if (watched[0].revents != 0) {
        EXPECT_TRUE(keeper.answer());
      }
      if (watched[1].revents == 0) continue;
      const ssize_t count = ::read(answer_[0], room.data(), room.size());
      if (count <= 0) return read_key_answer(bytes);
      bytes.insert(bytes.end(), room.begin(), room.begin() + count);
    }
  }

 private:
  [[noreturn]] void run(const std::string& keeper, const KeyRequest& request, Who who) {
    char byte = 0;
    ::close(go_[1]);
    if (::read(go_[0], &byte, 1) != 1) ::_exit(1);
    const pid_t rank = ::getpid();
    if (who != Who::itself && ::fork() != 0) leave(who);
    if (who == Who::child_in_its_own_session) ::setsid();
    while (who == Who::orphan && ::getppid() == rank) ::poll(nullptr, 0, 1);
    const ByteVector bytes = told(ask(keeper, request));
    ::_exit(::write(answer_[1], bytes.data(), bytes.size()) > 0 ? 0 : 1);
  }
  [[noreturn]] static void leave(Who who) {
    if (who != Who::orphan) ::wait(nullptr);
    ::_exit(0);
  }

  std::array<int, 2> go_{}, answer_{};
  pid_t pid_ = -1;
};

TEST(Keeper, GivesTheKeyToARankAndToAllThatIsBelowIt) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // as the supervisor
  const std::string name = make_keeper_name();
  const JobKey key = make_job_key();
  Keeper keeper(name, key);
  for (const Who who : {Who::itself, Who::child, Who::child_in_its_own_session, Who::orphan}) {
    RankProcess rank(name, {.rank = kRank + static_cast<int>(who)}, who);
    keeper.add(kRank + static_cast<int>(who), 0, rank.pid());
    const KeyAnswer answer = rank.answer(keeper);
    EXPECT_EQ(answer.refusal, "");
    EXPECT_EQ(answer.key.bytes, key.bytes);
    EXPECT_EQ(answer.generation, 1u);
    keeper.forget(rank.pid());
  }
}

TEST(Keeper, CountsHowOftenARankHasBegun) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  keeper.add(kRank, 0, ::getpid());
  const auto generation = [&](bool begins) {
    const FileDescriptor socket = ask(name, {.begins = begins, .rank = kRank});
    EXPECT_TRUE(keeper.answer());
    return read_key_answer(told(socket)).generation;
  };
  EXPECT_EQ(generation(false), 0u);
  EXPECT_EQ(generation(true), 1u);
  EXPECT_EQ(generation(true), 2u);
  EXPECT_EQ(generation(false), 2u);
}

TEST(Keeper, GivesARankOfALaterGenerationALargerNumber) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  const auto number = [&] {
    const FileDescriptor socket = ask(name, {.rank = kRank});
    EXPECT_TRUE(keeper.answer());
    return read_key_answer(told(socket)).generation;
  };
  keeper.add(kRank, 0, ::getpid());
  EXPECT_EQ(number(), job_number(0, 1));
  EXPECT_EQ(number(), job_number(0, 2));
  keeper.forget(::getpid());
  keeper.add(kRank, 3, ::getpid());
  EXPECT_EQ(number(), job_number(3, 1));
  EXPECT_GT(job_number(3, 1), job_number(2, kMaxBegun));
}

TEST(Keeper, AWorkerOfAnElasticJobTellsItsGeneration) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  const auto answer = [&](uint32_t generation) {
    const FileDescriptor socket = ask(name, {.rank = kRank, .generation = generation});
    EXPECT_TRUE(keeper.answer());
    return read_key_answer(told(socket));
  };
  keeper.add(kRank, 0, ::getpid());
  EXPECT_EQ(answer(0).generation, job_number(0, 1));
  EXPECT_EQ(answer(2).generation, job_number(2, 1));
  EXPECT_EQ(answer(2).generation, job_number(2, 2));
  EXPECT_THAT(answer(1).refusal, HasSubstr("its place in generation 1, but the worker in slot 5 is "
                                           "in generation 2"));
  EXPECT_THAT(answer(kMaxGeneration + 1).refusal, HasSubstr("generation 65536"));
}

TEST(Keeper, RefusesWhatIsNotBelowTheRank) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  RankProcess other(name, {.rank = kRank}, Who::child);
  RankProcess own(name, {.rank = kRank}, Who::itself);
  keeper.add(kRank + 1, 0, other.pid());
  keeper.add(kRank, 0, own.pid());
  EXPECT_THAT(other.answer(keeper).refusal, HasSubstr("is a descendant of rank 6, not of rank 5"));
  const FileDescriptor above = ask(name, {.rank = kRank});
  EXPECT_TRUE(keeper.answer());
  EXPECT_THAT(read_key_answer(told(above)).refusal,
              HasSubstr("was not started by rank 5 (process " + std::to_string(own.pid()) + ")"));
  EXPECT_EQ(own.answer(keeper).refusal, "");
}

TEST(Keeper, RefusesOtherRequests) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  keeper.add(kRank, 0, ::getpid());
  const FileDescriptor nameless = connect_unix(name, soon());
  const FileDescriptor elsewhere = ask(name, {.rank = kRank + 1});
  EXPECT_TRUE(keeper.answer());
  EXPECT_EQ(read_key_answer(told(nameless)).refusal,
            "the request is from another version of horovod");
  EXPECT_EQ(read_key_answer(told(elsewhere)).refusal, "rank 6 is not on this host");
}

TEST(Keeper, AnswersABoundedNumberPerTurn) {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  keeper.add(kRank, 0, ::getpid());
  std::vector<FileDescriptor> visitors;
  for (int i = 0; i < Keeper::kVisitorsPerTurn + 1; ++i)
    visitors.push_back(ask(name, {.rank = kRank}));
  const auto answered = [](const FileDescriptor& one) {
    return wait_until_ready(one.get(), POLLIN, std::chrono::steady_clock::now());
  };
  EXPECT_TRUE(keeper.answer());
  EXPECT_EQ(std::ranges::count_if(visitors, answered), Keeper::kVisitorsPerTurn);
  EXPECT_TRUE(keeper.answer());
  EXPECT_EQ(std::ranges::count_if(visitors, answered), Keeper::kVisitorsPerTurn + 1);
}

TEST(Keeper, TellsAnotherUserNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kAnotherUser) != 0 || ::setuid(kAnotherUser) != 0) ::_exit(1);
    ::_exit(told(ask(name, {.rank = kRank})).empty() ? 0 : 2);
  }
  keeper.add(kRank, 0, child);
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) EXPECT_TRUE(keeper.answer());
  EXPECT_EQ(status, 0);
}

/// Returns the answers to a rank and to its child in its own session, from a keeper that cannot see
/// the processes: it is the first process of a PID namespace whose /proc is not mounted. Both end
/// by _exit(): LeakSanitizer, which runs in std::exit(), needs /proc here and a new thread there.
[[noreturn]] void keep_without_proc() {
  if (::unshare(CLONE_NEWPID) != 0) std::exit(77);
  if (const pid_t keeper = ::fork(); keeper != 0) {
    int status = 0;
    ::waitpid(keeper, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  ::setsid();
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  int wrong = 0;
  for (const Who who : {Who::itself, Who::child, Who::child_in_its_own_session}) {
    RankProcess rank(name, {.rank = kRank + static_cast<int>(who)}, who);
    keeper.add(kRank + static_cast<int>(who), 0, rank.pid());
    const std::string refusal = rank.answer(keeper).refusal;
    const bool expected = who == Who::child_in_its_own_session
                              ? refusal.find("mount -t proc proc /proc") != std::string::npos
                              : refusal.empty();
    if (!expected) wrong = 1;
    keeper.forget(rank.pid());
  }
  ::_exit(wrong);
}

TEST(KeeperDeathTest, WithoutProcTrustsItsSession) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a PID namespace";
  EXPECT_EXIT(
      keep_without_proc(),
      [](int status) { return WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77; }, "");
}

/// Runs in its own process, whose limit changes. Returns 0 if no turn accepted the connection.
[[noreturn]] void answer_without_descriptors() {
  const std::string name = make_keeper_name();
  Keeper keeper(name, make_job_key());
  const FileDescriptor visitor = ask(name, {.rank = kRank});
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(visitor.get()) + 1, .rlim_max = 500};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::exit(keeper.answer() ? 1 : 0);
}

TEST(KeeperDeathTest, ThatHasNoDescriptorForAVisitorAsksForAPause) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "UBSan needs descriptors";
  EXPECT_EXIT(answer_without_descriptors(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hvd::launcher
