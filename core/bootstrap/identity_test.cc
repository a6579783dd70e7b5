#include "core/bootstrap/identity.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "core/bootstrap/identity_testing.h"

namespace hvd {
namespace {

using test::error_of;

Environment two_ranks() {
  return {{"HOROVOD_RANK", "1"},
          {"HOROVOD_SIZE", "2"},
          {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.7"},
          {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4321"}};
}

TEST(Identity, NothingSetIsRankZeroOfOne) {
  for (const Environment& environment : {Environment{}, Environment{{"HOROVOD_RANK", ""}}}) {
    const Identity identity = identity_from(environment);
    EXPECT_EQ(identity.rank, 0);
    EXPECT_EQ(identity.size, 1);
    EXPECT_EQ(identity.local_rank, 0);
    EXPECT_EQ(identity.local_size, 1);
    EXPECT_EQ(identity.cross_rank, 0);
    EXPECT_EQ(identity.cross_size, 1);
    EXPECT_EQ(identity.hostname, "localhost");
    EXPECT_EQ(identity.store_host, "");
  }
}

TEST(Identity, EverythingThatTheLauncherSaysIsTaken) {
  Environment environment = two_ranks();
  environment.insert({{"HOROVOD_SIZE", "8"},
                      {"HOROVOD_LOCAL_RANK", "2"},
                      {"HOROVOD_LOCAL_SIZE", "4"},
                      {"HOROVOD_CROSS_RANK", "1"},
                      {"HOROVOD_CROSS_SIZE", "2"},
                      {"HOROVOD_HOSTNAME", "node7"}});
  environment["HOROVOD_RANK"] = "6";
  environment["HOROVOD_SIZE"] = "8";
  const Identity identity = identity_from(environment);
  EXPECT_EQ(identity.rank, 6);
  EXPECT_EQ(identity.size, 8);
  EXPECT_EQ(identity.local_rank, 2);
  EXPECT_EQ(identity.local_size, 4);
  EXPECT_EQ(identity.cross_rank, 1);
  EXPECT_EQ(identity.cross_size, 2);
  EXPECT_EQ(identity.hostname, "node7");
  EXPECT_EQ(identity.store_host, "10.0.0.7");
  EXPECT_EQ(identity.store_port, 4321);
}

TEST(Identity, HalfAPairNamesWhatIsMissing) {
  const std::vector<std::pair<const char*, const char*>> pairs{
      {"HOROVOD_RANK", "HOROVOD_SIZE"},
      {"HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
      {"HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"},
  };
  for (const auto& [first, second] : pairs) {
    for (const auto& [found, missing] : {std::pair(first, second), std::pair(second, first)}) {
      Environment environment = two_ranks();
      environment[found] = "1";
      environment.erase(missing);
      EXPECT_EQ(error_of(environment),
                fmt::format("{} is set but {} is not; set both or neither", found, missing));
    }
  }
}

TEST(Identity, NonsenseIsRefusedWithTheVariableNamed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"HOROVOD_RANK", "x"},
      {"HOROVOD_RANK", "-1"},
      {"HOROVOD_RANK", "1.5"},
      {"HOROVOD_RANK", " 1"},
      {"HOROVOD_RANK", "2"},
      {"HOROVOD_RANK", "99999999999999999999"},
      {"HOROVOD_SIZE", "0"},
      {"HOROVOD_SIZE", "1e9"},
      {"HOROVOD_SIZE", "99999999"},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "0"},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "65536"},
  };
  for (const auto& [name, value] : cases) {
    Environment environment = two_ranks();
    environment[name] = value;
    EXPECT_NE(error_of(environment).find(fmt::format("{}={}", name, value)), std::string::npos)
        << error_of(environment);
  }
}

TEST(Identity, MoreLocalRanksThanRanksAreRefused) {
  Environment environment = two_ranks();
  environment["HOROVOD_LOCAL_RANK"] = "0";
  environment["HOROVOD_LOCAL_SIZE"] = "3";
  EXPECT_EQ(error_of(environment), "HOROVOD_LOCAL_SIZE=3 is more than HOROVOD_SIZE=2");
}

TEST(Identity, SeveralRanksNeedAnAddress) {
  const std::string text = error_of({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}});
  EXPECT_NE(text.find("HOROVOD_GLOO_RENDEZVOUS_ADDR"), std::string::npos);
  EXPECT_NE(text.find("HOROVOD_GLOO_RENDEZVOUS_PORT"), std::string::npos);
  EXPECT_EQ(identity_from({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}}).size, 1);
}

}  // namespace
}  // namespace hvd
