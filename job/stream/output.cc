#include "job/stream/output.h"

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

namespace hvd::job {
namespace {

constexpr int kLauncherItself = -1;
constexpr std::array<const char*, kStreams> kNames{"stdout", "stderr"};

/// As asctime() writes it, without its newline.
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

/// A pipe that is there already would block us as long as nobody reads it.
FileDescriptor create(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC;
  FileDescriptor file(open(path.c_str(), kFlags, 0666));
  if (!file && errno == ENXIO) refuse(path, "it is a pipe or a socket");
  if (!file) refuse(path, errno_text(errno));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse(path, errno_text(errno));
  if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
    refuse(path, "it is a pipe or a socket");
  fcntl(file.get(), F_SETFL, O_WRONLY);
  return file;
}

/// False when there is an error, in errno.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace

Output::Output(const OutputOptions& options, int out_fd, int err_fd)
    : timestamps_(options.timestamps),
      one_terminal_(options.one_terminal),
      ranks_(static_cast<size_t>(options.ranks)),
      consoles_{Console(out_fd), Console(err_fd)} {
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    for (size_t stream = 0; stream < kStreams; ++stream)
      ranks_[rank].prefixes[stream] = fmt::format("[{}]<{}>:", rank, kNames[stream]);
  if (options.folder) open_files(*options.folder);
}

void Output::open_files(const std::string& folder) {
  const size_t digits = std::to_string(ranks_.size() - 1).size();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string own = fmt::format("{}/rank.{:0{}}", folder, rank, digits);
    std::error_code problem;
    std::filesystem::create_directories(own, problem);
    if (problem)
      fail(Code::invalid_argument,
           fmt::format("--output-filename: {} cannot be made: {}", own, problem.message()));
    for (size_t stream = 0; stream < kStreams; ++stream)
      ranks_[rank].sources[stream].file = create(own + "/" + kNames[stream]);
  }
}

void Output::received(int rank, Stream stream, std::string_view bytes, TimePoint now) {
  Source& source = at(rank).sources[static_cast<size_t>(stream)];
  if (source.file && !write_all(source.file.get(), bytes)) end_file(rank, stream);
  std::vector<Piece> pieces;
  source.cutter.add(bytes, pieces);
  pass_on(rank, stream, std::move(pieces));
  unfinished_ -= source.unfinished_since.has_value();
  source.unfinished_since.reset();
  if (source.cutter.has_unfinished()) source.unfinished_since = now;
  unfinished_ += source.unfinished_since.has_value();
}

/// A full disk does not end the job, nor is a line about it needed for each file. A file with a gap
/// would mislead, so nothing more is written to it.
void Output::end_file(int rank, Stream stream) {
  const std::string why = errno_text(errno);
  at(rank).sources[static_cast<size_t>(stream)].file.reset();
  if (std::exchange(file_ended_, true)) return;
  say(fmt::format(
      "--output-filename: the {} of rank {} cannot be written to its file any more: {}; "
      "other files may be incomplete too",
      kNames[static_cast<size_t>(stream)], rank, why));
}

void Output::ended(int rank, Stream stream) {
  Source& source = at(rank).sources[static_cast<size_t>(stream)];
  std::vector<Piece> pieces;
  source.cutter.finish(pieces);
  pass_on(rank, stream, std::move(pieces));
  unfinished_ -= source.unfinished_since.has_value();
  source.unfinished_since.reset();
}

void Output::hold(int rank) { at(rank).held = true; }

void Output::release(int rank) {
  at(rank).held = false;
  for (const Piece& piece : std::exchange(at(rank).kept, {})) show(rank, Stream::err, piece);
}

void Output::say(std::string_view line) {
  lines(Stream::err)
      .write(kLauncherItself, {fmt::format("{}\n", line)},
             "horovodrun: ", console(Stream::err).buffer());
}

void Output::pass(TimePoint now) {
  if (unfinished_ == 0) return;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      Source& source = at(rank).sources[static_cast<size_t>(stream)];
      if (!source.unfinished_since || now < *source.unfinished_since + kSilence) continue;
      std::vector<Piece> pieces;
      source.cutter.flush_silent(pieces);
      pass_on(rank, stream, std::move(pieces));
      source.unfinished_since.reset();
      --unfinished_;
    }
  }
}

std::optional<TimePoint> Output::deadline() const {
  if (unfinished_ == 0) return std::nullopt;
  TimePoint earliest = TimePoint::max();
  for (const Rank& rank : ranks_)
    for (const Source& source : rank.sources)
      if (source.unfinished_since)
        earliest = std::min(earliest, *source.unfinished_since + kSilence);
  return earliest;
}

bool Output::is_full() const {
  return std::any_of(consoles_.begin(), consoles_.end(), [](const Console& console) {
    return console.waiting_bytes() > kMaxWaitingBytes;
  });
}

void Output::pass_on(int rank, Stream stream, std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    at(rank).tail.add(piece);
    if (at(rank).held && stream == Stream::err) {
      at(rank).kept.push_back(std::move(piece));
    } else {
      show(rank, stream, piece);
    }
  }
}

void Output::show(int rank, Stream stream, const Piece& piece) {
  const int source = rank * kStreams + static_cast<int>(stream);
  const std::string& name = at(rank).prefixes[static_cast<size_t>(stream)];
  const std::string prefix = timestamps_ ? time_text() + name : name;
  lines(stream).write(source, piece, prefix, console(stream).buffer());
}

}  // namespace hvd::job
