#include "core/bootstrap/job_key.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/bootstrap/variables.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

constexpr const char* kAsking = "asking horovodrun for the job's key";

FileDescriptor connect_to_keeper(const std::string& name, const KeyRequest& request,
                                 const StartDeadline& deadline) {
  FileDescriptor socket = try_connect_unix_as(to_socket_name(request), name, deadline.at);
  if (socket) return socket;
  if (errno != ECONNREFUSED) fail_errno(kAsking);
  fail(Code::peer_lost,
       fmt::format("{}: no process listens at {}={}. That job has ended, or this process is in a "
                   "container or another network namespace, from which the socket of horovodrun "
                   "cannot be reached",
                   kAsking, kKeySocketVariable, name),
       request.rank);
}

}  // namespace

KeyAnswer ask_for_key(const Environment& environment, const KeyRequest& request,
                      const StartDeadline& deadline) {
  const auto name = variable(environment, kKeySocketVariable);
  if (!name) {
    fail(Code::unauthorized,
         fmt::format("{} is not set, so this rank cannot get the job's key; horovodrun sets it",
                     kKeySocketVariable));
  }
  const FileDescriptor socket = connect_to_keeper(*name, request, deadline);
  const auto keeper = user_at(socket);
  if (keeper != ::geteuid()) {
    fail(
        Code::unauthorized,
        fmt::format("{}: the process at {}={} runs as user {}, and this one as user {}; ranks must "
                    "run as the user who started horovodrun",
                    kAsking, kKeySocketVariable, *name, keeper.value_or(-1), ::geteuid()));
  }
  const ByteVector bytes = receive_all(socket.get(), kMaxKeyAnswerBytes, deadline.at, kAsking);
  if (bytes.empty())
    fail(Code::peer_lost, fmt::format("{}: it closed the connection", kAsking), request.rank);
  KeyAnswer answer = read_key_answer(bytes);
  if (!answer.refusal.empty())
    fail(Code::unauthorized, fmt::format("{}: {}", kAsking, answer.refusal), request.rank);
  return answer;
}

}  // namespace hvd
