#include "launcher/options/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/options/flags.h"

namespace hvd::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Hints, KnowTheFlagsOfOtherLaunchers) {
  const std::pair<const char*, const char*> cases[] = {
      {"-n", "-np N"},
      {"--nproc_per_node=2", "-np N"},
      {"--nproc-per-node", "-np N"},
      {"--num_processes=2", "-np N"},
      {"--ntasks=2", "-np N"},
      {"-np2", "did you mean '-np 2'?"},
      {"-n2", "did you mean '-np 2'?"},
      {"--np2", "did you mean '-np 2'?"},
      {"-np:2", "did you mean '-np 2'?"},
      {"-x", "FOO=1 horovodrun"},
      {"-genv", "FOO=1 horovodrun"},
      {"--export=ALL", "FOO=1 horovodrun"},
      {"--bind-to", "--binding-args none"},
      {"-map-by", "--binding-args none"},
      {"--mca", "--mpi-args"},
      {"--allow-run-as-root", "--mpi-args"},
      {"--host", "-H node1:4,node2:4"},
      {"-Hosts", "-H node1:4,node2:4"},
      {"-machinefile", "--hostfile FILE"},
      {"-f", "--hostfile FILE"},
      {"--ppn", "-H node1:4,node2:4"},
      {"--nnodes=2", "called once for all hosts"},
      {"--master_addr=a", "called once for all hosts"},
      {"-m", "python -m MODULE"},
      {"--tag-output", "begin with their rank by default"},
      {"-wdir", "with cd first"},
      {"--log_dir", "--output-filename FOLDER"},
  };
  for (const auto& [typed, hint] : cases)
    EXPECT_THAT(hint_for_flag(typed), HasSubstr(hint)) << typed;
}

TEST(Hints, NameTheFlagThatIsNearlyTheOneTyped) {
  const std::pair<const char*, const char*> cases[] = {
      {"--verbos", "did you mean '--verbose'?"},
      {"-verbose", "did you mean '--verbose'?"},
      {"--num_proc", "did you mean '--num-proc'?"},
      {"-NP", "did you mean '-np'?"},
      {"--VERBOSE", "did you mean '--verbose'?"},
      {"--hostfiles", "did you mean '--hostfile'?"},
      {"--fusion", "did you mean '--fusion-threshold-mb'?"},
      {"--fusion_threshold_mb=4", "did you mean '--fusion-threshold-mb'?"},
  };
  for (const auto& [typed, hint] : cases)
    EXPECT_THAT(hint_for_flag(typed), HasSubstr(hint)) << typed;
  for (const char* typed : {"--quux", "-z", "--no-such-flag"}) EXPECT_EQ(hint_for_flag(typed), "");
}

TEST(Hints, AreForNoFlagOfOurs) {
  for (const Flag& flag : flags())
    for (const std::string_view name : items(flag.names))
      if (flag.heading != Heading::hidden) {
        EXPECT_THAT(hint_for_flag(name), StartsWith("; did you mean '")) << name;
      }
}

TEST(Hints, AreForWordsInThePlaceOfTheCommand) {
  EXPECT_EQ(hint_for_command("train.py", true), "; did you mean 'python train.py'?");
  EXPECT_EQ(hint_for_command("train.py", false), "");
  EXPECT_EQ(hint_for_command("./run.sh", true), "; did you mean 'bash ./run.sh'?");
  EXPECT_EQ(hint_for_command("2", false), "; did you mean '-np 2'?");
  EXPECT_THAT(hint_for_command("FOO=1", false), HasSubstr("FOO=1 horovodrun"));
  EXPECT_THAT(hint_for_command("b:2", false), HasSubstr("-H node1:2,node2:2"));
  EXPECT_THAT(hint_for_command("python train.py", false), HasSubstr("remove the quotes"));
  EXPECT_EQ(hint_for_command("python3.99", false), "; did you mean 'python3'?");
  EXPECT_EQ(hint_for_command("prog", true), "");
}

TEST(Hints, TellWhereTheNumberOfProcessesWent) {
  EXPECT_THAT(without_number({"python", "t.py", "-np", "2"}),
              HasSubstr("the '-np' after 'python' is an argument of the command"));
  EXPECT_THAT(without_number({"4", "python"}), HasSubstr("did you mean '-np 4'?"));
  EXPECT_THAT(without_number({"python", "t.py"}), HasSubstr("horovodrun -np 2 python t.py"));
}

}  // namespace
}  // namespace hvd::launcher
