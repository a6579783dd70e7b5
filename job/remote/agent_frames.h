// What the launcher and its agent on another host say to each other through the standard input and
// output of one ssh: a preamble, then frames. Pure: bytes in, frames out. docs/wire.md has every
// byte.
//
// A frame names a host, so that an agent may stand between the launcher and further agents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/knobs.h"
#include "core/transport/handshake.h"
#include "job/driver/start_table.h"
#include "job/options/hosts.h"
#include "job/process/binding.h"
#include "job/remote/ssh.h"
#include "job/stream/lines.h"

namespace hvd::job {

/// The agent's first bytes. What a login script prints before is skipped.
inline constexpr std::string_view kAgentPreamble = "\x01horovodrun-agent\x02\n";
inline constexpr size_t kMaxNoiseBytes = 64 * KiB;
/// Of rank 0's standard input, on its way to the pipe that it reads. So it never fills an agent's
/// memory, and what is said behind it never waits long.
inline constexpr size_t kInputWindowBytes = 1 * MiB;
/// Of what ranks write, on its way to the launcher's consoles, over all hosts: it may be more only
/// where that leaves a host less than the second. What is beyond waits in the ranks' pipes.
inline constexpr size_t kOutputWindowBytes = 2 * MiB, kLeastOutputWindowBytes = 64 * KiB;
/// Of an agent that has not been told its own.
inline constexpr uint32_t kNoHost = 0xffffffff;
/// The largest is a Setup, whose largest part is the environment: Linux allows 2 MiB for that.
inline constexpr size_t kMaxAgentFrameBytes = 16 * MiB;

struct AgentFrame {
  /// From the agent: hello, ready, refused, output, exited, not_started, nothing_left, input_taken,
  /// lost. To it: setup, start, signal_all, output_room, input,
  /// reach.
  enum class Kind : uint8_t {
    hello,
    setup,
    ready,
    refused,
    start,
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
  };
  Kind kind{};
  uint32_t host = 0;  ///< in the order of the job's hosts: whose word, or for whom
  ByteVector payload{};

  bool operator==(const AgentFrame&) const = default;
};

/// Length of the payload, kind, host, payload.
ByteVector to_bytes(const AgentFrame& frame);

/// Takes what a stream brings, in portions of any length.
class AgentFrameReader {
 public:
  /// `preamble`: frames begin behind it.
  explicit AgentFrameReader(bool preamble) : in_noise_(preamble) {}

  void add(ConstBytes bytes);
  /// The next whole frame. Throws Error{internal} when what came cannot be frames.
  std::optional<AgentFrame> next();
  bool begun() const { return !in_noise_; }
  /// What came instead of the preamble, to show to the user.
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

/// All that an agent needs to be ready. Holds the job's key: it is never shown.
struct AgentSetup {
  JobKey key;
  std::string folder;                        ///< where the ranks work
  std::vector<std::string> command;          ///< as the user wrote it
  Environment environment;                   ///< common to all ranks
  std::vector<std::string> interfaces;       ///< that the user allows; none: all
  std::vector<std::string> store_addresses;  ///< numeric; the agent finds out which of them connect
  uint16_t store_port = 0;
  uint32_t start_timeout_seconds = 0;
  std::vector<Place> places;
  BindingWish binding{};
};
ByteVector to_bytes(const AgentSetup& setup);
AgentSetup read_setup(ConstBytes bytes);

/// How the launcher was reached from there.
struct AgentReady {
  std::string store_address;
  std::string interface;
  std::string cpus;     ///< that its ranks may use, for people
  std::string warning;  ///< what the user should know; empty: nothing
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

/// Another host, whose agent is to be started from that of this one.
struct AgentReach {
  uint32_t first = 0, last = 0;  ///< its own number, and that of the last host behind it
  std::string host;
  SshOptions ssh;  ///< but for the paths, which are found there
};
ByteVector to_bytes(const AgentReach& reach);
AgentReach read_reach(ConstBytes bytes);

/// The ssh to a host has ended.
struct AgentEnd {
  AgentRefusal before;  ///< why, if it was not ready
  std::string after;    ///< why, if its ranks were running
  bool operator==(const AgentEnd&) const = default;
};
ByteVector to_bytes(const AgentEnd& end);
AgentEnd read_end(ConstBytes bytes);

struct AgentOutput {
  int32_t rank = 0;
  Stream stream{};
  std::string bytes;  ///< none: the stream has ended
  bool operator==(const AgentOutput&) const = default;
};
ByteVector to_bytes(const AgentOutput& output);
AgentOutput read_output(ConstBytes bytes);

/// exited: rank, wait status. not_started: rank, errno. signal_all: signal. output_room: how
/// many more bytes of output may be sent.
/// input_taken: bytes since the last one, 1 when nobody reads any more.
struct AgentNumbers {
  int32_t first = 0;
  int32_t second = 0;
  bool operator==(const AgentNumbers&) const = default;
};
ByteVector to_bytes(const AgentNumbers& numbers);
AgentNumbers read_numbers(ConstBytes bytes);

}  // namespace hvd::job
