#include "core/observe/timeline.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/assert.h"
#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace hvd {
namespace {

constexpr std::string_view kOpening = "[";
constexpr std::string_view kClosing = "\n]";

std::string json_text(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);  // names are any bytes
}

std::string metadata(std::string_view name, int pid, const std::string& arguments) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"args":{{{}}}}})", name, pid, arguments);
}

// ---- words
// ------------------------------------------------------------------------------------------------

std::string_view word_for(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::allreduce:
      return operation.op == ReduceOp::adasum ? "ADASUM" : "ALLREDUCE";
    case OperationKind::allgather:
      return "ALLGATHER";
    case OperationKind::broadcast:
      return "BROADCAST";
    case OperationKind::alltoall:
      return "ALLTOALL";
    case OperationKind::reducescatter:
      return "REDUCESCATTER";
    case OperationKind::barrier:
      return "BARRIER";
    case OperationKind::join:
      return "JOIN";
    case OperationKind::message:
      return "MESSAGE";
    case OperationKind::add_process_set:
      return "ADD_PROCESS_SET";
    case OperationKind::remove_process_set:
      return "REMOVE_PROCESS_SET";
  }
  HVD_ASSERT(false);
}

// Users of traces expect the prefix GLOO for the host data plane.
std::string_view prefix_of(Mover mover) {
  switch (mover) {
    case Mover::host:
      return "GLOO";
    case Mover::mpi:
      return "MPI";
    case Mover::nccl:
      return "NCCL";
    case Mover::hierarchical:
      return "NCCL_HIERARCHICAL";
    case Mover::staged:
      return "STAGED";
    case Mover::ipc:
      return "IPC";
  }
  HVD_ASSERT(false);
}

// MPI never performs Adasum.
std::string word_for_moving(const Operation& operation, Mover mover) {
  std::string_view what = word_for(operation);
  if (operation.kind == OperationKind::broadcast) what = "BCAST";
  if (operation.kind == OperationKind::allreduce && operation.op == ReduceOp::adasum)
    what = "ADASUM_ALLREDUCE";
  return fmt::format("{}_{}", prefix_of(mover), what);
}

std::string word_for_activity(const Event& event) {
  switch (event.activity) {
    case Event::Activity::queued:
      return "QUEUE";
    case Event::Activity::meeting:
      return "INIT_NCCL";
    case Event::Activity::sizes:
      return "WAIT_FOR_DATA";
    case Event::Activity::outputs:
      return "ALLOCATE_OUTPUT";
    case Event::Activity::data:
      return word_for_moving(event.operation, event.route.mover);
  }
  HVD_ASSERT(false);
}

// MPI and NCCL do not report how they move data.
std::string words_for_route(const Route& route) {
  if (route.mover != Mover::host) return {};
  std::string words = fmt::format(R"(,"way":"{}")", name_of(route.way));
  if (route.algorithm != Algorithm::none)
    words += fmt::format(R"(,"algorithm":"{}")", name_of(route.algorithm));
  return words;
}

// ---- arguments
// --------------------------------------------------------------------------------------------

std::string facts_of_moving(const Event& event) {
  if (event.activity != Event::Activity::data) return {};
  return fmt::format(R"(,"args":{{"batch":{},"bytes":{}{}}})", event.batch, event.bytes,
                     words_for_route(event.route));
}

std::string facts_of(const Event& event) {
  std::string shapes;
  for (const Shape& shape : event.shapes) shapes += (shapes.empty() ? "" : ", ") + to_text(shape);
  return fmt::format(R"(,"args":{{"dtype":"{}","shape":"{}"}})", name_of(event.operation.dtype),
                     shapes);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  fail(Code::invalid_argument, fmt::format("the timeline cannot be written to \"{}\": {}; name a "
                                           "file in a folder that exists and can be written to",
                                           path, why));
}

FileDescriptor open_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file) refuse(path, errno_text(errno));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    refuse(path, "it is not a regular file");
  return file;
}

}  // namespace

std::string timeline_path(const std::string& path, int rank) {
  if (rank == 0) return path;
  const std::filesystem::path given(path);
  std::filesystem::path name = given.stem();
  name += fmt::format(".rank{}", rank);
  name += given.extension();
  return given.parent_path() / name;
}

Timeline::Timeline(std::string path, bool mark_cycles)
    : path_(std::move(path)), mark_cycles_(mark_cycles), file_(open_file(path_)) {}

void Timeline::begin(TimePoint start, std::chrono::microseconds since_epoch) {
  start_ = start;
  lines_ = kOpening;
  // The first lines have no comma before them: they are what the later ones follow.
  lines_ +=
      "\n" + metadata("process_name", 0,
                      fmt::format(R"("start_time_since_epoch_in_micros":{})", since_epoch.count()));
  line(metadata("process_sort_index", 0, R"("sort_index":0)"));
  if (::ftruncate(file_.get(), 0) != 0) return give_up(errno_text(errno));
  write_lines();
}

void Timeline::take(std::span<const Event> events) {
  if (!file_) return;
  for (const Event& event : events) add(event);
  if (!lines_.empty()) write_lines();
}

// ---- events to lines
// -------------------------------------------------------------------------------

int64_t Timeline::microseconds(const Event& event) const {
  return std::chrono::duration_cast<std::chrono::microseconds>(event.time - start_).count();
}

void Timeline::add(const Event& event) {
  switch (event.type) {
    case Event::Type::cycle:
      if (!mark_cycles_) return;
      return line(
          fmt::format(R"({{"ph":"i","name":"CYCLE_START","ts":{},"s":"g"}})", microseconds(event)));
    case Event::Type::lost:
      return line(
          fmt::format(R"({{"ph":"i","name":"EVENTS_LOST","ts":{},"s":"g","args":{{"count":{}}}}})",
                      microseconds(event), event.count));
    default:
      if (Process* process = process_of(event)) add_to(*process, event);
  }
}

// Where the trace began in the middle of an operation, or events were lost, there are ends without
// a begin, which are left out, and begins without an end, which end when something else begins.
void Timeline::add_to(Process& process, const Event& event) {
  switch (event.type) {
    case Event::Type::ready:
      end_spans(process, event, 0);
      begin_span(process, event, fmt::format("NEGOTIATE_{}", word_for(event.operation)));
      return line(fmt::format(R"({{"ph":"X","name":"{}","ts":{},"dur":0,"pid":{}}})", event.rank,
                              microseconds(event), process.pid));
    case Event::Type::agreed:
      end_spans(process, event, 0);
      return begin_span(process, event, std::string(word_for(event.operation)));
    case Event::Type::activity:
      if (process.open.empty()) return;
      end_spans(process, event, 1);
      return begin_span(process, event, word_for_activity(event), facts_of_moving(event));
    default:  // done
      if (process.open.empty()) return;
      end_spans(process, event, 1);
      return end_span(process, event, facts_of(event));
  }
}

// Made for the first event that begins something.
Timeline::Process* Timeline::process_of(const Event& event) {
  const auto found = processes_.find({event.group, event.name});
  if (found != processes_.end()) return &found->second;
  if (event.type != Event::Type::ready && event.type != Event::Type::agreed) return nullptr;
  if (processes_.size() >= kMaxProcesses)
    std::erase_if(processes_, [](const auto& entry) { return entry.second.open.empty(); });
  Process& made = processes_[{event.group, event.name}];
  made.pid = ++last_pid_;
  announce(made, event.name);
  return &made;
}

void Timeline::announce(const Process& process, const std::string& name) {
  line(metadata("process_name", process.pid, fmt::format(R"("name":{})", json_text(name))));
  line(metadata("process_sort_index", process.pid, fmt::format(R"("sort_index":{})", process.pid)));
}

void Timeline::begin_span(Process& process, const Event& event, std::string name,
                          const std::string& arguments) {
  line(fmt::format(R"({{"ph":"B","name":"{}","ts":{},"pid":{}{}}})", name, microseconds(event),
                   process.pid, arguments));
  process.open.push_back(std::move(name));
}

void Timeline::end_span(Process& process, const Event& event, const std::string& arguments) {
  line(fmt::format(R"({{"ph":"E","name":"{}","ts":{},"pid":{}{}}})", process.open.back(),
                   microseconds(event), process.pid, arguments));
  process.open.pop_back();
}

void Timeline::end_spans(Process& process, const Event& event, size_t left) {
  while (process.open.size() > left) end_span(process, event);
}

// ---- lines to the file
// -----------------------------------------------------------------------------

void Timeline::line(const std::string& text) { (lines_ += ",\n") += text; }

void Timeline::write_lines() {
  const auto added = static_cast<int64_t>(lines_.size());
  lines_ += kClosing;
  const ssize_t written = ::pwrite(file_.get(), lines_.data(), lines_.size(), end_bytes_);
  if (written != static_cast<ssize_t>(lines_.size()))
    return give_up(written < 0 ? errno_text(errno) : "no room for it");
  end_bytes_ += added;
  lines_.clear();
}

// What was complete is made so again, as far as the file still allows.
void Timeline::give_up(const std::string& why) {
  const std::string_view whole = end_bytes_ > 0 ? kClosing : "[\n]";
  const auto bytes = static_cast<int64_t>(whole.size());
  const bool repaired = ::pwrite(file_.get(), whole.data(), whole.size(), end_bytes_) == bytes &&
                        ::ftruncate(file_.get(), end_bytes_ + bytes) == 0;
  log(LogLevel::error, fmt::format("the timeline \"{}\" ends here{}: {}", path_,
                                   repaired ? "" : " and is not valid", why));
  file_.reset();
}

}  // namespace hvd
