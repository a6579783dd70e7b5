#include "launcher/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;

std::vector<std::string> flags_of(const std::vector<std::string>& arguments) {
  const DoctorPlan plan{.program = "/bin/horovodrun",
                        .python = "/bin/python3",
                        .hosts = {{"a", 2, true}, {"fd00::1", 4, false}}};
  const std::vector<std::string> words = doctor_command(plan, parse_options(arguments));
  EXPECT_EQ(words[0], "/bin/python3");
  return {words.begin() + 3, words.end()};
}

TEST(Doctor, IsToldTheHostsAndWhichOneThisIs) {
  EXPECT_THAT(flags_of({"--doctor"}), ElementsAre("--program", "/bin/horovodrun", "--host=a=2",
                                                  "--here=a", "--host=fd00::1=4"));
}

TEST(Doctor, ReachesHostsAsAJobWould) {
  EXPECT_THAT(
      flags_of({"--doctor", "-p", "2222", "-i", "key", "--network-interfaces", "x,y", "--verbose"}),
      AllOf(Contains("--ssh-port=2222"), Contains("--ssh-identity-file=key"),
            Contains("--network-interfaces=x,y"), Contains("--verbose")));
}

TEST(Doctor, SaysWhenThereIsNoPython) {
  try {
    run_doctor({.program = "/bin/horovodrun"}, {});
    FAIL() << "it was started";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("apt-get install python3"));
  }
}

TEST(Doctor, TakesNoCommand) {
  EXPECT_EQ(parse_options({"--doctor"}).mode, Options::Mode::doctor);
  EXPECT_THROW(parse_options({"--doctor", "python", "train.py"}), Error);
}

}  // namespace
}  // namespace hvd::launcher
