// What the launcher and an agent read of each other through an ssh, in portions of any length: the
// launcher behind whatever a login script prints. What is read must be written as something that
// reads as the same.
#include "launcher/remote/agent_frames.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

using launcher::AgentFrame;
using Kind = AgentFrame::Kind;

enum class Way : uint8_t { to_launcher, to_agent };

template <class Read>
void check_round_trip(ConstBytes payload, Read read) {
  accepted([&] {
    const ByteVector once = to_bytes(read(payload));
    must(to_bytes(read(once)) == once, "what was read survives the wire");
  });
}

void read_payload(const AgentFrame& frame) {
  const ConstBytes payload = frame.payload;
  switch (frame.kind) {
    case Kind::hello:
      return check_round_trip(payload, launcher::read_hello);
    case Kind::setup:
      return check_round_trip(payload, launcher::read_setup);
    case Kind::ready:
      return check_round_trip(payload, launcher::read_ready);
    case Kind::refused:
      return check_round_trip(payload, launcher::read_refusal);
    case Kind::output:
      return check_round_trip(payload, launcher::read_output);
    case Kind::start_workers:
      return check_round_trip(payload, launcher::read_start);
    case Kind::exited:
    case Kind::not_started:
    case Kind::signal_worker:
      return check_round_trip(payload, launcher::read_worker_number);
    case Kind::signal_all:
    case Kind::output_room:
    case Kind::input_taken:
    case Kind::nothing_left:
      return check_round_trip(payload, launcher::read_numbers);
    case Kind::reach:
      return check_round_trip(payload, launcher::read_reach);
    case Kind::lost:
      return check_round_trip(payload, launcher::read_end);
    case Kind::dump:
      return check_round_trip(payload, launcher::read_question);
    case Kind::no_more_workers:
    case Kind::dumped:
    case Kind::input:
      return;  // nothing, or bytes as they are
  }
  must(false, "a frame has a kind that there is");
}

/// The second byte cuts what follows into portions.
void take(ConstBytes bytes) {
  Input input(bytes);
  const auto way = static_cast<Way>(input.byte() & 1);
  const size_t portion = size_t{1} + input.byte();
  launcher::AgentFrameReader reader(way == Way::to_launcher);
  accepted([&] {
    while (!input.empty()) {
      reader.add(input.piece(portion));
      while (const auto frame = reader.next()) {
        must(reader.begun(), "frames come behind the preamble");
        must(frame->payload.size() <= launcher::kMaxAgentFrameBytes, "a frame has a limit");
        read_payload(*frame);
      }
      must(reader.noise().size() <= launcher::kMaxNoiseBytes, "noise has a limit");
    }
  });
}

template <class Payload>
AgentFrame frame(Kind kind, const Payload& payload) {
  return {kind, 3, to_bytes(payload)};
}

ByteVector sample(Way way, std::string_view before, const std::vector<AgentFrame>& frames) {
  Writer out;
  out.put(way);
  out.put(uint8_t{99});
  out.put_bytes(as_bytes(before));
  for (const AgentFrame& one : frames) out.put_bytes(to_bytes(one));
  return out.take();
}

ByteVector sample_to_launcher() {
  const launcher::AgentRefusal refusal{launcher::StartStep::program, "no such folder", {"make it"}};
  return sample(Way::to_launcher, "Welcome\n" + std::string(launcher::kAgentPreamble),
                {{Kind::hello, launcher::kNoHost, to_bytes(launcher::AgentHello{"1.0.0", "node4"})},
                 frame(Kind::ready,
                       launcher::AgentReady{"192.0.2.1", "eth0", {"0-3", "4-7"}, "", "no /proc"}),
                 frame(Kind::output, launcher::AgentOutput{1, 2, launcher::Stream::err, "line\n"}),
                 frame(Kind::input_taken, launcher::AgentNumbers{4096, 1}),
                 frame(Kind::not_started, launcher::AgentWorkerNumber{1, 2, 2}),
                 frame(Kind::exited, launcher::AgentWorkerNumber{0, 0, 256}),
                 frame(Kind::nothing_left, launcher::AgentNumbers{4, 0}),
                 frame(Kind::lost, launcher::AgentEnd{refusal, "the ssh to it was killed"})});
}

ByteVector sample_of_refusal() {
  return sample(Way::to_launcher, launcher::kAgentPreamble,
                {frame(Kind::refused, launcher::AgentRefusal{
                                          launcher::StartStep::connect_back, "no", {"a", "b"}})});
}

launcher::AgentSetup whole_setup() {
  launcher::AgentSetup setup;
  setup.folder = "/home/a b";
  setup.command = {"python", "train.py"};
  setup.environment = {{"A", "1"}, {"EMPTY", ""}};
  setup.interfaces = {"eth0"};
  setup.store_addresses = {"192.0.2.1", "2001:db8::1"};
  setup.store_port = 40000;
  setup.start_timeout_seconds = 30;
  setup.host_name = "node4";
  setup.slots = 2;
  setup.binding = launcher::BindingWish::none;
  return setup;
}

ByteVector sample_to_agent() {
  launcher::AgentReach reach{.first = 4, .last = 9, .host = "node5", .ssh = {}};
  reach.ssh.agent = "/opt/horovodrun";
  reach.ssh.port = 2222;
  reach.ssh.identity = "key";
  return sample(Way::to_agent, "",
                {frame(Kind::setup, whole_setup()),
                 frame(Kind::reach, reach),
                 frame(Kind::start_workers, launcher::AgentStart{{
                                                {{0, 0, 0}, {0, 3, 8, 0, 2, 1, 4}},
                                                {{0, 1, 2}, {5, 4, 8, 1, 2, 1, 4}},
                                            }}),
                 frame(Kind::output_room, launcher::AgentNumbers{65536, 0}),
                 {Kind::input, 3, ByteVector(5, std::byte{'x'})},
                 frame(Kind::signal_worker, launcher::AgentWorkerNumber{1, 2, 15}),
                 frame(Kind::signal_all, launcher::AgentNumbers{15, 0}),
                 frame(Kind::dump, launcher::Question::process_states),
                 {Kind::no_more_workers, 3, {}}});
}

std::vector<ByteVector> samples() {
  return {sample_to_launcher(), sample_of_refusal(), sample_to_agent()};
}

}  // namespace

const Target agent{"agent", take, samples};

}  // namespace hvd::fuzz
