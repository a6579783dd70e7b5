// An EncryptedLink that gets anything, or what a real one has sent with changes on the way: what it
// delivers is the beginning of what was sent.
#include <algorithm>
#include <array>
#include <string>

#include "core/transport/encrypted_link.h"
#include "core/transport/mem_link.h"
#include "core/transport/session_keys_testing.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

enum class Way : uint8_t { invented, changed };
enum class Change : uint8_t { flip, remove, insert, repeat };
constexpr uint8_t kWays = 2, kChanges = 4;
constexpr size_t kMostBytes = 4 * KiB;  ///< repeats would make them many times as long
constexpr Cipher kCipher = Cipher::chacha20_poly1305;  // every CPU has it

std::string sent() { return std::string(40, 'a') + std::string(300, 'b') + "c"; }

/// Three records, as they are on the wire.
ByteVector sealed() {
  auto [near, far] = MemLink::make_pair({});
  EncryptedLink link(std::move(near), session_keys(kCipher).first, 1);
  const std::string text = sent();
  for (const std::string& part : {text.substr(0, 40), text.substr(40, 300), text.substr(340)})
    link.send_some(as_bytes(part));
  ByteVector bytes(4 * KiB);
  bytes.resize(far->receive_some(bytes));
  return bytes;
}

void change(ByteVector& bytes, Input& input) {
  const auto how = static_cast<Change>(input.byte() % kChanges);
  const size_t place = (size_t{input.byte()} * 256 + input.byte()) % bytes.size();
  const auto at = bytes.begin() + static_cast<ptrdiff_t>(place);
  const auto value = static_cast<std::byte>(input.byte());
  if (how == Change::flip) *at ^= value;
  if (how == Change::remove && bytes.size() > 1) bytes.erase(at);
  if (how == Change::insert) bytes.insert(at, value);
  if (how == Change::repeat && bytes.size() < kMostBytes) {
    const ByteVector again(bytes.begin(), at);
    bytes.insert(at, again.begin(), again.end());
  }
}

/// What arrives of `bytes`, in portions.
std::string received(ConstBytes bytes, size_t portion) {
  auto [near, far] = MemLink::make_pair({});
  EncryptedLink link(std::move(near), session_keys(kCipher).second, 0);
  std::string all;
  accepted([&] {
    std::array<std::byte, 77> room;
    while (!bytes.empty()) {
      bytes = bytes.subspan(far->send_some(bytes.first(std::min(portion, bytes.size()))));
      while (const size_t count = link.receive_some(room))
        all += as_text(ConstBytes(room).first(count));
    }
  });
  return all;
}

void take(ConstBytes bytes) {
  Input input(bytes);
  const auto way = static_cast<Way>(input.byte() % kWays);
  const size_t portion = size_t{1} + input.byte();
  if (way == Way::invented)
    return must(received(input.rest(), portion).empty(), "nobody invents a record");
  ByteVector wire = sealed();
  while (!input.empty()) change(wire, input);
  must(sent().starts_with(received(wire, portion)), "only what was sent arrives, in its order");
}

std::vector<ByteVector> samples() {
  const auto with = [](Way way, ByteVector rest) {
    rest.insert(rest.begin(), {static_cast<std::byte>(way), std::byte{99}});
    return rest;
  };
  return {with(Way::changed, {}), with(Way::invented, ByteVector(40, std::byte{3})),
          with(Way::changed, {std::byte{3}, std::byte{0}, std::byte{60}, std::byte{0}})};
}

}  // namespace

const Target records{"records", take, samples};

}  // namespace hvd::fuzz
