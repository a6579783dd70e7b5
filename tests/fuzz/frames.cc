// A Channel whose peer is authenticated and sends anything, in portions of any length.
#include <algorithm>

#include "core/transport/channel.h"
#include "core/transport/mem_link.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

constexpr uint32_t kGeneration = 3;

void receive_all(Channel& channel) {
  while (channel.pump()) {
    while (const auto frame = channel.receive()) {
      must(frame->payload.size() <= kMaxFrameBytes, "no frame is longer than the limit");
      must(frame->kind != FrameKind::goodbye, "a goodbye is remembered, not returned");
    }
  }
}

/// The first byte cuts what follows into portions.
void take(ConstBytes bytes) {
  Input input(bytes);
  const size_t portion = size_t{1} + input.byte();
  auto [near, far] = MemLink::make_pair({.first_rank = 0, .second_rank = 1});
  Channel channel(std::move(near), 1, kGeneration);
  accepted([&] {
    while (!input.empty()) {
      far->send_some(input.piece(portion));
      receive_all(channel);
    }
    far.reset();
    receive_all(channel);  // a goodbye, or a loss
  });
}

/// What a real Channel sends.
ByteVector sample(std::byte portion, const std::vector<size_t>& lengths, int lost = kNoRank) {
  auto [near, far] = MemLink::make_pair({.capacity = 1 * MiB});
  Channel channel(std::move(near), 1, kGeneration);
  for (const size_t length : lengths) {
    const FrameKind kind = length == kBeatBytes ? FrameKind::beat
                           : length % 2         ? FrameKind::control
                                                : FrameKind::data;
    channel.send(kind, ByteVector(length));
  }
  lost == kNoRank ? channel.send_goodbye() : channel.give_up(lost);
  ByteVector bytes(1 * MiB);
  bytes.resize(1 + far->receive_some(MutableBytes(bytes).subspan(1)));
  bytes.front() = portion;
  return bytes;
}

std::vector<ByteVector> samples() {
  return {sample(std::byte{255}, {1, 0, 2, 33}), sample(std::byte{0}, {7}),
          sample(std::byte{200}, {5000, 3}), sample(std::byte{30}, {7}, 2)};
}

}  // namespace

const Target frames{"frames", take, samples};

}  // namespace hvd::fuzz
