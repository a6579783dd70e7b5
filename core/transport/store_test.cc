// One suite for every kind of Store, then tests of the server alone.
#include "core/transport/store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/heap_testing.h"
#include "core/transport/mem_store.h"
#include "core/transport/socket.h"
#include "core/transport/store_client.h"
#include "core/transport/store_server.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TimePoint in(Duration duration) { return std::chrono::steady_clock::now() + duration; }

ByteVector value_of(std::string_view text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// A server whose event loop runs on a thread of the test, as in the launcher.
class ServerThread {
 public:
  explicit ServerThread(const JobKey& key)
      : server_(key, "127.0.0.1", 0), thread_([this] { run(); }) {}
  ~ServerThread() {
    stop_ = true;
    thread_.join();
  }
  Address address() const { return {"127.0.0.1", server_.port()}; }

 private:
  void run() {
    while (!stop_) {
      pollfd entry{server_.fd(), POLLIN, 0};
      if (::poll(&entry, 1, 10) > 0) server_.step();
    }
  }
  StoreServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Makes one Store per rank with shared content.
using MakeStore = std::function<std::shared_ptr<Store>(int rank)>;

struct StoreKind {
  std::string name;
  std::function<MakeStore()> start;
};

MakeStore start_memory() {
  return [store = std::make_shared<MemStore>()](int) { return store; };
}

MakeStore start_tcp() {
  const JobKey key = make_job_key();
  auto server = std::make_shared<ServerThread>(key);
  return [server, key](int rank) {
    return std::make_shared<StoreClient>(server->address(), key, rank, 10s);
  };
}

class StoreContract : public testing::TestWithParam<StoreKind> {};

TEST_P(StoreContract, WhatOneSetsAllSee) {
  const auto make = GetParam().start();
  const auto a = make(0), b = make(1);
  EXPECT_EQ(b->peek("x"), std::nullopt);
  a->set("x", as_bytes("first"));
  EXPECT_EQ(b->peek("x"), value_of("first"));
  EXPECT_EQ(b->get("x", 10s), value_of("first"));
  b->set("x", as_bytes("second"));
  EXPECT_EQ(a->peek("x"), value_of("second"));
  EXPECT_EQ(a->peek("y"), std::nullopt);
}

TEST_P(StoreContract, KeysAndValuesMayHoldAnyByte) {
  const auto make = GetParam().start();
  const auto a = make(0), b = make(1);
  const std::string key("k\0\n\xff", 4);
  a->set(key, {});
  EXPECT_EQ(b->peek(key), ByteVector());
  EXPECT_EQ(b->peek("k"), std::nullopt);
}

TEST_P(StoreContract, AWaitEndsWhenTheKeyIsSet) {
  const auto make = GetParam().start();
  const auto a = make(0), b = make(1);
  std::thread waiting([&] { EXPECT_EQ(a->get("late", 30s), value_of("here")); });
  EXPECT_EQ(b->wait("other", 20ms), std::nullopt);
  b->set("late", as_bytes("here"));
  waiting.join();
}

TEST_P(StoreContract, AWaitThatIsGivenUpDisturbsNothing) {
  const auto make = GetParam().start();
  const auto a = make(0), b = make(1);
  EXPECT_EQ(a->wait("x", 1ms), std::nullopt);
  b->set("x", as_bytes("x"));
  b->set("y", as_bytes("y"));
  EXPECT_EQ(a->peek("y"), value_of("y"));
  EXPECT_EQ(a->wait("z", 1ms), std::nullopt);
  EXPECT_EQ(a->peek("x"), value_of("x"));
}

TEST_P(StoreContract, ATimeoutNamesTheKey) {
  const auto make = GetParam().start();
  try {
    make(0)->get("card/3", 1ms);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timed_out);
    EXPECT_STREQ(error.what(), "the store key \"card/3\" was not set within 0.001 s");
  }
}

TEST_P(StoreContract, LargeValuesPassAndTooLargeOnesAreRefused) {
  const auto make = GetParam().start();
  const auto a = make(0), b = make(1);
  ByteVector large(kMaxStoreValueBytes);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 7);
  a->set("large", large);
  EXPECT_EQ(b->get("large", 30s), large);
  large.emplace_back();
  EXPECT_THROW(a->set("larger", large), Error);
  EXPECT_THROW(a->peek(std::string(kMaxStoreKeyBytes + 1, 'k')), Error);
  EXPECT_EQ(a->peek("larger"), std::nullopt);
}

TEST_P(StoreContract, ManyRanksMeet) {
  constexpr int ranks = 12;
  const auto make = GetParam().start();
  std::vector<std::thread> threads;
  std::atomic<int> met = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto store = make(rank);
      store->set("card/" + std::to_string(rank), as_bytes(std::to_string(rank)));
      for (int other = 0; other < ranks; ++other) {
        met += store->get("card/" + std::to_string(other), 30s) == value_of(std::to_string(other));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(met, ranks * ranks);
}

INSTANTIATE_TEST_SUITE_P(Transport, StoreContract,
                         testing::Values(StoreKind{"mem", start_memory},
                                         StoreKind{"tcp", start_tcp}),
                         [](const auto& info) { return info.param.name; });

TEST(StoreServer, AStrangerGetsNowhereAndTheJobGoesOn) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  const auto silent = connect_tcp(server.address(), in(10s));
  const auto babbling = connect_tcp(server.address(), in(10s));
  send_all(babbling.get(), as_bytes(std::string(300, 'z')), in(10s), "sending");
  std::byte room[1];
  EXPECT_THROW(receive_exactly(babbling.get(), room, in(10s), "receiving"), Error);
  try {
    StoreClient thief(server.address(), make_job_key(), 0, 10s);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
  }
  StoreClient client(server.address(), key, 0, 10s);
  client.set("x", as_bytes("1"));
  EXPECT_EQ(client.peek("x"), value_of("1"));
}

/// An address where connections are neither accepted nor refused: the listener's queue is full.
class Deaf {
 public:
  Deaf() : listener_(listen_tcp("127.0.0.1", 0)) {
    ::listen(listener_.get(), 0);  // with a backlog of one
    filling_ = connect_tcp(address(), in(10s));
  }
  Address address() const { return {"127.0.0.1", port_of(listener_)}; }
  /// From now on accepts connections but sends no data.
  void hear() { filling_ = accept_one(listener_); }

 private:
  FileDescriptor listener_, filling_;
};

/// Sequential attempts would exceed the timeout.
TEST(StoreClient, IsNotHeldUpByAddressesThatNobodyAnswers) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  const Deaf deaf;
  std::vector<Address> addresses(8, deaf.address());
  addresses.push_back(server.address());
  StoreClient client(addresses, key, {}, 12s);
  EXPECT_EQ(client.server(), server.address());
  client.set("x", as_bytes("1"));
  EXPECT_EQ(client.peek("x"), value_of("1"));
}

TEST(StoreClient, PassesByWhoeverHasAnotherKey) {
  const JobKey key = make_job_key();
  const ServerThread server(key), stranger(make_job_key());
  StoreClient client({stranger.address(), server.address()}, key, {}, 10s);
  EXPECT_EQ(client.server(), server.address());
}

/// The first server accepts late and is found together with the third, while the client waits for
/// the second.
TEST(StoreClient, IsNotHeldUpByWhoIsSilentWhileAnotherHasAnsweredToo) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  Deaf late;
  const FileDescriptor silent = listen_tcp("127.0.0.1", 0);
  const std::vector<Address> addresses{
      late.address(), {"127.0.0.1", port_of(silent)}, server.address()};
  std::thread waker([&] {
    if (wait_until_ready(silent.get(), POLLIN, in(10s))) late.hear();
  });
  const auto search = [&] { return StoreClient(addresses, key, {}, 20s).server(); };
  EXPECT_NO_THROW(EXPECT_EQ(search(), server.address()));
  waker.join();
}

TEST(StoreClient, SaysOfEveryAddressWhatIsWrong) {
  const JobKey key = make_job_key();
  const ServerThread stranger(make_job_key());
  const Address closed{"127.0.0.1", port_of(listen_tcp("127.0.0.1", 0))};
  try {
    StoreClient({closed, stranger.address()}, key, {}, 10s);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
    EXPECT_NE(std::string(error.what()).find(to_text(closed)), std::string::npos) << error.what();
  }
}

TEST(StoreClient, GivesUpInTimeWhereNobodyAnswers) {
  const Deaf deaf;
  try {
    StoreClient({deaf.address(), deaf.address()}, make_job_key(), {}, 500ms);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timed_out);
    EXPECT_NE(std::string(error.what()).find("no answer from " + to_text(deaf.address())),
              std::string::npos)
        << error.what();
  }
}

TEST(StoreServer, NonsenseFromAClientEndsThatClientAlone) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  StoreClient good(server.address(), key, 0, 10s);
  const auto bad = connect_tcp(server.address(), in(10s));
  Handshake handshake(Handshake::Role::dialer, key, {kStorePurpose, 1, kStoreGeneration});
  authenticate(bad.get(), handshake, in(10s));
  send_all(bad.get(), as_bytes(std::string(100, 'z')), in(10s), "sending");
  std::byte room[1];
  EXPECT_THROW(receive_exactly(bad.get(), room, in(10s), "receiving"), Error);
  good.set("x", as_bytes("1"));
  EXPECT_EQ(good.peek("x"), value_of("1"));
}

/// A raw client that authenticates and then sends its own messages.
class RawClient {
 public:
  RawClient(const Address& server, const JobKey& key) : channel_(connected(server, key), 1, 0) {}

  void ask(StoreOperation operation, const std::string& name) {
    channel_.send(FrameKind::control, to_bytes(StoreRequest{++number_, operation, name, {}}));
  }
  /// Receives until there are `count` answers or the server closes the connection.
  void read_answers(int count) {
    while (count > 0) {
      wait_until_ready(channel_.fd(), POLLIN, in(10s));
      channel_.pump();
      while (channel_.receive()) --count;
    }
  }
  void send_all() {
    while (channel_.unsent_bytes() > 0) {
      wait_until_ready(channel_.fd(), POLLOUT, in(10s));
      channel_.pump();
    }
  }

 private:
  static std::unique_ptr<Link> connected(const Address& server, const JobKey& key) {
    FileDescriptor socket = connect_tcp(server, in(10s));
    Handshake handshake(Handshake::Role::dialer, key, {kStorePurpose, 1, kStoreGeneration});
    authenticate(socket.get(), handshake, in(10s));
    return std::make_unique<TcpLink>(std::move(socket), 1);
  }

  Channel channel_;
  uint32_t number_ = 0;
};

TEST(StoreServer, KeepsOneWaitForEachClientHoweverOftenItAsks) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  RawClient client(server.address(), key);
  const auto ask_often = [&](int times) {
    for (int i = 0; i < times; ++i) {
      client.ask(StoreOperation::wait, fmt::format("{:0200}", i));
      client.send_all();
    }
    client.ask(StoreOperation::peek, "end");
    client.read_answers(1);
  };
  ask_often(100);
  const size_t before = test::heap_bytes();
  ask_often(20000);
  EXPECT_LT(test::heap_bytes(), before + 1 * MiB);
}

TEST(StoreServer, DropsAClientThatAsksAndDoesNotListen) {
  const JobKey key = make_job_key();
  const ServerThread server(key);
  StoreClient good(server.address(), key, 0, 10s);
  good.set("large", ByteVector(kMaxStoreValueBytes));
  const size_t before = test::heap_bytes();
  RawClient deaf(server.address(), key);
  for (int i = 0; i < 20; ++i) deaf.ask(StoreOperation::peek, "large");
  deaf.send_all();
  EXPECT_EQ(good.get("large", 10s).size(), kMaxStoreValueBytes);  // earlier requests are served
  EXPECT_LT(test::heap_bytes(), before + 4 * kMaxStoreValueBytes);
  EXPECT_THROW(deaf.read_answers(20), Error);
}

TEST(StoreServer, ItsEndIsALossToItsClients) {
  const JobKey key = make_job_key();
  auto server = std::make_unique<ServerThread>(key);
  StoreClient client(server->address(), key, 0, 10s);
  client.set("x", as_bytes("1"));
  server.reset();
  for (int i = 0; i < 2; ++i) {
    try {
      client.peek("x");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_NE(std::string(error.what()).find("the launcher"), std::string::npos);
    }
  }
}

TEST(StoreServer, TheLauncherReadsAndWritesWithoutAConnection) {
  const JobKey key = make_job_key();
  StoreServer server(key, "127.0.0.1", 0);
  server.set("x", as_bytes("1"));
  EXPECT_EQ(server.peek("x"), value_of("1"));
  EXPECT_EQ(server.peek("y"), std::nullopt);
  server.set("a/1", as_bytes("2"));
  server.set("a/2", as_bytes("3"));
  EXPECT_EQ(server.matching("a/"),
            (std::map<std::string, ByteVector>{{"a/1", value_of("2")}, {"a/2", value_of("3")}}));
}

/// A server whose steps the test makes, and a client of it.
class StoreServerTest : public ::testing::Test {
 protected:
  /// Returns the reason.
  std::string refused(const std::string& key) {
    try {
      client_.wait(key, 10s);
      return "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      return error.what();
    }
  }
  /// Waits for an answer to poll().
  std::optional<ByteVector> poll_until_answered(const std::string& key) {
    for (const TimePoint until = in(10s); std::chrono::steady_clock::now() < until;) {
      if (auto value = client_.poll(key)) return value;
    }
    return std::nullopt;
  }

  const JobKey key_ = make_job_key();
  StoreServer server_{key_, "127.0.0.1", 0};
  std::mutex mutex_;  // guards server_
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] {
    while (!stop_) {
      pollfd entry{server_.fd(), POLLIN, 0};
      ::poll(&entry, 1, 1);
      const std::lock_guard lock(mutex_);
      server_.step();
    }
  }};
  StoreClient client_{{"127.0.0.1", server_.port()}, key_, 0, 10s};
  void TearDown() override {
    stop_ = true;
    thread_.join();
  }
  template <class Call>
  void at_server(Call call) {
    const std::lock_guard lock(mutex_);
    call(server_);
  }
};

TEST_F(StoreServerTest, APolledKeyArrivesOnceItIsSet) {
  EXPECT_EQ(client_.poll("news"), std::nullopt);
  EXPECT_EQ(client_.poll("news"), std::nullopt);
  client_.set("other", value_of("x"));  // a request in between ends the open one
  EXPECT_EQ(client_.poll("news"), std::nullopt);
  at_server([](StoreServer& server) { server.set("news", value_of("1")); });
  EXPECT_EQ(poll_until_answered("news"), value_of("1"));
  EXPECT_EQ(poll_until_answered("news"), value_of("1")) << "asked again";
}

TEST_F(StoreServerTest, NobodyWaitsForKeysOfAnAbandonedJob) {
  std::string told;
  std::thread waiting([&] { told = refused("start/5/table"); });
  at_server([](StoreServer& server) { server.set("start/5/card/0", value_of("card")); });
  at_server([](StoreServer& server) { server.abandon_jobs_before(6, "rank 2 was lost"); });
  waiting.join();
  EXPECT_EQ(told, "rank 2 was lost");
  EXPECT_EQ(refused("start/4/table"), "rank 2 was lost");
  EXPECT_EQ(client_.wait("start/5/card/0", 10s), value_of("card")) << "what is there is given";
  EXPECT_EQ(client_.wait("start/6/table", 1ms), std::nullopt);
  EXPECT_EQ(client_.wait("other/5/table", 1ms), std::nullopt);
}

TEST_F(StoreServerTest, StartsAreRefusedAndGroupsAreNot) {
  at_server([](StoreServer& server) { server.refuse_starts("rank 1 is missing"); });
  at_server([](StoreServer& server) { server.refuse_starts("rank 2 is missing"); });
  EXPECT_EQ(refused("start/5/table"), "rank 1 is missing");
  EXPECT_EQ(client_.wait("start/5/group/ab/0/card/1", 1ms), std::nullopt);
  EXPECT_EQ(client_.wait("other/start/5/table", 1ms), std::nullopt) << "a job of some ranks";
  at_server([](StoreServer& server) { server.abandon_all_jobs("rank 0 was lost"); });
  EXPECT_EQ(refused("start/5/group/ab/0/card/1"), "rank 0 was lost");
  EXPECT_EQ(refused("start/5/table"), "rank 1 is missing") << "the first reason";
}

TEST_F(StoreServerTest, KeysOfEarlierJobsAreForgotten) {
  at_server([](StoreServer& server) {
    for (const char* key : {"start/5/table", "start/6/table", "ended/5/1"})
      server.set(key, value_of("x"));
    server.forget_jobs_before(6);
    server.forget("ended/5/1");
    server.forget("never set");
  });
  EXPECT_EQ(client_.peek("start/5/table"), std::nullopt);
  EXPECT_EQ(client_.peek("start/6/table"), value_of("x"));
  EXPECT_EQ(client_.peek("ended/5/1"), std::nullopt);
}

}  // namespace
}  // namespace hvd
