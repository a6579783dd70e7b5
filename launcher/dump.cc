#include "launcher/dump.h"

#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include "core/base/error.h"
#include "core/transport/process_watch.h"
#include "core/transport/socket.h"
#include "launcher/dump/collect.h"
#include "launcher/dump/gathered.h"
#include "launcher/dump/jobs.h"
#include "launcher/dump/proc.h"
#include "launcher/dump/render.h"
#include "launcher/print.h"

namespace hvd::launcher {
namespace {

/// How long a launcher may take: longer than it waits for the agents of other hosts.
constexpr std::chrono::seconds kLauncherTime{6};

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

/// The number of the file in the launcher with the dump of all hosts. None if it does not answer.
std::optional<int> ask(pid_t launcher) {
  if (state_of(launcher) == kStoppedBySignal) return std::nullopt;
  const TimePoint deadline = std::chrono::steady_clock::now() + kLauncherTime;
  const FileDescriptor socket = try_connect_unix(dump_socket_of(launcher), deadline);
  if (!socket) return std::nullopt;
  const auto peer = peer_at(socket);
  if (!peer || peer->process != launcher || !wait_until_ready(socket.get(), POLLIN, deadline))
    return std::nullopt;
  char text[16] = {};
  if (read(socket.get(), text, sizeof text - 1) <= 0) return std::nullopt;
  int number = -1;
  std::from_chars(text, text + sizeof text, number);
  return number;
}

std::optional<Gathered> gathered_by(pid_t launcher) {
  const auto number = ask(launcher);
  if (!number) return std::nullopt;
  std::ifstream file("/proc/" + std::to_string(launcher) + "/fd/" + std::to_string(*number),
                     std::ios::binary);
  return read_gathered(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// For a launcher that does not answer, because it is stopped for example, or cannot.
Gathered gathered_here(const RunningJob& job) {
  Gathered all;
  for (const pid_t supervisor : job.supervisors)
    for (RankReport& report : collect_below(supervisor, kAnswerTime))
      all.reports.push_back(std::move(report));
  add_unknown_ranks(all.reports);
  const std::string process = std::to_string(job.launcher);
  const std::string why = job.is_horovodrun ? "horovodrun (process " + process + ") does not answer"
                                            : "horovodrun has not started these ranks";
  all.remarks.push_back(why + ": only ranks on this host are shown");
  return all;
}

}  // namespace

int run_dump(const Options& options) {
  const RunningJob job = find_job(process_in(options));
  const auto answer = job.is_horovodrun ? gathered_by(job.launcher) : std::nullopt;
  const Gathered all = answer ? *answer : gathered_here(job);
  return print(options.dump_as_json ? dump_json(all.reports, all.remarks)
                                    : dump_text(all.reports, all.remarks));
}

int run_dump_here(int supervisor, Question question) {
  return print(to_text(collect_below(supervisor, kAnswerTime, question)));
}

}  // namespace hvd::launcher
