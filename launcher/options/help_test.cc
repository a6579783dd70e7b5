#include "launcher/options/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "launcher/options/flags.h"

namespace hvd::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Help, BeginsWithTheUsageAndTheCommandInIt) {
  EXPECT_THAT(help_text(), StartsWith("usage: horovodrun -np N [flags] command [arguments ...]\n"));
}

TEST(Help, ListsEveryFlagThatIsForPeople) {
  const std::string text = help_text();
  for (const Flag& flag : flags())
    for (const std::string_view name : items(flag.names))
      EXPECT_EQ(text.find(name) != std::string::npos, flag.heading != Heading::hidden) << name;
}

TEST(Help, SaysWhatAValueMayBeAndWhatCountsWithoutIt) {
  std::string text;  // with line breaks removed
  std::stringstream lines(help_text());
  for (std::string line; std::getline(lines, line);)
    text += line.starts_with("        ") ? line.substr(7) : "\n" + line;
  for (const char* part : {
           "-np N, --num-proc N, --np N ",
           "whole number from 1 to 65536",
           "--log-level {trace,debug,info,warning,error,fatal} ",
           "Default: warning.",
           "One of auto, direct, ring, ",
           "--fusion-threshold-mb MIB ",
           "Default: 128.",
           "--cycle-time-ms MS ",
           "--start-timeout SECONDS ",
           "--blacklist-cooldown-range LOW HIGH ",
           "  --autotune\n  --no-autotune ",
           "Default: --no-autotune.",
           "Default: --stall-check.",
       })
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Help, FitsATerminalAndShowsNoInternals) {
  std::stringstream lines(help_text());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* inside : {"TEXT", "{0}", "{1}", "--caller", "--tell-start", "--parse-args"})
    EXPECT_THAT(help_text(), Not(HasSubstr(inside)));
}

TEST(Flags, AreEachSpelledOnce) {
  for (const Flag& flag : flags())
    for (const std::string_view name : items(flag.names)) EXPECT_EQ(find_flag(name), &flag) << name;
}

TEST(Flags, ThatTakeAValueSayWhatItIs) {
  for (const Flag& flag : flags()) {
    const bool own = flag.knob == nullptr && flag.heading != Heading::hidden;
    if (own) {
      EXPECT_EQ(flag.value.empty(), flag.value_count == 0) << flag.names;
    }
    EXPECT_EQ(flag.kind == FlagKind::toggle, flag.value_count == 0) << flag.names;
    EXPECT_NE(flag.take == nullptr, flag.knob == nullptr) << flag.names;
  }
}

}  // namespace
}  // namespace hvd::launcher
