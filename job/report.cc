#include "job/report.h"

#include <fmt/core.h>

#include <cstring>

namespace hvd::job {
namespace {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "unknown" : fmt::format("SIG{}", name);
}

std::vector<std::string> report_first(const Announce& announce,
                                      const std::vector<std::string>& tail) {
  std::string line = fmt::format("rank {} {}", announce.rank, describe(announce.status));
  if (announce.cause >= 0)
    line +=
        fmt::format("; it says that rank {} is the cause ({})", announce.cause, announce.reason);
  line += tail.empty() ? "; it wrote nothing" : "; its last lines:";
  std::vector<std::string> lines{std::move(line)};
  for (const std::string& said : tail) lines.push_back("    " + said);
  return lines;
}

}  // namespace

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exited with code {}", status.code);
  return fmt::format("was killed by signal {} ({})", status.signal, signal_name(status.signal));
}

std::vector<std::string> report(const Announce& announce, const std::vector<std::string>& tail) {
  const std::string what = fmt::format("rank {} {}", announce.rank, describe(announce.status));
  switch (announce.kind) {
    case Announce::Kind::first:
      return report_first(announce, tail);
    case Announce::Kind::consequence:
      return {fmt::format("{} as a consequence of rank {}", what, announce.cause)};
    case Announce::Kind::stopped:
      return {fmt::format("rank {} was stopped ({})", announce.rank,
                          signal_name(announce.status.signal))};
    case Announce::Kind::later:
      return {what + " after that"};
  }
  return {};
}

}  // namespace hvd::job
