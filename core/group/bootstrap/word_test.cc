#include "core/group/bootstrap/word.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/group/bootstrap/introduction.h"

namespace hvd {
namespace {

TEST(Word, ComesBackAsItWas) {
  for (const std::vector<std::string>& addresses :
       {std::vector<std::string>{}, {"10.0.0.7"}, {"10.0.0.7", "fd00::7", "192.168.1.1"}}) {
    const Word word{4321, make_job_key(), "00ff", addresses};
    const std::string text = to_text(word);
    EXPECT_EQ(text.find_first_of(" =\n;"), std::string::npos) << "PMI's text would be cut here";
    const Word read = read_word(text);
    EXPECT_EQ(read.port, word.port);
    EXPECT_EQ(read.key.bytes, word.key.bytes);
    EXPECT_EQ(read.machine, word.machine);
    EXPECT_EQ(read.addresses, word.addresses);
  }
}

TEST(Word, OfMoreAddressesThanThereIsRoomForTheBestRemain) {
  Word word{1, make_job_key(), "00ff", {}};
  for (int i = 0; i < 100; ++i) word.addresses.push_back("10.100.200." + std::to_string(i));
  const std::string text = to_text(word);
  EXPECT_LE(text.size(), kMaxIntroductionBytes);
  const Word read = read_word(text);
  ASSERT_GT(read.addresses.size(), 10u);
  for (size_t i = 0; i < read.addresses.size(); ++i)
    EXPECT_EQ(read.addresses[i], word.addresses[i]);
}

TEST(Word, WhatIsNoneIsRefusedWithoutBeingShown) {
  const std::string good = to_text({1, make_job_key(), "m", {"a"}});
  const std::string key = good.substr(good.find(',', 9) + 1, 64);
  for (const std::string& text :
       {std::string(), std::string("horovod2,1"), std::string("horovod1"),
        std::string("horovod1,99999,") + key, std::string("horovod1,1,") + key.substr(1),
        std::string("horovod1,1,x") + key.substr(1) + ",m", good + std::string(2000, 'x')}) {
    try {
      read_word(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(key.substr(1, 20)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hvd
