#include "core/bootstrap/job_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <future>

#include "core/base/error.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int kRank = 3;

std::string unique_name() {
  static int last = 0;
  return "keeper/" + std::to_string(::getpid()) + "/" + std::to_string(++last);
}

KeyAnswer ask(const std::string& keeper) {
  return ask_for_key({{kKeySocketVariable, keeper}}, {.rank = kRank}, StartDeadline(10s));
}

struct Failure {
  Code code = Code::ok;
  std::string text;
};

Failure failure_of(const Environment& environment) {
  try {
    ask_for_key(environment, {.rank = kRank}, StartDeadline(10s));
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

/// Answers one process, which must ask to begin as kRank.
class StandIn {
 public:
  explicit StandIn(ByteVector answer) : answer_(std::move(answer)) {
    served_ = std::async(std::launch::async, [this] {
      wait_until_ready(listener_.get(), POLLIN, StartDeadline(10s).at);
      const Visitor visitor = accept_visitor(listener_);
      const auto request = key_request_of(visitor.name);
      EXPECT_TRUE(request && request->begins && request->rank == kRank);
      EXPECT_EQ(visitor.peer->process, ::getpid());
      if (!answer_.empty()) answer_shortly(visitor, answer_);
    });
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_ = unique_name();
  ByteVector answer_;
  FileDescriptor listener_ = listen_unix(name_);
  std::future<void> served_;
};

TEST(AskForKey, TakesWhatTheKeeperSays) {
  const KeyAnswer given{.key = make_job_key(), .generation = 4};
  const StandIn keeper(to_bytes(given));
  const KeyAnswer answer = ask(keeper.name());
  EXPECT_EQ(answer.key.bytes, given.key.bytes);
  EXPECT_EQ(answer.generation, 4u);
}

TEST(AskForKey, FailsForTheReasonOfTheKeeper) {
  const StandIn keeper(to_bytes({.refusal = "not you"}));
  const Failure failure = failure_of({{kKeySocketVariable, keeper.name()}});
  EXPECT_EQ(failure.code, Code::unauthorized);
  EXPECT_EQ(failure.text, "asking horovodrun for the job's key: not you");
}

TEST(AskForKey, WithoutAKeeperThereIsNoJob) {
  EXPECT_EQ(failure_of({}).code, Code::unauthorized);
  const Failure nobody = failure_of({{kKeySocketVariable, unique_name()}});
  EXPECT_EQ(nobody.code, Code::peer_lost);
  EXPECT_THAT(nobody.text, HasSubstr("no process listens at HOROVOD_KEY_SOCKET=keeper/"));
  const StandIn silent({});
  EXPECT_EQ(failure_of({{kKeySocketVariable, silent.name()}}).text,
            "asking horovodrun for the job's key: it closed the connection");
}

}  // namespace
}  // namespace hvd
