#include "core/base/bytes.h"

#include "core/base/error.h"

namespace hvd {

void Writer::append(const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  out_.insert(out_.end(), first, first + bytes);
}

void Writer::put_count(uint64_t value) {
  while (value >= 0x80) {
    put(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  put(static_cast<uint8_t>(value));
}

void Writer::put_text(std::string_view text) {
  put_count(text.size());
  put_bytes(as_bytes(text));
}

uint64_t Reader::get_count(uint64_t limit) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = get<uint8_t>();
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) {
      if (value > limit) malformed("count");
      return value;
    }
  }
  malformed("count");
}

std::string Reader::get_text(size_t limit) {
  const size_t size = get_count(limit);
  return std::string(as_text(take(size)));
}

ConstBytes Reader::take(size_t bytes) {
  if (bytes > rest_.size()) malformed("length");
  const ConstBytes taken = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return taken;
}

void Reader::finish() const {
  if (!rest_.empty()) malformed("trailing bytes");
}

void Reader::malformed(const char* what) {
  fail(Code::internal, std::string("received a malformed message from another rank: ") + what);
}

}  // namespace hvd
