#include "launcher/options/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Variables and their values.
std::map<std::string, std::string> knobs(const std::string& text) {
  std::map<std::string, std::string> result;
  for (const Setting& setting : parse_config(text, "c").settings)
    result[std::string(setting.row->env)] = variable_value(setting);
  return result;
}

std::string config_refusal(const std::string& text) {
  try {
    parse_config(text, "c.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConfigFile, SectionsHoldKnobsInTheUnitsOfTheFlags) {
  EXPECT_THAT(
      knobs("params:\n  fusion_threshold_mb: 2\n  cycle_time_ms: 0.5\n"),
      ElementsAre(Pair("HOROVOD_CYCLE_TIME", "0.5"), Pair("HOROVOD_FUSION_THRESHOLD", "2097152")));
}

TEST(ConfigFile, SomeKeysHaveTheOppositeSense) {
  EXPECT_THAT(
      knobs("stall_check: {enabled: no}\nlogging: {with_timestamp: true}"),
      ElementsAre(Pair("HOROVOD_LOG_HIDE_TIME", "0"), Pair("HOROVOD_STALL_CHECK_DISABLE", "1")));
}

TEST(ConfigFile, AListOfCoresMayBeAList) {
  EXPECT_THAT(knobs("library_options: {thread_affinity: [0, 2]}"),
              ElementsAre(Pair("HOROVOD_THREAD_AFFINITY", "0,2")));
}

TEST(ConfigFile, EmptyFilesSectionsAndValuesSetNothing) {
  for (const char* text : {"", "# nothing\n", "params:\n", "params: {cycle_time_ms: }"})
    EXPECT_THAT(knobs(text), IsEmpty()) << text;
}

TEST(ConfigFile, EveryKeyOfTheTableIsKnown) {
  for (const KnobRow& row : rows()) {
    if (row.yaml.empty()) continue;
    const std::string key(row.yaml.substr(row.yaml.starts_with('!') ? 1 : 0));
    const std::string value = row.kind == KnobKind::choice ? std::string(row.choices[0]) : "1";
    const size_t dot = key.find('.');
    const std::string text =
        dot == std::string::npos
            ? key + ": " + value
            : key.substr(0, dot) + ": {" + key.substr(dot + 1) + ": " + value + "}";
    EXPECT_THAT(knobs(text), ElementsAre(Pair(row.env, ::testing::_))) << key;
  }
}

TEST(ConfigFile, TheOldKeyIsIgnoredWithAWarning) {
  const ConfigFile file = parse_config("logging: {hide_timestamp: true}", "c.yaml");
  EXPECT_THAT(file.settings, IsEmpty());
  EXPECT_THAT(file.warnings, ElementsAre(HasSubstr("hide_timestamp is ignored")));
}

TEST(ConfigFile, MistakesAreRefusedNamingFileAndKey) {
  EXPECT_EQ(config_refusal("# what\nparms: {a: 1}"),
            "config file c.yaml, line 2: unknown key 'parms'; did you mean 'params'?");
  EXPECT_EQ(config_refusal("params:\n  fusion_threshold: 1"),
            "config file c.yaml, line 2: unknown key 'params.fusion_threshold'; did you mean "
            "'params.fusion_threshold_mb'?");
  EXPECT_EQ(config_refusal("params: {a: 1}"), "config file c.yaml, line 1: unknown key 'params.a'");
  EXPECT_EQ(config_refusal("params: [1]"),
            "config file c.yaml: 'params' must hold keys and values");
  EXPECT_THAT(config_refusal("params: {cache_capacity: many}"),
              HasSubstr("config file c.yaml: params.cache_capacity=many: allowed is"));
  EXPECT_THAT(config_refusal("controller: mqi"), HasSubstr("controller=mqi: allowed is gloo, mpi"));
  EXPECT_THAT(config_refusal("params: {cache_capacity: {x: 1}}"), HasSubstr("must be one value"));
  EXPECT_THAT(config_refusal("library_options: {thread_affinity: [[1]]}"),
              HasSubstr("list of values"));
  EXPECT_THAT(config_refusal("[1, 2]"), HasSubstr("must be a mapping of sections"));
  EXPECT_THAT(config_refusal("[a]: 1"), HasSubstr("c.yaml"));
  EXPECT_THAT(config_refusal("? [a]\n: 1"), HasSubstr("a key must be a scalar"));
  EXPECT_THAT(config_refusal("params: {? [a] : 1}"), HasSubstr("c.yaml"));
  EXPECT_THAT(config_refusal("a: {"), HasSubstr("config file c.yaml: yaml-cpp: error at line"));
}

}  // namespace
}  // namespace hvd::launcher
