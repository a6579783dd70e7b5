#include "core/bootstrap/root_address.h"

#include <fmt/core.h>

#include <charconv>
#include <sstream>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"

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
       fmt::format("the address received from rank 0 has no {}; check that all ranks use the "
                   "same version of horovod",
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

std::string to_text(const RootAddress& root) {
  std::string text = fmt::format("{},{},{},{}", kMagic, root.port, hex_of(root.key), root.machine);
  for (const std::string& address : root.addresses) {
    if (text.size() + 1 + address.size() > kMaxRendezvousBytes) break;
    text += "," + address;
  }
  return text;
}

RootAddress read_root_address(const std::string& text) {
  std::istringstream parts(text);
  const auto next = [&] {
    std::string part;
    std::getline(parts, part, ',');
    return part;
  };
  if (text.size() > kMaxRendezvousBytes || next() != kMagic) refuse("known form");
  RootAddress root;
  root.port = number_in<uint16_t>(next(), 10, "port");
  root.key = key_in(next());
  root.machine = next();
  while (!parts.eof() && root.addresses.size() < kMaxAddresses) root.addresses.push_back(next());
  return root;
}

}  // namespace hvd
