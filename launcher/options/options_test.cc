#include "launcher/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse_options(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Options, TheCommandBeginsAtTheFirstWordThatIsNoFlag) {
  const Options options =
      parse_options({"--verbose", "-np", "4", "python", "-u", "train.py", "--np", "7", "-v"});
  EXPECT_EQ(options.num_proc, 4);
  EXPECT_TRUE(options.verbose);
  EXPECT_THAT(options.command, ElementsAre("python", "-u", "train.py", "--np", "7", "-v"));
}

TEST(Options, TwoDashesEndTheFlags) {
  EXPECT_THAT(parse_options({"-np", "1", "--", "--odd"}).command, ElementsAre("--odd"));
}

TEST(Options, EverySpellingOfAFlagIsTheSame) {
  for (const char* flag : {"-np", "--np", "--num-proc"})
    EXPECT_EQ(parse_options({flag, "3", "x"}).num_proc, 3) << flag;
  EXPECT_EQ(parse_options({"-np=3", "x"}).num_proc, 3);
  EXPECT_EQ(parse_options({"-np", "1", "-p2222", "x"}).ssh_port, 2222);
  EXPECT_EQ(parse_options({"-np", "1", "-H", "a:1", "x"}).hosts, "a:1");
  EXPECT_EQ(parse_options({"-np", "1", "-Ha:1", "x"}).hosts, "a:1");
  EXPECT_EQ(parse_options({"-np", "1", "--hosts=a:1", "x"}).hosts, "a:1");
  EXPECT_EQ(parse_options({"-np", "1", "-hostfile", "f", "x"}).hostfile, "f");
  EXPECT_TRUE(parse_options({"-np", "1", "-prefix-timestamp", "x"}).prefix_timestamp);
}

TEST(Options, ACallerIsAProcessAndADescriptorThatIsNoStandardOne) {
  const Options options = parse_options({"-np", "1", "--caller", "7", "--caller-key", "3", "x"});
  EXPECT_EQ(options.caller, 7);
  EXPECT_EQ(options.caller_key, 3);
  EXPECT_FALSE(parse_options({"-np", "1", "x"}).caller);
  EXPECT_THAT(refusal({"-np", "1", "--caller-key", "2", "x"}), HasSubstr("--caller-key 2"));
  EXPECT_THAT(refusal({"-np", "1", "--caller", "0", "x"}), HasSubstr("--caller 0"));
}

TEST(Options, TheLastOfSeveralCounts) {
  EXPECT_EQ(parse_options({"-np", "1", "-np", "2", "x"}).num_proc, 2);
  EXPECT_THAT(parse_options({"-np", "1", "--autotune", "--no-autotune", "x"}).knobs,
              ElementsAre(Pair("HOROVOD_AUTOTUNE", "0")));
  EXPECT_THAT(parse_options({"-np", "1", "--no-autotune", "--autotune", "x"}).knobs,
              ElementsAre(Pair("HOROVOD_AUTOTUNE", "1")));
}

TEST(Options, EachKnobIsExportedOnlyIfItsFlagIsGiven) {
  EXPECT_THAT(parse_options({"-np", "1", "x"}).knobs, IsEmpty());
  for (const KnobRow& row : rows()) {
    if (row.flags.empty()) continue;
    const std::string flag(row.flags.substr(0, row.flags.find(',')));
    const bool boolean = row.kind == KnobKind::boolean;
    std::vector<std::string> arguments{"-np", "1", flag, "x"};
    const std::string value = row.kind == KnobKind::choice ? std::string(row.choices.back()) : "1";
    if (!boolean) arguments.insert(arguments.end() - 1, value);
    const Options options = parse_options(arguments);
    ASSERT_EQ(options.knobs.size(), 1u) << flag;
    EXPECT_EQ(options.knobs.begin()->first, row.env);
    if (row.flag_unit == Unit::none) {
      EXPECT_EQ(options.knobs.begin()->second, value) << flag;
    }
    EXPECT_THAT(options.command, ElementsAre("x"));
  }
}

TEST(Options, SwitchesHaveTwoSides) {
  const auto value = [](const char* flag) {
    return parse_options({"-np", "1", flag, "x"}).knobs.begin()->second;
  };
  EXPECT_EQ(value("--no-stall-check"), "1");
  EXPECT_EQ(value("--stall-check"), "0");
  EXPECT_EQ(value("--log-without-timestamp"), "1");
  EXPECT_EQ(value("--log-with-timestamp"), "0");
  EXPECT_EQ(value("--log-hide-timestamp"), "1");
  EXPECT_EQ(value("--no-log-hide-timestamp"), "0");
}

TEST(Options, ValuesThatBeginWithADashAreValues) {
  EXPECT_THAT(refusal({"-np", "1", "--cache-capacity", "-5", "x"}),
              HasSubstr("--cache-capacity=-5: allowed is"));
  EXPECT_THAT(refusal({"-np", "-5", "x"}), HasSubstr("-np -5: allowed is"));
  EXPECT_THAT(parse_options({"--mpi", "--mpi-args", "--verbose", "x"}).mpi_args,
              ElementsAre("--verbose"));
}

TEST(Options, WhatCannotBeIsRefused) {
  EXPECT_THAT(refusal({"-np", "0", "x"}), HasSubstr("-np 0: allowed is a whole number from 1"));
  EXPECT_THAT(refusal({"-np", "2"}), HasSubstr("the command to run is missing"));
  EXPECT_THAT(refusal({"-np"}), HasSubstr("flag '-np' needs a value"));
  EXPECT_THAT(refusal({"-npx", "2", "x"}), HasSubstr("unknown flag '-npx'"));
  EXPECT_THAT(refusal({"--verbose=1", "-np", "2", "x"}), HasSubstr("'--verbose' takes no value"));
  EXPECT_THAT(refusal({"-np", "2", "--autotune=0", "x"}),
              HasSubstr("'--autotune' takes no value, found '0'; --autotune switches it on, "
                        "--no-autotune off"));
  EXPECT_THAT(refusal({"-np", "2", "--output-filename", "--verbose", "x"}),
              HasSubstr("'--output-filename' needs a value, found the flag '--verbose'"));
  for (const char* flag : {"-H", "--hostfile", "--config-file", "--output-filename", "-i"})
    EXPECT_THAT(refusal({"-np", "2", flag, "", "x"}), HasSubstr("needs a value, found an empty"))
        << flag;
  EXPECT_THAT(refusal({"--verbos", "-np", "2", "x"}), HasSubstr("unknown flag '--verbos'"));
  EXPECT_THAT(refusal({"-np", "1", "--blacklist-cooldown-range", "1"}),
              HasSubstr("needs 2 values"));
  EXPECT_THAT(refusal({"-np", "1", "--gloo", "--jsrun", "x"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-np", "1", "--mpi", "--gloo", "x"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-np", "1", "--mpi", "--jsrun", "x"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-np", "1", "--mpi", "--mpi-args=-x 'a", "x"}),
              HasSubstr("--mpi-args '-x 'a': the quote ' is not closed"));
}

TEST(Options, SomeModesNeedNoProcesses) {
  EXPECT_EQ(parse_options({"-cb"}).mode, Options::Mode::check_build);
  EXPECT_EQ(parse_options({"--check-build", "--verbose"}).verbose, true);
  EXPECT_EQ(parse_options({"-v"}).mode, Options::Mode::version);
  for (const char* also : {"-v", "-cb", "--doctor", "--gloo"})
    EXPECT_EQ(parse_options({also, "-h", "-np", "none"}).mode, Options::Mode::help) << also;
}

TEST(Options, InterfacesAreAList) {
  EXPECT_THAT(parse_options({"-np", "1", "--network-interfaces", "a,b", "x"}).interfaces,
              ElementsAre("a", "b"));
  const Options old = parse_options({"-np", "1", "--network-interface", "a,b", "x"});
  EXPECT_THAT(old.interfaces, ElementsAre("a", "b"));
  EXPECT_THAT(old.warnings, ElementsAre(HasSubstr("deprecated")));
}

TEST(Options, TakeTheWayOfSsh) {
  const Options options = parse_options({"-np", "1", "-p", "2222", "-i", "key", "x"});
  EXPECT_EQ(options.ssh_port, 2222);
  EXPECT_EQ(options.ssh_identity, "key");
  EXPECT_THAT(options.warnings, IsEmpty());
}

TEST(Options, OtherLaunchersAreAskedForByFlags) {
  const auto controller = [](const char* flag) {
    return parse_options({"-np", "1", flag, "x"}).knobs.at("HOROVOD_CONTROLLER");
  };
  EXPECT_EQ(controller("--mpi"), "mpi");
  EXPECT_EQ(controller("--gloo"), "gloo");
  EXPECT_TRUE(parse_options({"-np", "1", "--jsrun", "x"}).jsrun);
  EXPECT_FALSE(parse_options({"-np", "1", "--mpi", "x"}).jsrun);
  const Options options =
      parse_options({"--mpi", "--mpi-args", "-x 'A=b c'", "--binding-args=--bind-to core", "x"});
  EXPECT_EQ(options.num_proc, 0);
  EXPECT_THAT(options.mpi_args, ElementsAre("-x", "A=b c"));
  EXPECT_THAT(options.binding_args, ElementsAre("--bind-to", "core"));
}

TEST(Options, ARangeOfCooldownsAscends) {
  const Options options = parse_options({"-np", "1", "--blacklist-cooldown-range", "1", "2", "x"});
  EXPECT_EQ(options.cooldown, std::pair(1, 2));
  EXPECT_THAT(options.command, ElementsAre("x"));
  EXPECT_THAT(refusal({"-np", "1", "--blacklist-cooldown-range", "3", "2", "x"}),
              HasSubstr("--blacklist-cooldown-range 3 2: the first number must not be larger"));
  EXPECT_THAT(refusal({"-np", "1", "--blacklist-cooldown-range", "0", "2", "x"}),
              HasSubstr("from 1 to 3600"));
}

TEST(Options, ChaosIsAPairOfSettings) {
  EXPECT_EQ(parse_chaos("kill=30s"), (Chaos{30s, 0}));
  EXPECT_EQ(parse_chaos("seed=7,kill=500ms"), (Chaos{500ms, 7}));
  EXPECT_EQ(parse_chaos("kill=2m"), (Chaos{120s, 0}));
  for (const char* wrong : {"", "kill", "kill=", "kill=30", "kill=1ms", "kill=2000m", "stop=3s",
                            "kill=3s,seed=x", "kill=-3s", "kill=99999999999999999999s"})
    EXPECT_THAT(refusal({"-np", "1", std::string("--chaos=") + wrong, "x"}),
                HasSubstr(wrong[0] == 0 ? "needs a value" : "allowed is kill=TIME"))
        << wrong;
}

TEST(LaterFeatures, AreNamedByFlagAndVariable) {
  Environment environment{{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_CCL_CACHE", "1"}};
  EXPECT_THAT(tell_of_later(environment),
              ElementsAre("not in this version: --autotune, HOROVOD_AUTOTUNE=1",
                          "not in this version: HOROVOD_CCL_CACHE=1"));
}

TEST(LaterFeatures, SettingsOfOneThatIsOffAreDropped) {
  Environment environment{{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "7"}, {"OTHER", "1"}};
  EXPECT_THAT(tell_of_later(environment), IsEmpty());
  EXPECT_THAT(environment, ElementsAre(Pair("OTHER", "1")));
}

}  // namespace
}  // namespace hvd::launcher
