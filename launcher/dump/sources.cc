#include "launcher/dump/sources.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "launcher/dump/aside.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxSourceBytes = 500;

struct Place {
  Frame* frame = nullptr;
  std::string path{};
};

void add_places(std::vector<Frame>& stack, int process, std::vector<Place>& places) {
  const std::string folder = "/proc/" + std::to_string(process) + "/cwd/";
  for (Frame& frame : stack)
    if (!frame.file.starts_with('<'))
      places.push_back({&frame, frame.file.starts_with('/') ? frame.file : folder + frame.file});
}

std::string source_line(const std::string& path, int number) {
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < number; ++i)
    if (!std::getline(file, line)) return "";
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : line.substr(begin, kMaxSourceBytes);
}

/// One line per place.
void write_sources(const std::vector<Place>& places) {
  for (const Place& place : places) {
    const std::string line = source_line(place.path, place.frame->line) + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return;
  }
}

}  // namespace

void add_sources(std::vector<RankReport>& reports, TimePoint deadline) {
  std::vector<Place> places;
  for (RankReport& report : reports) {
    add_places(report.stack, report.process, places);
    add_places(report.gil_holder, report.process, places);
  }
  if (places.empty()) return;
  const std::string text = output_of([&] { write_sources(places); }, deadline);
  std::string_view rest = text;
  for (const Place& place : places) {
    const size_t end = rest.find('\n');
    if (end == rest.npos) return;
    place.frame->source = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
}

}  // namespace hvd::launcher
