// Spans of bytes, and Writer and Reader, which serialize messages. The format is little-endian and
// unaligned; docs/wire.md lists every message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hvd {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

inline constexpr size_t KiB = size_t{1} << 10;
inline constexpr size_t MiB = size_t{1} << 20;
inline constexpr size_t GiB = size_t{1} << 30;

/// Size of a cache line on all supported CPUs.
inline constexpr size_t kCacheLine = 64;

inline ConstBytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Appends values to a message.
class Writer {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void put(T value) { append(&value, sizeof(T)); }
  /// Unsigned LEB128: values below 128, the common case, take one byte.
  void put_count(uint64_t value);
  void put_text(std::string_view text);
  void put_bytes(ConstBytes bytes) { append(bytes.data(), bytes.size()); }

  size_t size() const { return out_.size(); }
  ByteVector take() { return std::move(out_); }

 private:
  // Not inline: if GCC 12 knows the vector's size, it warns of overflows that cannot happen.
  void append(const void* data, size_t bytes);

  ByteVector out_;
};

/// Reads values from an untrusted message. Throws Error{internal} when reading past the end or when
/// a count exceeds its limit; the Reader is unusable afterwards.
class Reader {
 public:
  explicit Reader(ConstBytes bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// Reads an enum with values 0 to `last`.
  template <class T>
  requires std::is_enum_v<T> T get_enum(T last) {
    const auto value = get<std::underlying_type_t<T>>();
    if (value < 0 || value > static_cast<std::underlying_type_t<T>>(last)) malformed("enum");
    return static_cast<T>(value);
  }
  bool get_bool() { return get<uint8_t>() != 0; }
  uint64_t get_count(uint64_t limit);
  std::string get_text(size_t limit);
  ConstBytes take(size_t bytes);
  ConstBytes rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }
  /// Throws Error{internal} unless all bytes have been read.
  void finish() const;
  [[noreturn]] static void malformed(const char* what);

 private:
  ConstBytes rest_;
};

}  // namespace hvd
