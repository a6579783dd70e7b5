#include "core/group/bootstrap/word.h"

#include <fmt/core.h>

#include <charconv>
#include <sstream>

#include "core/base/error.h"
#include "core/group/bootstrap/introduction.h"

namespace hvd {
namespace {

constexpr const char* kMagic = "horovod1";
constexpr size_t kMaxAddresses = 64;

std::string hex_of(const JobKey& key) {
  std::string text;
  for (const std::byte byte : key.bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

[[noreturn]] void refuse(const char* what) {
  fail(Code::internal,
       fmt::format("what came as the introduction of rank 0 has no {}; are all ranks of the same "
                   "version of horovod?",
                   what));
}

template <class Number>
Number number_in(const std::string& text, int base, const char* what) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end || text.empty()) refuse(what);
  return value;
}

JobKey key_in(const std::string& text) {
  JobKey key;
  if (text.size() != 2 * key.bytes.size()) refuse("key");
  for (size_t i = 0; i < key.bytes.size(); ++i)
    key.bytes[i] = std::byte{number_in<uint8_t>(text.substr(2 * i, 2), 16, "key")};
  return key;
}

}  // namespace

std::string to_text(const Word& word) {
  std::string text = fmt::format("{},{},{},{}", kMagic, word.port, hex_of(word.key), word.machine);
  for (const std::string& address : word.addresses) {
    if (text.size() + 1 + address.size() > kMaxIntroductionBytes) break;
    text += "," + address;
  }
  return text;
}

Word read_word(const std::string& text) {
  std::istringstream parts(text);
  const auto next = [&] {
    std::string part;
    std::getline(parts, part, ',');
    return part;
  };
  if (text.size() > kMaxIntroductionBytes || next() != kMagic) refuse("known form");
  Word word;
  word.port = number_in<uint16_t>(next(), 10, "port");
  word.key = key_in(next());
  word.machine = next();
  while (!parts.eof() && word.addresses.size() < kMaxAddresses) word.addresses.push_back(next());
  return word;
}

}  // namespace hvd
