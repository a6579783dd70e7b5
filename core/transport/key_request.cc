#include "core/transport/key_request.h"

#include <fmt/core.h>

#include <charconv>

#include "core/base/error.h"

namespace hvd {
namespace {

constexpr std::string_view kBegins = "horovod-begins-as-rank-";
constexpr std::string_view kAsks = "horovod-asks-for-rank-";
constexpr std::string_view kIn = "in-";
enum class Verdict : uint8_t { given = 1, refused = 2 };

/// Removes `front` if `text` starts with it.
bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

/// Removes a number and the dash behind it from the front of `text`.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop == end || *stop != '-' || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
  return number;
}

}  // namespace

std::string to_socket_name(const KeyRequest& request) {
  const std::string place =
      request.generation ? fmt::format("{}{}-", kIn, *request.generation) : std::string();
  return fmt::format("{}{}-{}{}", request.begins ? kBegins : kAsks, request.rank, place,
                     random_digits());
}

std::optional<KeyRequest> key_request_of(std::string_view socket_name) {
  KeyRequest request{.begins = take(socket_name, kBegins)};
  if (!request.begins && !take(socket_name, kAsks)) return std::nullopt;
  const auto rank = take_number<int>(socket_name);
  if (!rank) return std::nullopt;
  request.rank = *rank;
  if (!take(socket_name, kIn)) return request;
  request.generation = take_number<uint32_t>(socket_name);
  if (!request.generation) return std::nullopt;
  return request;
}

ByteVector to_bytes(const KeyAnswer& answer) {
  Writer writer;
  if (answer.refusal.empty()) {
    writer.put(Verdict::given);
    writer.put_bytes(answer.key.bytes);
    writer.put(answer.generation);
  } else {
    writer.put(Verdict::refused);
    writer.put_bytes(
        as_bytes(answer.refusal)
            .first(std::min(answer.refusal.size(), kMaxKeyAnswerBytes - sizeof(Verdict))));
  }
  return writer.take();
}

KeyAnswer read_key_answer(ConstBytes bytes) {
  KeyAnswer answer;
  constexpr size_t kGiven = sizeof(Verdict) + sizeof(answer.key.bytes) + sizeof(answer.generation);
  const auto verdict = bytes.empty() ? Verdict{} : static_cast<Verdict>(bytes[0]);
  if (verdict == Verdict::refused && bytes.size() > sizeof(Verdict)) {
    answer.refusal = as_text(bytes.subspan(sizeof(Verdict)));
    return answer;
  }
  if (verdict != Verdict::given || bytes.size() != kGiven)
    fail(Code::internal, fmt::format("an answer of {} bytes is not the job's key", bytes.size()));
  std::memcpy(answer.key.bytes.data(), bytes.data() + sizeof(Verdict), answer.key.bytes.size());
  std::memcpy(&answer.generation, bytes.data() + kGiven - sizeof(answer.generation),
              sizeof(answer.generation));
  return answer;
}

}  // namespace hvd
