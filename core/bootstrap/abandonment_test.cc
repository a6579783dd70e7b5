// A rank that is lost after it has published its card and before it has connected.
#include "core/bootstrap/abandonment.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/exchange.h"
#include "core/bootstrap/launcher_testing.h"
#include "core/bootstrap/machine.h"
#include "core/bootstrap/wiring.h"
#include "core/transport/socket.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGeneration = 4;
using test::Launcher;

struct Case {
  int lost = 0;
  TransportChoice transport{};
};

class AbandonedStart : public ::testing::TestWithParam<Case> {
 protected:
  Identity identity(int rank) const {
    Identity one;
    one.rank = rank;
    one.size = 2;
    one.hostname = "node0";
    one.generation = 0;
    return one;
  }
  /// Takes part until all ranks have the cards.
  void publish_card(Store& store) const {
    PeerCard card;
    card.rank = GetParam().lost;
    card.size = 2;
    card.hostname = "node0";
    card.kernel = kernel_name();
    card.network = network_name();
    card.agreed = agreed_text(knobs);
    card.control_port = port_of(listener);
    card.data_port = port_of(listener);
    exchange_cards(store, card, kGeneration, StartDeadline(knobs.start_timeout));
  }

  const JobKey key = make_job_key();
  const FileDescriptor listener = listen_tcp("127.0.0.1", 0);  ///< of the lost rank: no answer
  Knobs knobs;
};

TEST_P(AbandonedStart, EndsAtOnceForTheOthers) {
  knobs.transport = GetParam().transport;
  knobs.staging_bytes = MiB;
  knobs.start_timeout = 20s;
  Launcher launcher(key);
  std::thread lost([&] {
    StoreClient store(launcher.address(), key, GetParam().lost, 10s);
    publish_card(store);
    launcher.abandon(kGeneration, "a rank was lost");
  });
  StoreClient store(launcher.address(), key, 1 - GetParam().lost, 10s);
  try {
    connect(identity(1 - GetParam().lost), key, &store, kGeneration, knobs, {});
    ADD_FAILURE() << "it connected to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
    EXPECT_STREQ(error.what(), "a rank was lost");
  }
  lost.join();
}

TEST_P(AbandonedStart, IsSeenByTheLauncherUntilAllHaveConnected) {
  knobs.transport = GetParam().transport;
  knobs.staging_bytes = MiB;
  knobs.start_timeout = 20s;
  Launcher launcher(key);
  std::vector<std::unique_ptr<StoreClient>> stores;
  for (int rank = 0; rank < 2; ++rank)
    stores.push_back(std::make_unique<StoreClient>(launcher.address(), key, rank, 10s));
  std::array<std::optional<Wiring>, 2> wirings;  // the first one stays until both are complete
  const auto join = [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    wirings[at] = connect(identity(rank), key, stores[at].get(), kGeneration, knobs, {});
  };
  EXPECT_FALSE(launcher.is_awaited_in(kGeneration));
  std::thread first(join, 1 - GetParam().lost);
  while (!launcher.is_awaited_in(kGeneration)) std::this_thread::yield();
  EXPECT_FALSE(launcher.is_awaited_in(job_number(launcher_generation(kGeneration) + 1, 1)));
  std::thread late(join, GetParam().lost);
  first.join();
  late.join();
  const auto give_up = std::chrono::steady_clock::now() + 10s;
  while (launcher.is_awaited_in(kGeneration) && std::chrono::steady_clock::now() < give_up)
    std::this_thread::yield();
  EXPECT_FALSE(launcher.is_awaited_in(kGeneration));
}

INSTANTIATE_TEST_SUITE_P(Links, AbandonedStart,
                         ::testing::Values(Case{0, TransportChoice::automatic},
                                           Case{1, TransportChoice::automatic},
                                           Case{0, TransportChoice::tcp},
                                           Case{1, TransportChoice::tcp}));

}  // namespace
}  // namespace hvd
