// The protocol between the launcher and its agent on another host, over standard input and output
// of one ssh: a preamble, then frames. Pure: bytes in, frames out. docs/wire.md specifies the
// format.
//
// A frame names a host, so that an agent can relay between the launcher and further agents. A
// worker is named by its slot and incarnation on that host; its rank is sent once, at its start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/knobs.h"
#include "core/transport/handshake.h"
#include "launcher/driver/start_table.h"
#include "launcher/process/binding.h"
#include "launcher/remote/ssh.h"
#include "launcher/stream/lines.h"
#include "launcher/worker/assignment.h"
#include "launcher/worker/question.h"

namespace hvd::launcher {

/// The agent's first bytes. Output of a login script before them is skipped.
inline constexpr std::string_view kAgentPreamble = "\x01horovodrun-agent\x02\n";
inline constexpr size_t kMaxNoiseBytes = 64 * KiB;
/// How much of rank 0's standard input may be in flight to the pipe that it reads. Limits the
/// memory of an agent, and how long later frames wait.
inline constexpr size_t kInputWindowBytes = 1 * MiB;
/// How much output may be in flight to the launcher's consoles, over all hosts. Each host gets at
/// least the second value, even if the sum then exceeds the first. Everything beyond waits in the
/// workers' pipes.
inline constexpr size_t kOutputWindowBytes = 2 * MiB, kLeastOutputWindowBytes = 64 * KiB;
/// The host number in frames of an agent that does not know its own yet.
inline constexpr uint32_t kNoHost = 0xffffffff;
/// The largest frame is a Setup, mostly its environment, for which Linux allows 2 MiB.
inline constexpr size_t kMaxAgentFrameBytes = 16 * MiB;

struct AgentFrame {
  /// From the agent: hello, ready, refused, output, exited, not_started, nothing_left, input_taken,
  /// lost, dumped. To it: setup, start_workers, signal_all, output_room, input, reach,
  /// signal_worker, no_more_workers, dump.
  enum class Kind : uint8_t {
    hello,
    setup,
    ready,
    refused,
    start_workers,
    output,
    exited,
    not_started,
    nothing_left,
    signal_all,
    output_room,
    input,
    input_taken,
    reach,
    lost,
    signal_worker,
    no_more_workers,
    dump,
    dumped,
  };
  Kind kind{};
  uint32_t host = 0;  ///< the sender or receiver, in the order of the job's hosts
  ByteVector payload{};

  bool operator==(const AgentFrame&) const = default;
};

/// Encodes length of the payload, kind, host, payload.
ByteVector to_bytes(const AgentFrame& frame);

/// Decodes a stream of bytes that arrive in portions of any length.
class AgentFrameReader {
 public:
  /// `preamble`: frames begin after a preamble.
  explicit AgentFrameReader(bool preamble) : in_noise_(preamble) {}

  void add(ConstBytes bytes);
  /// Returns the next whole frame. Throws Error{internal} if the bytes cannot be a frame.
  std::optional<AgentFrame> next();
  bool begun() const { return !in_noise_; }
  /// Returns the bytes before the preamble, to show to the user.
  std::string noise() const;

 private:
  void skip_noise();

  bool in_noise_;
  ByteVector waiting_;
  size_t taken_ = 0;
};

// ---- Payloads. The readers throw Error{internal} when malformed. ----

struct AgentHello {
  std::string version;
  std::string machine;
  bool operator==(const AgentHello&) const = default;
};
ByteVector to_bytes(const AgentHello& hello);
AgentHello read_hello(ConstBytes bytes);

/// Everything that an agent needs to become ready. Holds the job's key: never show it.
struct AgentSetup {
  JobKey key;
  std::string folder;                        ///< the working folder of the workers
  std::vector<std::string> command;          ///< as the user wrote it
  Environment environment;                   ///< the same for all workers
  std::vector<std::string> interfaces;       ///< allowed by the user; none: all
  std::vector<std::string> store_addresses;  ///< numeric; the agent finds one that connects
  uint16_t store_port = 0;
  uint32_t start_timeout_seconds = 0;
  std::string host_name;  ///< of this host, as the user wrote it
  uint32_t slots = 0;     ///< how many workers run on this host at the same time, from 1
  BindingWish binding{};
  bool elastic = false;  ///< the number of workers may change
};
ByteVector to_bytes(const AgentSetup& setup);
AgentSetup read_setup(ConstBytes bytes);

/// How the agent reached the launcher.
struct AgentReady {
  std::string store_address;
  std::string interface;
  std::vector<std::string> cpus;  ///< by slot, the CPUs of its worker; none: not bound
  std::string not_bound;          ///< why not; empty: no reason to report
  std::string warning;            ///< a line for the user; empty: none
  bool operator==(const AgentReady&) const = default;
};
ByteVector to_bytes(const AgentReady& ready);
AgentReady read_ready(ConstBytes bytes);

struct AgentRefusal {
  StartStep step{};
  std::string problem;
  std::vector<std::string> advice;
  bool operator==(const AgentRefusal&) const = default;
};
ByteVector to_bytes(const AgentRefusal& refusal);
AgentRefusal read_refusal(ConstBytes bytes);

/// Another host, whose agent this host's agent starts.
struct AgentReach {
  uint32_t first = 0, last = 0;  ///< its own number, and that of the last host reached through it
  std::string host;
  SshOptions ssh;  ///< without the paths, which are looked up there
};
ByteVector to_bytes(const AgentReach& reach);
AgentReach read_reach(ConstBytes bytes);

/// The ssh to a host has ended.
struct AgentEnd {
  AgentRefusal before;  ///< the reason, if it was not ready
  std::string after;    ///< the reason, if its workers were running
  bool operator==(const AgentEnd&) const = default;
};
ByteVector to_bytes(const AgentEnd& end);
AgentEnd read_end(ConstBytes bytes);

/// Workers to start in free slots. The host in their ids is not sent; the frame names it.
struct AgentStart {
  std::vector<AssignedWorker> workers;
  bool operator==(const AgentStart&) const = default;
};
ByteVector to_bytes(const AgentStart& start);
AgentStart read_start(ConstBytes bytes);

struct AgentOutput {
  int32_t slot = 0;
  int32_t incarnation = 0;
  Stream stream{};
  std::string bytes;  ///< empty: the stream has ended
  bool operator==(const AgentOutput&) const = default;
};
ByteVector to_bytes(const AgentOutput& output);
AgentOutput read_output(ConstBytes bytes);

/// exited: wait status. not_started: errno. signal_worker: signal.
struct AgentWorkerNumber {
  int32_t slot = 0;
  int32_t incarnation = 0;
  int32_t number = 0;
  bool operator==(const AgentWorkerNumber&) const = default;
};
ByteVector to_bytes(const AgentWorkerNumber& number);
AgentWorkerNumber read_worker_number(ConstBytes bytes);

/// signal_all: signal. output_room: how many more bytes of output may be sent. input_taken: bytes
/// since the last such frame, and 1 if the input is no longer read. nothing_left: how many workers
/// were started there so far.
struct AgentNumbers {
  int32_t first = 0;
  int32_t second = 0;
  bool operator==(const AgentNumbers&) const = default;
};
ByteVector to_bytes(const AgentNumbers& numbers);
AgentNumbers read_numbers(ConstBytes bytes);

ByteVector to_bytes(Question question);
Question read_question(ConstBytes bytes);

}  // namespace hvd::launcher
