#include "core/transport/key_request.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd {
namespace {

TEST(KeyRequest, IsTheNameOfASocket) {
  for (const bool begins : {true, false}) {
    const auto read = key_request_of(to_socket_name({.begins = begins, .rank = 1234567}));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->begins, begins);
    EXPECT_EQ(read->rank, 1234567);
  }
  EXPECT_LT(to_socket_name({.rank = 1 << 24}).size(), 108u);
  EXPECT_NE(to_socket_name({}), to_socket_name({}));
}

TEST(KeyRequest, NamesTheGenerationOfAWorker) {
  EXPECT_FALSE(key_request_of(to_socket_name({.rank = 2}))->generation);
  const auto read = key_request_of(to_socket_name({.rank = 2, .generation = 65535}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->generation, 65535u);
}

TEST(KeyRequest, IsNoOtherName) {
  for (const char* name : {"", "x", "horovod-begins-as-rank-", "horovod-begins-as-rank-x-1",
                           "horovod-begins-as-rank-1", "horovod-begins-as-rank--1-1",
                           "horovod-asks-for-rank-99999999999-1", "horovod-begins-as-rank-1-in--1",
                           "horovod-begins-as-rank-1-in-1"})
    EXPECT_FALSE(key_request_of(name)) << name;
}

TEST(KeyAnswer, BringsTheKeyAndTheGeneration) {
  const KeyAnswer answer{.key = make_job_key(), .generation = 7};
  const KeyAnswer read = read_key_answer(to_bytes(answer));
  EXPECT_EQ(read.key.bytes, answer.key.bytes);
  EXPECT_EQ(read.generation, 7u);
  EXPECT_EQ(read.refusal, "");
}

TEST(KeyAnswer, BringsAReasonOfALimitedLength) {
  EXPECT_EQ(read_key_answer(to_bytes({.refusal = "why"})).refusal, "why");
  const ByteVector bytes = to_bytes({.refusal = std::string(5000, 'x')});
  EXPECT_EQ(bytes.size(), kMaxKeyAnswerBytes);
}

TEST(KeyAnswer, RefusesOtherBytes) {
  const ByteVector good = to_bytes({.key = make_job_key()});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(read_key_answer(ConstBytes(good).first(size)), Error);
  EXPECT_THROW(read_key_answer(ByteVector(good.size())), Error);
  EXPECT_THROW(read_key_answer(ByteVector{std::byte{2}}), Error);
}

}  // namespace
}  // namespace hvd
