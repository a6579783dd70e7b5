#include "core/transport/link_contract.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/transport/mem_link.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

ByteVector numbered(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector out(bytes);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

void send_all(Link& link, ConstBytes bytes) {
  while (!bytes.empty()) bytes = bytes.subspan(link.send_some(bytes));
}

ByteVector receive_all(Link& link, size_t bytes, size_t at_once) {
  ByteVector out(bytes);
  for (size_t done = 0; done < bytes;) {
    const size_t room = std::min(at_once, bytes - done);
    const size_t got = link.receive_some(MutableBytes(out).subspan(done, room));
    EXPECT_LE(got, room);
    done += got;
  }
  return out;
}

/// Receives until an error; returns the error and the data before it.
Error error_of_receiving(Link& link, ByteVector& before) {
  std::byte room[64];
  try {
    for (;;) {
      const size_t got = link.receive_some(room);
      before.insert(before.end(), room, room + got);
    }
  } catch (const Error& error) {
    return error;
  }
}

TEST_P(LinkContract, BytesArriveInTheOrderTheyWereSent) {
  auto pair = GetParam().make();
  for (const size_t bytes : {1u, 2u, 63u, 64u, 65u, 1000u, 4096u}) {
    const auto sent = numbered(bytes, bytes);
    send_all(*pair.first, sent);
    EXPECT_EQ(receive_all(*pair.second, bytes, 100), sent);
    send_all(*pair.second, sent);
    EXPECT_EQ(receive_all(*pair.first, bytes, 7), sent);
  }
}

TEST_P(LinkContract, NothingIsThereBeforeItIsSent) {
  auto pair = GetParam().make();
  std::byte room[8];
  EXPECT_EQ(pair.first->receive_some(room), 0u);
  EXPECT_EQ(pair.second->receive_some(room), 0u);
  send_all(*pair.first, numbered(3, 1));
  EXPECT_EQ(pair.first->receive_some(room), 0u);  // an end does not receive its own data
  receive_all(*pair.second, 3, 8);
  EXPECT_EQ(pair.second->receive_some(room), 0u);
}

TEST_P(LinkContract, ASlowPeerStopsTheSenderAndLosesNothing) {
  auto pair = GetParam().make();
  const auto block = numbered(1000, 3);
  size_t sent = 0;
  const size_t far_more_than_fits = 256 * MiB;
  while (sent < far_more_than_fits) {
    const size_t count = pair.first->send_some(ConstBytes(block).subspan(sent % block.size()));
    if (count == 0) break;
    sent += count;
  }
  ASSERT_LT(sent, far_more_than_fits);
  const auto received = receive_all(*pair.second, sent, 4096);
  for (size_t i = 0; i < sent; ++i) ASSERT_EQ(received[i], block[i % block.size()]) << i;
  EXPECT_GT(pair.first->send_some(block), 0u);  // there is room again
}

TEST_P(LinkContract, LargeTransfersGoBothWaysAtOnce) {
  auto pair = GetParam().make();
  constexpr size_t bytes = 8 * MiB + 13;
  const auto there = numbered(bytes, 4);
  const auto back = numbered(bytes, 5);
  const auto exchange = [](Link& link, const ByteVector& mine) {
    ByteVector theirs(bytes);
    for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
      const size_t before = sent + got;
      if (sent < bytes) sent += link.send_some(ConstBytes(mine).subspan(sent));
      if (got < bytes) got += link.receive_some(MutableBytes(theirs).subspan(got));
      if (sent + got == before) std::this_thread::yield();
    }
    return theirs;
  };
  ByteVector at_second;
  std::thread second([&] { at_second = exchange(*pair.second, back); });
  const auto at_first = exchange(*pair.first, there);
  second.join();
  EXPECT_EQ(at_first, back);
  EXPECT_EQ(at_second, there);
}

TEST_P(LinkContract, WhatWasSentBeforeTheEndIsReadBeforeTheLossIsTold) {
  auto pair = GetParam().make();
  const auto last_words = numbered(300, 6);
  send_all(*pair.second, last_words);
  pair.second.reset();
  EXPECT_LE(pair.first->send_some(last_words), last_words.size());  // no signal and no error
  pair.first->send_some(last_words);
  ByteVector before;
  const Error error = error_of_receiving(*pair.first, before);
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(before, last_words);
}

TEST_P(LinkContract, TheLossIsToldEveryTime) {
  auto pair = GetParam().make();
  pair.first.reset();
  for (int i = 0; i < 3; ++i) {
    ByteVector before;
    const Error error = error_of_receiving(*pair.second, before);
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 0);
    EXPECT_TRUE(before.empty());
  }
}

LinkPair unix_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {std::make_unique<TcpLink>(FileDescriptor(fds[0]), 1),
          std::make_unique<TcpLink>(FileDescriptor(fds[1]), 0), nullptr};
}

LinkPair tcp_pair() {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), generic, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
  FileDescriptor dialed(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(dialed.get(), generic, size), 0);
  FileDescriptor accepted(::accept(listener.get(), nullptr, nullptr));
  return {std::make_unique<TcpLink>(std::move(dialed), 1),
          std::make_unique<TcpLink>(std::move(accepted), 0), nullptr};
}

LinkPair mem_pair(const MemLinkOptions& options) {
  auto [first, second] = MemLink::make_pair(options);
  return {std::move(first), std::move(second), nullptr};
}

INSTANTIATE_TEST_SUITE_P(
    Transport, LinkContract,
    testing::Values(LinkKind{"unix", unix_pair}, LinkKind{"tcp", tcp_pair},
                    LinkKind{"mem", [] { return mem_pair({}); }},
                    LinkKind{"mem_split",
                             [] { return mem_pair({.capacity = 4096, .split_seed = 7}); }}),
    name_of_kind);

}  // namespace
}  // namespace hvd
