#include "core/bootstrap/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/job_key.h"
#include "core/transport/job_number.h"
#include "core/transport/socket.h"
#include "core/transport/store_server.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

/// A keeper and a launcher whose answers the test chooses. Runs on the thread of the test, except
/// for run().
class Launcher {
 public:
  Launcher() {
    static int last = 0;
    name_ = "membership/" + std::to_string(::getpid()) + "/" + std::to_string(++last);
    listener_ = listen_unix(name_);
    thread_ = std::thread([this] { run(); });
  }
  ~Launcher() {
    stop_ = true;
    thread_.join();
  }

  Environment environment() const {
    return {{"HOROVOD_WORKER", "0/1/0"},
            {"HOROVOD_KEY_SOCKET", name_},
            {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
            {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(server_.port())}};
  }
  bool knows_that_it_leaves() {
    const std::lock_guard lock(mutex_);
    return server_.peek(elastic_leaves_key({0, 1, 0})).has_value();
  }
  /// The answer to every request of the worker.
  void answer(const Place& place) {
    const std::lock_guard lock(mutex_);
    place_ = place;
  }
  void announce(uint64_t number, const ElasticUpdate& update) {
    const std::lock_guard lock(mutex_);
    server_.set(elastic_news_key(number), to_bytes(update));
  }

 private:
  void run() {
    while (!stop_) {
      pollfd entries[] = {{server_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      ::poll(entries, 2, 5);
      const std::lock_guard lock(mutex_);
      server_.step();
      if (entries[1].revents != 0)
        answer_shortly(accept_visitor(listener_), to_bytes(KeyAnswer{.key = key_}));
      const auto asked = server_.peek(elastic_asks_key({0, 1, 0}));
      const auto request = asked ? place_request_from(as_text(*asked)) : std::nullopt;
      if (request && place_)
        server_.set(elastic_place_key({0, 1, 0}, request->id), to_bytes(*place_));
    }
  }

  const JobKey key_ = make_job_key();
  std::string name_;
  FileDescriptor listener_;
  std::mutex mutex_;
  StoreServer server_{key_, "127.0.0.1", 0};
  std::optional<Place> place_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Place place_in(int generation, uint64_t news = 1) {
  return {.news = news,
          .variables = {{"HOROVOD_GENERATION", std::to_string(generation)}, {"HOROVOD_RANK", "0"}}};
}

/// Announcements arrive after the first look at the latest.
ElasticUpdate next_update(Membership& membership) {
  for (;;)
    if (const auto update = membership.pending_update()) return *update;
}

TEST(Membership, IsThatOfAWorkerOfAnElasticJob) {
  EXPECT_FALSE(worker_of({}));
  EXPECT_FALSE(place_generation({{"HOROVOD_GENERATION", "3"}}));
  const Environment started{{"HOROVOD_WORKER", "1/0/2"}, {"HOROVOD_GENERATION", "3"}};
  EXPECT_EQ(worker_of(started), (WorkerId{1, 0, 2}));
  EXPECT_EQ(place_generation(started), 3u);
  EXPECT_THROW(worker_of({{"HOROVOD_WORKER", "one"}}), Error);
}

TEST(Membership, APlaceFromTheStartNeedsNoLauncher) {
  Membership membership({{"HOROVOD_WORKER", "0/1/0"}, {"HOROVOD_GENERATION", "0"}});
  EXPECT_TRUE(membership.await_place(0s));
  EXPECT_EQ(membership.generation(), 0u);
  EXPECT_TRUE(membership.variables().empty());
}

TEST(Membership, AWorkerWithoutAPlaceAsksAndWaits) {
  Launcher launcher;
  Membership membership(launcher.environment());
  EXPECT_FALSE(membership.await_place(20ms));
  EXPECT_EQ(membership.generation(), std::nullopt);
  launcher.answer(place_in(4));
  while (!membership.await_place(1s)) {
  }
  EXPECT_EQ(membership.generation(), 4u);
  EXPECT_EQ(membership.variables().at("HOROVOD_RANK"), "0");
  EXPECT_TRUE(membership.await_place(0s));  // it has that place until it asks again
}

TEST(Membership, EachRequestIsAnsweredOnItsOwn) {
  Launcher launcher;
  launcher.answer(place_in(1));
  Membership membership(launcher.environment());
  ASSERT_TRUE(membership.await_place(10s));
  launcher.answer(place_in(2));
  membership.ask();
  ASSERT_TRUE(membership.await_place(10s));
  EXPECT_EQ(membership.generation(), 2u);
}

TEST(Membership, EndsWithTheReasonOfTheLauncher) {
  for (const bool job_ends : {false, true}) {
    Launcher launcher;
    launcher.answer({.refusal = "this host was removed", .job_ends = job_ends});
    Membership membership(launcher.environment());
    try {
      membership.await_place(10s);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), job_ends ? Code::peer_lost : Code::shut_down);
      EXPECT_STREQ(error.what(), "this host was removed");
    }
  }
}

TEST(Membership, AnnouncementsAreTakenOnce) {
  Launcher launcher;
  launcher.answer(place_in(1, 5));
  Membership membership(launcher.environment());
  ASSERT_TRUE(membership.await_place(10s));
  EXPECT_FALSE(membership.pending_update());
  launcher.announce(4, {.removed = true});  // from before it had its place
  launcher.announce(5, {.added = true, .timestamp = 2.5});
  EXPECT_EQ(next_update(membership), (ElasticUpdate{.added = true, .timestamp = 2.5}));
  EXPECT_FALSE(membership.pending_update());
  launcher.announce(6, {.removed = true, .timestamp = 3});
  EXPECT_EQ(next_update(membership), (ElasticUpdate{.removed = true, .timestamp = 3}));
}

TEST(Membership, TheLauncherKnowsWhoLeaves) {
  Launcher launcher;
  Membership membership(launcher.environment());
  EXPECT_FALSE(launcher.knows_that_it_leaves());
  membership.leave();
  EXPECT_TRUE(launcher.knows_that_it_leaves());
}

TEST(Membership, TheLauncherMayBeLost) {
  std::optional<Launcher> launcher(std::in_place);
  Membership membership(launcher->environment());
  EXPECT_FALSE(membership.await_place(1ms));
  launcher.reset();
  const auto says_so = ThrowsMessage<Error>(MatchesRegex(
      "the launcher of this elastic job cannot be reached any more \\(.+\\): if "
      "horovodrun still runs, the job goes on without this host; otherwise the job has "
      "ended"));
  EXPECT_THAT([&] { membership.await_place(10s); }, says_so);
  EXPECT_THAT([&] { membership.ask(); }, says_so);
  EXPECT_THAT([&] { membership.leave(); }, says_so);
}

}  // namespace
}  // namespace hvd
