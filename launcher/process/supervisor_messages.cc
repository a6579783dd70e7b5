#include "launcher/process/supervisor_messages.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr size_t kPerProgram = 3;
constexpr size_t kMaxDescriptors = 1 + kPerProgram * kMaxProgramsPerMessage;
constexpr size_t kMaxItems = size_t{1} << 20;
/// Linux does not allow larger arguments or variables.
constexpr size_t kMaxTextBytes = size_t{4} << 20;

struct ControlRoom {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))> bytes{};
};

void put_texts(Writer& out, const std::vector<std::string>& texts) {
  out.put_count(texts.size());
  for (const std::string& text : texts) out.put_text(text);
}

std::vector<std::string> get_texts(Reader& in) {
  std::vector<std::string> texts;
  for (uint64_t left = in.get_count(kMaxItems); left > 0; --left)
    texts.push_back(in.get_text(kMaxTextBytes));
  return texts;
}

ByteVector to_bytes(std::span<const WorkerProgram> programs) {
  Writer out;
  out.put_count(programs.size());
  for (const auto& [program, rank, generation] : programs) {
    out.put_text(program.path);
    put_texts(out, program.arguments);
    put_texts(out, program.environment);
    out.put_count(program.cpus.size());
    for (const int cpu : program.cpus) out.put<int32_t>(cpu);
    out.put<int32_t>(rank);
    out.put(generation);
  }
  return out.take();
}

std::vector<WorkerProgram> read_programs(ConstBytes bytes) {
  Reader in(bytes);
  std::vector<WorkerProgram> programs(in.get_count(kMaxProgramsPerMessage));
  for (auto& [program, rank, generation] : programs) {
    program.path = in.get_text(kMaxTextBytes);
    program.arguments = get_texts(in);
    program.environment = get_texts(in);
    for (uint64_t left = in.get_count(kMaxItems); left > 0; --left)
      program.cpus.push_back(in.get<int32_t>());
    rank = in.get<int32_t>();
    generation = in.get<uint32_t>();
  }
  in.finish();
  return programs;
}

FileDescriptor memory_file(ConstBytes bytes) {
  FileDescriptor file(memfd_create("workers", MFD_CLOEXEC));
  if (!file) fail_errno("making the file of the workers' programs: memfd_create (Linux 3.17)");
  while (!bytes.empty()) {
    const ssize_t size = write(file.get(), bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) fail_errno("writing the workers' programs");
    if (size > 0) bytes = bytes.subspan(static_cast<size_t>(size));
  }
  return file;
}

ByteVector content_of(const FileDescriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_errno("reading the workers' programs");
  ByteVector bytes(static_cast<size_t>(status.st_size));
  const ssize_t size = pread(file.get(), bytes.data(), bytes.size(), 0);
  if (size != status.st_size) fail_errno("reading the workers' programs");
  return bytes;
}

std::vector<FileDescriptor> take_descriptors(msghdr& message) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

/// The first descriptor is the memfd.
void take_programs(ReceivedMessage& received) {
  received.programs = read_programs(content_of(received.descriptors.front()));
  received.descriptors.erase(received.descriptors.begin());
  HVD_ASSERT(received.descriptors.size() == kPerProgram * received.programs.size());
  for (size_t i = 0; i < received.programs.size(); ++i) {
    Program& program = received.programs[i].program;
    program.in = received.descriptors[kPerProgram * i].get();
    program.out = received.descriptors[kPerProgram * i + 1].get();
    program.err = received.descriptors[kPerProgram * i + 2].get();
  }
}

}  // namespace

void send_start(int socket, const SupervisorMessage& message,
                std::span<const WorkerProgram> programs) {
  HVD_ASSERT(programs.size() <= kMaxProgramsPerMessage);
  const FileDescriptor file = memory_file(to_bytes(programs));
  std::vector<int> descriptors{file.get()};
  for (const WorkerProgram& one : programs)
    for (const int fd : {one.program.in, one.program.out, one.program.err})
      descriptors.push_back(fd);
  const size_t bytes = descriptors.size() * sizeof(int);
  iovec piece{const_cast<SupervisorMessage*>(&message), sizeof(message)};
  ControlRoom control;
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(part), descriptors.data(), bytes);
  ssize_t size = 0;
  do {
    size = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (size < 0 && errno == EINTR);
  // If the supervisor has ended, the next read of its socket reports that.
  if (size < 0 && errno != EPIPE && errno != ECONNRESET) fail_errno("starting workers");
}

std::optional<ReceivedMessage> receive_message(int socket) {
  ReceivedMessage received{};
  iovec piece{&received.message, sizeof(received.message)};
  ControlRoom control;
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  ssize_t size = 0;
  do {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  received.descriptors = take_descriptors(header);
  if (size != sizeof(received.message)) return std::nullopt;
  if (received.message.kind == SupervisorMessage::Kind::start) take_programs(received);
  return received;
}

}  // namespace hvd::launcher
