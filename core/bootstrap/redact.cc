#include "core/bootstrap/redact.h"

#include <algorithm>
#include <cctype>

namespace hvd {
namespace {

constexpr std::string_view kHidden = "<hidden>";
constexpr std::string_view kValueField = "value=";
constexpr size_t kHalfAKey = 32;  // hex digits

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_hex_digit(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

size_t length_while(std::string_view text, bool (*holds)(char)) {
  return static_cast<size_t>(std::ranges::find_if_not(text, holds) - text.begin());
}

}  // namespace

std::string redacted(std::string_view line) {
  std::string shown;
  while (!line.empty()) {
    size_t taken = length_while(line, is_hex_digit);
    if (line.starts_with(kValueField)) {
      taken = length_while(line, [](char c) { return !is_blank(c); });
      shown += kValueField;
      shown += kHidden;
    } else if (taken >= kHalfAKey) {
      shown += kHidden;
    } else {
      taken = std::max<size_t>(taken, 1);
      shown += line.substr(0, taken);
    }
    line.remove_prefix(taken);
  }
  return shown;
}

}  // namespace hvd
