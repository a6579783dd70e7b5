#include "core/base/knobs.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/error.h"

namespace hvd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const KnobRow& row_of(std::string_view env) {
  for (const KnobRow& row : rows())
    if (row.env == env) return row;
  ADD_FAILURE() << "no row for " << env;
  return rows()[0];
}

std::string refusal(const Environment& environment) {
  try {
    knobs_from(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Knobs, WithoutVariablesAreTheDefaultsOfTheStruct) {
  const Knobs defaults;
  const Knobs knobs = knobs_from({});
  for (const KnobRow& row : rows()) EXPECT_EQ(text_of(row, knobs), text_of(row, defaults));
  EXPECT_EQ(knobs.fusion_bytes, 134217728);
  EXPECT_EQ(knobs.cycle, 1ms);
}

TEST(Knobs, EveryKindOfFieldIsReadFromItsVariable) {
  const Knobs knobs = knobs_from({{"HOROVOD_FUSION_THRESHOLD", "0"},
                                  {"HOROVOD_CYCLE_TIME", "2.5"},
                                  {"HOROVOD_STALL_CHECK_DISABLE", "Yes"},
                                  {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"},
                                  {"HOROVOD_GLOO_IFACE", "eth0"},
                                  {"HOROVOD_TRANSPORT", "TCP"},
                                  {"HOROVOD_ALLREDUCE_ALGORITHM", "ring"},
                                  {"HOROVOD_LOG_LEVEL", "Debug"},
                                  {"HOROVOD_THREAD_AFFINITY", "0,2,4"},
                                  {"HOROVOD_GRACE_SECONDS", "0.25"}});
  EXPECT_EQ(knobs.fusion_bytes, 0);
  EXPECT_EQ(knobs.cycle, 2500us);
  EXPECT_TRUE(knobs.stall_check_disable);
  EXPECT_EQ(knobs.stall_check, 7s);
  EXPECT_EQ(knobs.interface_name, "eth0");
  EXPECT_EQ(knobs.transport, TransportChoice::tcp);
  EXPECT_EQ(knobs.allreduce_algorithm, AlgorithmChoice::ring);
  EXPECT_EQ(knobs.log_level, LogLevel::debug);
  EXPECT_EQ(knobs.thread_affinity, "0,2,4");
  EXPECT_EQ(knobs.grace, 250ms);
}

TEST(Knobs, EveryFieldSurvivesBeingSpelledAndReadAgain) {
  Knobs knobs;
  knobs.fusion_bytes = 12345;
  knobs.cycle = 123456us;
  knobs.log_level = LogLevel::fatal;
  knobs.transport = TransportChoice::shm;
  knobs.allreduce_algorithm = AlgorithmChoice::recursive_doubling;
  knobs.grace = 1500ms;
  Environment environment;
  for (const KnobRow& row : rows()) environment[std::string(row.env)] = text_of(row, knobs);
  const Knobs again = knobs_from(environment);
  for (const KnobRow& row : rows()) EXPECT_EQ(text_of(row, again), text_of(row, knobs)) << row.env;
}

TEST(Knobs, AVariableSetToNothingCountsAsNotSet) {
  EXPECT_EQ(knobs_from({{"HOROVOD_FUSION_THRESHOLD", ""}}).fusion_bytes, Knobs{}.fusion_bytes);
}

TEST(Knobs, AValueThatAVariableCannotTakeIsRefusedWithTheAllowedOnes) {
  EXPECT_EQ(refusal({{"HOROVOD_FUSION_THRESHOLD", "64MB"}}),
            "HOROVOD_FUSION_THRESHOLD=64MB: allowed is a whole number of bytes from 0 to "
            "1099511627776");
  EXPECT_EQ(
      refusal({{"HOROVOD_STALL_CHECK_DISABLE", "perhaps"}}),
      "HOROVOD_STALL_CHECK_DISABLE=perhaps: allowed is 0, 1, false, true, no, yes, off or on");
  EXPECT_EQ(refusal({{"HOROVOD_LOG_LEVEL", "loud"}}),
            "HOROVOD_LOG_LEVEL=loud: allowed is trace, debug, info, warning, error, fatal");
  EXPECT_EQ(refusal({{"HOROVOD_CONTROLLER", "carrier pigeon"}}),
            "HOROVOD_CONTROLLER=carrier pigeon: allowed is gloo, mpi");
  EXPECT_EQ(refusal({{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "-1"}}),
            "HOROVOD_AUTOTUNE_WARMUP_SAMPLES=-1: allowed is a whole number, at least 0");
  for (const char* bad : {"-1", "1e400", "nan", "inf", "1 ", " 1", "0x10", "1,5"})
    EXPECT_THAT(refusal({{"HOROVOD_CYCLE_TIME", bad}}), HasSubstr("allowed is a number of ms"));
  for (const char* bad : {"-1", "1,", ",", "a", "1;2", "1,-2"})
    EXPECT_THAT(refusal({{"HOROVOD_THREAD_AFFINITY", bad}}), HasSubstr("core numbers"));
  EXPECT_THAT(refusal({{"HOROVOD_CACHE_CAPACITY", "99999999999999999999"}}), HasSubstr("allowed"));
}

TEST(Knobs, AStallShutdownBeforeTheFirstReportIsRefused) {
  EXPECT_THAT(refusal({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "10"}}),
              HasSubstr("HOROVOD_STALL_CHECK_TIME_SECONDS=60"));
  EXPECT_EQ(refusal({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60"}}), "accepted");
}

TEST(Knobs, AFlagIsGivenInItsOwnUnit) {
  const KnobRow& fusion = row_of("HOROVOD_FUSION_THRESHOLD");
  EXPECT_EQ(checked_flag(fusion, "--fusion-threshold-mb", "32"), "33554432");
  EXPECT_EQ(checked_flag(row_of("HOROVOD_CYCLE_TIME"), "--cycle-time-ms", "0.5"), "0.5");
  EXPECT_EQ(checked_flag(row_of("HOROVOD_LOG_LEVEL"), "--log-level", "INFO"), "info");
  try {
    checked_flag(fusion, "--fusion-threshold-mb", "-3");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--fusion-threshold-mb=-3: allowed is a whole number of MiB from 0 to 1048576");
  }
}

TEST(Knobs, TheAgreedTextDiffersExactlyWhenAnAgreedKnobDoes) {
  const std::string text = agreed_text({});
  EXPECT_THAT(text, HasSubstr("HOROVOD_FUSION_THRESHOLD=134217728\n"));
  Knobs local;
  local.log_level = LogLevel::trace;
  local.start_timeout = 5s;
  EXPECT_EQ(agreed_text(local), text);
  for (const KnobRow& row : rows()) {
    if (row.scope != Scope::agreed) continue;
    const bool choice = row.kind == KnobKind::choice;
    const std::string other = choice                          ? std::string(row.choices[1])
                              : row.kind == KnobKind::boolean ? "1"
                              : row.env_unit == Unit::seconds ? "7"
                                                              : "3145728";
    EXPECT_NE(agreed_text(knobs_from({{std::string(row.env), other}})), text) << row.env;
  }
}

TEST(Knobs, ALaterFeatureIsToldOfOnlyWhenItIsUsed) {
  EXPECT_THAT(later_in_use({}), ElementsAre());
  EXPECT_THAT(later_in_use({{"HOROVOD_AUTOTUNE", "no"}, {"HOROVOD_CONTROLLER", "GLOO"}}),
              ElementsAre());
  EXPECT_THAT(later_in_use({{"HOROVOD_AUTOTUNE", "true"}, {"HOROVOD_CCL_CACHE", "1"}}),
              ElementsAre(&row_of("HOROVOD_AUTOTUNE"), &row_of("HOROVOD_CCL_CACHE")));
}

TEST(Knobs, EveryRowIsCompleteAndNoNameIsTakenTwice) {
  std::set<std::string_view> names;
  for (const KnobRow& row : rows()) {
    EXPECT_TRUE(row.env.starts_with("HOROVOD_")) << row.env;
    EXPECT_TRUE(row.help.ends_with(".")) << row.env;
    EXPECT_LT(row.min, row.max) << row.env;
    EXPECT_EQ(row.choices.empty(), row.kind != KnobKind::choice) << row.env;
    EXPECT_EQ(row.flags.empty(), row.dest.empty()) << row.env;
    EXPECT_TRUE(row.off_flags.empty() || row.kind == KnobKind::boolean) << row.env;
    EXPECT_EQ(row.stage == Stage::later, row.field.index() == 0) << row.env;
    for (std::string_view name : {row.env, row.flags, row.off_flags, row.dest, row.yaml})
      EXPECT_TRUE(name.empty() || names.insert(name).second) << name;
  }
}

TEST(Knobs, TheProcessEnvironmentIsReadWhenAsked) {
  ASSERT_EQ(setenv("HOROVOD_KNOBS_TEST", "a=b", 1), 0);
  EXPECT_EQ(process_environment().at("HOROVOD_KNOBS_TEST"), "a=b");
  unsetenv("HOROVOD_KNOBS_TEST");
  EXPECT_FALSE(process_environment().contains("HOROVOD_KNOBS_TEST"));
}

std::string joined(std::string_view comma_list) {
  std::string result;
  for (const char c : comma_list) result += c == ',' ? std::string("<br>") : std::string(1, c);
  return result;
}

std::string documentation() {
  std::string text =
      "# Knobs\n\nGenerated from the table in `core/base/knobs_table.h`.\n\n"
      "A flag of `horovodrun` wins over the `--config-file`, which wins over a variable that is\n"
      "set. A variable that is set to nothing counts as not set. A value that a knob cannot take\n"
      "is refused at start. *Agreed* knobs must be the same on every rank. Flags that end in "
      "`-mb`\n"
      "and YAML keys that end in `_mb` count MiB, where their variables count bytes.\n";
  for (const Stage stage : {Stage::now, Stage::later}) {
    text += stage == Stage::now ? "\n## In this version\n\n"
                                : "\n## Accepted, without effect in this version\n\n"
                                  "Using one of these prints a warning that says so.\n\n";
    text += "| variable | flags | YAML | default | allowed | scope | meaning |\n";
    text += "|---|---|---|---|---|---|---|\n";
    for (const KnobRow& row : rows()) {
      if (row.stage != stage) continue;
      const bool off = row.yaml.starts_with("!");
      text +=
          fmt::format("| {} | {}{}{} | {}{} | {} | {} | {} | {} |\n", row.env, joined(row.flags),
                      row.off_flags.empty() ? "" : "<br>", joined(row.off_flags),
                      row.yaml.substr(off ? 1 : 0), off ? " (opposite)" : "", text_of(row, {}),
                      allowed_text(row, row.env_unit), to_text(row.scope), row.help);
    }
  }
  return text;
}

// HVD_UPDATE_GOLDEN=1 writes the file instead of comparing.
TEST(Knobs, TheDocumentationIsTheTable) {
  const std::string path = HVD_SOURCE_DIR "/docs/knobs.md";
  if (std::getenv("HVD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << documentation();
  std::ifstream file(path);
  std::stringstream found;
  found << file.rdbuf();
  EXPECT_EQ(found.str(), documentation()) << "run test_base with HVD_UPDATE_GOLDEN=1";
}

}  // namespace
}  // namespace hvd
