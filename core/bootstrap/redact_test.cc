#include "core/bootstrap/redact.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

const std::string key(64, 'a');

TEST(Redact, HidesTheValueOfARequest) {
  EXPECT_EQ(redacted("cmd=put kvsname=k key=horovod-1-all value=horovod1,47," + key + ",m"),
            "cmd=put kvsname=k key=horovod-1-all value=<hidden>");
}

TEST(Redact, ShowsWhatComesBehindAValue) {
  EXPECT_EQ(redacted("rc=0 value=x cmd=get_result"), "rc=0 value=<hidden> cmd=get_result");
}

TEST(Redact, HidesAKeyUnderAnyName) {
  EXPECT_EQ(redacted("msg=horovod1,47," + key + ",0123456789abcdef"),
            "msg=horovod1,47,<hidden>,0123456789abcdef");
  EXPECT_EQ(redacted(key.substr(0, 40)), "<hidden>");
}

TEST(Redact, LeavesOtherTextsAsTheyAre) {
  for (const char* text : {"", "cmd=barrier_in", "cmd=get_result rc=-1 msg=key_not_found",
                           "kvs_7_0123456789abcdef", "\n\xff "})
    EXPECT_EQ(redacted(text), text);
}

}  // namespace
}  // namespace hvd
