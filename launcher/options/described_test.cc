#include "launcher/options/described.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using nlohmann::json;

json values(const std::vector<std::string>& arguments) {
  const CommandLine line = read_command_line(arguments);
  return json::parse(described(line, options_of(line)))["values"];
}

TEST(Described, WhatIsNotGivenIsNullAndSwitchesAreFalse) {
  const json found = values({"-np", "2", "python", "-np", "3"});
  EXPECT_EQ(found["num_proc"], 2);
  EXPECT_EQ(found["command"], json({"python", "-np", "3"}));
  for (const char* name : {"hosts", "autotune", "no_stall_check", "log_with_timestamp", "nics"})
    EXPECT_TRUE(found.at(name).is_null()) << name;
  for (const char* name : {"verbose", "check_build", "use_gloo", "tcp_flag"})
    EXPECT_EQ(found.at(name), false) << name;
}

TEST(Described, EveryNameIsThereOnce) {
  const json found = values({"-np", "1", "x"});
  for (const Flag& flag : flags()) {
    if (flag.dest.empty()) continue;
    EXPECT_TRUE(found.contains(flag.dest.substr(flag.dest[0] == '!' ? 1 : 0))) << flag.dest;
  }
}

TEST(Described, ValuesHaveTheirTypes) {
  const json found = values({"-np",
                             "1",
                             "--fusion-threshold-mb",
                             "32",
                             "--cycle-time-ms",
                             "2",
                             "--log-level",
                             "debug",
                             "--thread-affinity",
                             "3",
                             "--network-interfaces",
                             "a,b",
                             "--blacklist-cooldown-range",
                             "1",
                             "2",
                             "--log-hide-timestamp",
                             "--mpi-args",
                             "-x A",
                             "--host-discovery-script",
                             "find.sh",
                             "--no-autotune",
                             "x"});
  EXPECT_EQ(found["fusion_threshold_mb"], 32);
  EXPECT_TRUE(found["cycle_time_ms"].is_number_float());
  EXPECT_EQ(found["log_level"], "DEBUG");
  EXPECT_EQ(found["thread_affinity"], 3);
  EXPECT_EQ(found["nics"], json({"a", "b"}));
  EXPECT_EQ(found["cooldown_range"], json({1, 2}));
  EXPECT_EQ(found["log_with_timestamp"], false);
  EXPECT_EQ(found["mpi_args"], "-x A");
  EXPECT_EQ(found["host_discovery_script"], "find.sh");
  EXPECT_EQ(found["autotune"], false);
  EXPECT_EQ(values({"-np", "1", "--thread-affinity", "0,2", "x"})["thread_affinity"], "0,2");
}

}  // namespace
}  // namespace hvd::launcher
