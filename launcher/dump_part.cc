#include "launcher/dump_part.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "launcher/dump/gathered.h"
#include "launcher/dump/render.h"

namespace hvd::launcher {
namespace {

/// In what the stall check of rank 0 logs (core/negotiate/stall.h).
constexpr std::string_view kOfStall = "\nMissing ranks:\n", kOfEnd = "so the job is shut down";

/// Only in an elastic job the report names the worker.
std::optional<WorkerId> worker_of(const RankReport& report, const Assignment& assignment) {
  if (!report.worker.empty()) return worker_from(report.worker);
  if (report.rank < 0 || report.rank >= assignment.size()) return std::nullopt;
  return assignment.worker(report.rank);
}

/// Those that a debugger has stopped (state t) are not counted.
std::vector<WorkerId> stopped_in(const std::vector<RankReport>& reports,
                                 const Assignment& assignment) {
  std::vector<WorkerId> stopped;
  for (const RankReport& report : reports)
    if (const auto worker = worker_of(report, assignment); worker && report.is_stopped_by_signal())
      stopped.push_back(*worker);
  return stopped;
}

/// A file with this text, which another process can read to its end. Empty on failure.
FileDescriptor file_with(const std::string& text) {
  FileDescriptor file(memfd_create("horovod-dump", MFD_CLOEXEC));
  size_t written = 0;
  while (file && written < text.size()) {
    const ssize_t size = pwrite(file.get(), text.data() + written, text.size() - written,
                                static_cast<off_t>(written));
    if (size <= 0) return {};
    written += static_cast<size_t>(size);
  }
  return file;
}

}  // namespace

DumpPart::DumpPart(const Job& job, const Assignment& assignment, Links& links, Output& output)
    : job_(job),
      assignment_(assignment),
      links_(links),
      output_(output),
      listener_(try_listen_unix(dump_socket_of(getpid()))) {}

void DumpPart::take_visitors(TimePoint now) {
  if (!listener_) return;
  for (size_t taken = 0; taken < kMaxVisitors && visitors_.size() < kMaxVisitors; ++taken) {
    Visitor visitor = accept_visitor(listener_);
    if (!visitor.socket) return;
    if (!visitor.is_of_this_user()) continue;
    visitors_.push_back(std::move(visitor));
    want(Question::everything, now);
  }
}

void DumpPart::show(TimePoint now) {
  shows_ = true;
  want(Question::everything, now);
}

/// The report that ends a job has no ranks to ask any more.
void DumpPart::look_for_stall(std::string_view output, TimePoint now) {
  if (output.find(kOfStall) == output.npos || output.find(kOfEnd) != output.npos) return;
  show_cause(now);
}

void DumpPart::show_cause(TimePoint now) {
  shows_cause_ = true;
  want(Question::everything, now);
}

void DumpPart::look_for_stopped(TimePoint now) { want(Question::process_states, now); }

/// All get the one that is being collected, if it answers the same question.
void DumpPart::want(Question question, TimePoint now) {
  if (until_ && question_ == question) return;
  next_ = question;
  if (!until_) begin(now);
}

void DumpPart::begin(TimePoint now) {
  question_ = *std::exchange(next_, std::nullopt);
  until_ = now + kPatience;
  dumps_.clear();
  missing_ = links_.ask_for_dumps(question_);
}

void DumpPart::take(const std::vector<HostDump>& dumps) {
  for (const HostDump& dump : dumps)
    if (missing_.erase(dump.host) > 0) dumps_.push_back(dump);
}

void DumpPart::step(TimePoint now) {
  if (!until_ || (!missing_.empty() && now < *until_)) return;
  until_.reset();
  const Gathered all = gathered();
  if (question_ == Question::everything)
    answer(all);
  else
    stopped_ = stopped_in(all.reports, assignment_);
  if (next_) begin(now);
}

void DumpPart::answer(const Gathered& all) {
  if (std::exchange(shows_, false)) show(dump_text(all.reports, all.remarks));
  if (std::exchange(shows_cause_, false)) show(cause_text(all.reports));
  if (visitors_.empty()) return;
  last_ = file_with(to_text(all));
  const std::string number = std::to_string(last_.get());
  for (const Visitor& visitor : visitors_) answer_shortly(visitor, as_bytes(number));
  visitors_.clear();
}

/// A worker of an elastic job that does not answer may have another rank than at its start.
void DumpPart::place(RankReport& report) const {
  if (report.state || report.worker.empty()) return;
  report.rank = -1;
  for (const AssignedWorker& one : assignment_.workers())
    if (to_text(one.id) == report.worker) report.rank = one.ranks.rank;
}

void DumpPart::show(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    output_.say(line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

/// The ranks of hosts that have not answered in time.
void DumpPart::add_unreached(std::vector<RankReport>& reports) const {
  for (const int host : missing_)
    for (const AssignedWorker& one : assignment_.on_host(host))
      if (one.is_placed())
        reports.push_back({.rank = one.ranks.rank,
                           .host = job_.hosts[static_cast<size_t>(host)].name,
                           .is_reached = false});
}

/// Hosts that have answered have said nothing of these ranks.
void DumpPart::add_ended(const std::vector<int>& silent, std::vector<RankReport>& reports) const {
  std::set<int> known;
  for (const RankReport& report : reports) known.insert(report.rank);
  for (const AssignedWorker& one : assignment_.workers())
    if (one.is_placed() && !known.contains(one.ranks.rank) &&
        std::ranges::find(silent, one.id.host) == silent.end())
      reports.push_back({.rank = one.ranks.rank, .host = job_.host_of(one.id).name});
}

Gathered DumpPart::gathered() const {
  Gathered all;
  add_unreached(all.reports);
  std::vector<int> silent(missing_.begin(), missing_.end());
  for (const HostDump& dump : dumps_) {
    auto reports = reports_in(dump.text);
    if (!reports) silent.push_back(dump.host);
    for (RankReport& report : reports ? *reports : std::vector<RankReport>()) {
      place(report);
      if (report.rank >= 0 || !report.worker.empty()) all.reports.push_back(std::move(report));
    }
  }
  add_ended(silent, all.reports);
  for (const int host : silent)
    all.remarks.push_back(
        fmt::format("{} has not told about its ranks", job_.hosts[static_cast<size_t>(host)].name));
  std::ranges::stable_sort(all.reports, {}, &RankReport::rank);
  return all;
}

}  // namespace hvd::launcher
