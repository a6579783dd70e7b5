#include "launcher/stream/lines.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

/// Capacity that each stream of each rank keeps for its next bytes.
constexpr size_t kKeptBytes = 4096;

/// Returns how many of the first `limit` bytes form whole UTF-8 characters; all bytes if the text
/// is not UTF-8.
size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;               // ASCII
    if ((byte & 0xC0) == 0x80) continue;  // continuation byte
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    if (length > back) return text.size() - back;
    break;
  }
  return text.size();
}

}  // namespace

void LineCutter::add(std::string_view bytes, std::vector<Piece>& pieces) {
  rest_ += bytes;
  size_t begin = 0;
  size_t end = rest_.find_first_of("\r\n", scanned_);
  // Whether
  //  follows \r is known only after the next byte.
  const auto decided = [&] { return rest_[end] == '\n' || end + 1 < rest_.size(); };
  while (end != std::string::npos && decided()) {
    const bool pair = rest_[end] == '\r' && rest_[end + 1] == '\n';
    const size_t next = end + (pair ? 2 : 1);
    pieces.push_back({rest_.substr(begin, next - begin), !begun_, true});
    begun_ = false;
    begin = next;
    end = rest_.find_first_of("\r\n", begin);
  }
  rest_.erase(0, begin);
  if (rest_.capacity() > kKeptBytes + rest_.size()) rest_.shrink_to_fit();
  scanned_ = end == std::string::npos ? rest_.size() : end - begin;
  if (scanned_ >= kLimit) emit(whole_characters(rest_), false, pieces);
}

void LineCutter::flush_silent(std::vector<Piece>& pieces) {
  if (rest_.empty()) return;
  const bool ends = rest_.back() == '\r';
  const size_t whole = ends ? rest_.size() : whole_characters(rest_);
  if (whole > 0) emit(whole, ends, pieces);
}

void LineCutter::finish(std::vector<Piece>& pieces) {
  if (rest_.empty() && !begun_) return;
  if (rest_.empty() || rest_.back() != '\r') rest_ += '\n';
  emit(rest_.size(), true, pieces);
}

void LineCutter::emit(size_t bytes, bool ends, std::vector<Piece>& pieces) {
  pieces.push_back({rest_.substr(0, bytes), !begun_, ends});
  rest_.erase(0, bytes);
  scanned_ = 0;
  begun_ = !ends;
}

void ConsoleLines::write(int source, const Piece& piece, std::string_view prefix,
                         std::string& out) {
  const bool continues = open_ == source && !piece.begins;
  if (open_ && !continues) out += '\n';
  if (!continues) out += prefix;
  out += piece.text;
  open_ = piece.ends ? std::nullopt : std::optional(source);
}

void Tail::add(const Piece& piece) {
  std::string_view text = piece.text;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  if (!open_ || lines_.empty()) lines_.emplace_back();
  std::string& line = lines_.back();
  line += text.substr(0, kLineBytes - std::min(kLineBytes, line.size()));
  open_ = !piece.ends;
  if (lines_.size() > kLines) lines_.pop_front();
}

std::vector<std::string> Tail::lines() const { return {lines_.begin(), lines_.end()}; }

}  // namespace hvd::launcher
