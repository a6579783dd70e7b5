#include "job/driver/report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstring>

namespace hvd::job {
namespace {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "unknown" : fmt::format("SIG{}", name);
}

std::vector<std::string> report_first(const Announce& announce, std::string line,
                                      const std::vector<std::string>& tail) {
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

std::vector<std::string> report(const Announce& announce, const std::vector<std::string>& tail,
                                const std::string& host) {
  const std::string who =
      fmt::format("rank {}{}{}", announce.rank, host.empty() ? "" : " on ", host);
  const std::string what = fmt::format("{} {}", who, describe(announce.status));
  switch (announce.kind) {
    case Announce::Kind::first:
      return report_first(announce, what, tail);
    case Announce::Kind::consequence:
      return {fmt::format("{} as a consequence of rank {}", what, announce.cause)};
    case Announce::Kind::stopped:
      return {fmt::format("{} was stopped ({})", who, signal_name(announce.status.signal))};
    case Announce::Kind::later:
      return {what + " after that"};
  }
  return {};
}

std::string report(const AnnounceHost& announce, const std::string& host) {
  if (announce.ranks.empty())
    return fmt::format("{} was lost after its ranks had ended: {}", host, announce.why);
  const bool one = announce.ranks.size() == 1;
  return fmt::format("{} was lost with rank{} {}: {}", host, one ? "" : "s",
                     fmt::join(announce.ranks, ", "), announce.why);
}

}  // namespace hvd::job
