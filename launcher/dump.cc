#include "launcher/dump.h"

#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "launcher/dump/collect.h"
#include "launcher/dump/jobs.h"
#include "launcher/dump/render.h"
#include "launcher/print.h"

namespace hvd::launcher {
namespace {

std::optional<pid_t> process_in(const Options& options) {
  if (options.command.empty()) return std::nullopt;
  const std::string& text = options.command.front();
  pid_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (options.command.size() > 1 || parsed.ec != std::errc{} || *parsed.ptr != '\0')
    fail(Code::invalid_argument,
         "--dump takes at most one argument, the process id of a horovodrun; found '" + text + "'");
  return number;
}

}  // namespace

int run_dump(const Options& options) {
  const RunningJob job = find_job(process_in(options));
  std::vector<RankReport> reports;
  for (const pid_t supervisor : job.supervisors)
    for (RankReport& report : collect_below(supervisor, kAnswerTime))
      reports.push_back(std::move(report));
  return print(options.dump_as_json ? dump_json(reports, {}) : dump_text(reports, {}));
}

}  // namespace hvd::launcher
