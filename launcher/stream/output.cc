#include "launcher/stream/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr int kLauncherItself = -1;
constexpr std::array<const char*, kStreams> kNames{"stdout", "stderr"};

/// Returns the time in the format of asctime(), without the newline.
std::string time_text() {
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  char text[64];
  return {text, strftime(text, sizeof(text), "%a %b %e %H:%M:%S %Y", &local)};
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  fail(Code::invalid_argument,
       fmt::format("--output-filename: {} cannot be written: {}", path, why));
}

/// Opening an existing pipe would block until it has a reader.
FileDescriptor create(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC;
  FileDescriptor file(open(path.c_str(), kFlags, 0666));
  if (!file && errno == ENXIO) refuse(path, "it must be a regular file, found a pipe or a socket");
  if (!file) refuse(path, errno_text(errno));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse(path, errno_text(errno));
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
    refuse(path, "it must be a regular file, found a pipe or a socket");
  fcntl(file.get(), F_SETFL, O_WRONLY);
  return file;
}

/// Returns false on an error, in errno.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace

Output::Output(OutputOptions options, int out_fd, int err_fd)
    : options_(std::move(options)), consoles_{Console(out_fd), Console(err_fd)} {}

void Output::assign(const Assignment& assignment) {
  std::erase_if(workers_, [&](const auto& entry) {
    return entry.second.is_over() && !assignment.rank_of(entry.first);
  });
  if (rank_digits_ == 0) rank_digits_ = std::to_string(assignment.size() - 1).size();
  for (const auto& [id, ranks] : assignment.workers()) {
    Worker& worker = known(id);
    worker.rank = ranks.rank;
    set_prefixes(worker, std::to_string(ranks.rank));
    if (options_.folder && !files_.contains(worker.rank)) open_files(worker.rank);
  }
}

void Output::expect(const WorkerId& id) {
  Worker& worker = known(id);
  worker.rank = kNoRank;
  set_prefixes(worker, "new");
}

Output::Worker& Output::known(const WorkerId& id) {
  const auto [found, is_new] = workers_.try_emplace(id);
  if (is_new) found->second.number = next_number_++;
  return found->second;
}

void Output::set_prefixes(Worker& worker, const std::string& name) {
  for (size_t stream = 0; stream < kStreams; ++stream)
    worker.prefixes[stream] = fmt::format("[{}]<{}>:", name, kNames[stream]);
}

void Output::open_files(int rank) {
  const std::string own = fmt::format("{}/rank.{:0{}}", *options_.folder, rank, rank_digits_);
  std::error_code problem;
  std::filesystem::create_directories(own, problem);
  if (problem)
    fail(Code::invalid_argument,
         fmt::format("--output-filename: {} cannot be created: {}", own, problem.message()));
  for (size_t stream = 0; stream < kStreams; ++stream)
    files_[rank][stream] = create(own + "/" + kNames[stream]);
}

void Output::received(const WorkerId& id, Stream stream, std::string_view bytes, TimePoint now) {
  Worker& worker = workers_.at(id);
  Source& source = worker.sources[static_cast<size_t>(stream)];
  write_file(worker.rank, stream, bytes);
  std::vector<Piece> pieces;
  source.cutter.add(bytes, pieces);
  pass_on(worker, stream, std::move(pieces));
  unfinished_ -= source.unfinished_since.has_value();
  source.unfinished_since.reset();
  if (source.cutter.has_unfinished()) source.unfinished_since = now;
  unfinished_ += source.unfinished_since.has_value();
}

void Output::write_file(int rank, Stream stream, std::string_view bytes) {
  const auto files = files_.find(rank);
  if (files == files_.end()) return;
  const FileDescriptor& file = files->second[static_cast<size_t>(stream)];
  if (file && !write_all(file.get(), bytes)) end_file(rank, stream);
}

/// A full disk does not end the job, and one message is enough for all files. Nothing more is
/// written to a file that would have a gap.
void Output::end_file(int rank, Stream stream) {
  const std::string why = errno_text(errno);
  files_[rank][static_cast<size_t>(stream)].reset();
  if (std::exchange(file_ended_, true)) return;
  say(
      fmt::format("--output-filename: the {} of rank {} can no longer be written to its file: {}; "
                  "other files may be incomplete as well",
                  kNames[static_cast<size_t>(stream)], rank, why));
}

void Output::ended(const WorkerId& id, Stream stream) { end(workers_.at(id), stream); }

void Output::end(Worker& worker, Stream stream) {
  Source& source = worker.sources[static_cast<size_t>(stream)];
  std::vector<Piece> pieces;
  source.cutter.finish(pieces);
  pass_on(worker, stream, std::move(pieces));
  unfinished_ -= source.unfinished_since.has_value();
  source.unfinished_since.reset();
  source.ended = true;
}

void Output::end_all() {
  for (auto& [id, worker] : workers_) {
    for (const Stream stream : {Stream::out, Stream::err}) end(worker, stream);
    release(worker);
  }
}

void Output::hold(const WorkerId& worker) { workers_.at(worker).held = true; }

void Output::release(const WorkerId& worker) { release(workers_.at(worker)); }

void Output::release(Worker& worker) {
  worker.held = false;
  for (const Piece& piece : std::exchange(worker.kept, {})) show(worker, Stream::err, piece);
}

void Output::say(std::string_view line) {
  lines(Stream::err)
      .write(kLauncherItself, {fmt::format("{}\n", line)},
             "horovodrun: ", console(Stream::err).buffer());
}

void Output::pass(TimePoint now) {
  if (unfinished_ == 0) return;
  for (auto& [id, worker] : workers_) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      Source& source = worker.sources[static_cast<size_t>(stream)];
      if (!source.unfinished_since || now < *source.unfinished_since + kSilence) continue;
      std::vector<Piece> pieces;
      source.cutter.flush_silent(pieces);
      pass_on(worker, stream, std::move(pieces));
      source.unfinished_since.reset();
      --unfinished_;
    }
  }
}

std::optional<TimePoint> Output::deadline() const {
  if (unfinished_ == 0) return std::nullopt;
  TimePoint earliest = TimePoint::max();
  for (const auto& [id, worker] : workers_)
    for (const Source& source : worker.sources)
      if (source.unfinished_since)
        earliest = std::min(earliest, *source.unfinished_since + kSilence);
  return earliest;
}

bool Output::is_full() const {
  return std::any_of(consoles_.begin(), consoles_.end(), [](const Console& console) {
    return console.waiting_bytes() > kMaxWaitingBytes;
  });
}

bool Output::finish() {
  console(Stream::out).drain();
  const int problem = console(Stream::out).problem();
  if (problem != 0)
    say(fmt::format("standard output cannot be written: {}; the output of the ranks is incomplete",
                    errno_text(problem)));
  console(Stream::err).drain();
  return problem == 0 && console(Stream::err).problem() == 0 && !file_ended_;
}

void Output::pass_on(Worker& worker, Stream stream, std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    worker.tail.add(piece);
    if (worker.held && stream == Stream::err) {
      worker.kept.push_back(std::move(piece));
    } else {
      show(worker, stream, piece);
    }
  }
}

void Output::show(const Worker& worker, Stream stream, const Piece& piece) {
  const int source = worker.number * kStreams + static_cast<int>(stream);
  const std::string& name = worker.prefixes[static_cast<size_t>(stream)];
  const std::string prefix = options_.timestamps ? time_text() + name : name;
  lines(stream).write(source, piece, prefix, console(stream).buffer());
}

}  // namespace hvd::launcher
