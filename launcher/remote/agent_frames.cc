#include "launcher/remote/agent_frames.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/transport/job_number.h"

namespace hvd::launcher {
namespace {

constexpr size_t kHeaderBytes = sizeof(uint32_t) + sizeof(uint8_t) + sizeof(uint32_t);
constexpr size_t kMaxTextBytes = 4 * MiB;
constexpr size_t kMaxTexts = 1 << 20;
/// Per host.
constexpr uint32_t kMaxSlots = 1 << 20;
/// The limit of the time for a job to start.
constexpr uint32_t kMaxSshSeconds = 24 * 60 * 60;
/// Bytes that were decoded are discarded above this size.
constexpr size_t kMaxTakenBytes = 1 * MiB;

void put_texts(Writer& out, const std::vector<std::string>& texts) {
  out.put_count(texts.size());
  for (const std::string& text : texts) out.put_text(text);
}

/// A count from an untrusted message does not preallocate: reading fails at the end of the data.
std::vector<std::string> get_texts(Reader& in) {
  std::vector<std::string> texts;
  for (uint64_t left = in.get_count(kMaxTexts); left > 0; --left)
    texts.push_back(in.get_text(kMaxTextBytes));
  return texts;
}

void put_worker(Writer& out, const AssignedWorker& worker) {
  out.put<int32_t>(worker.id.slot);
  out.put<int32_t>(worker.id.incarnation);
  out.put(worker.ranks.generation);
  for (const int number :
       {worker.ranks.rank, worker.ranks.size, worker.ranks.local_rank, worker.ranks.local_size,
        worker.ranks.cross_rank, worker.ranks.cross_size})
    out.put<int32_t>(number);
}

bool is_of(int rank, int size) { return rank >= 0 && rank < size; }

AssignedWorker get_worker(Reader& in) {
  AssignedWorker worker;
  RankAssignment& ranks = worker.ranks;
  worker.id.slot = in.get<int32_t>();
  worker.id.incarnation = in.get<int32_t>();
  ranks.generation = in.get<uint32_t>();
  for (int* number : {&ranks.rank, &ranks.size, &ranks.local_rank, &ranks.local_size,
                      &ranks.cross_rank, &ranks.cross_size})
    *number = in.get<int32_t>();
  const bool placed = worker != without_place(worker.id);
  if (worker.id.slot < 0 || worker.id.incarnation < 0) Reader::malformed("worker");
  if (!placed) return worker;
  if (ranks.generation > kMaxGeneration || !is_of(ranks.rank, ranks.size) ||
      !is_of(ranks.local_rank, ranks.local_size) || !is_of(ranks.cross_rank, ranks.cross_size))
    Reader::malformed("worker");
  return worker;
}

void put_refusal(Writer& out, const AgentRefusal& refusal) {
  out.put(refusal.step);
  out.put_text(refusal.problem);
  put_texts(out, refusal.advice);
}

AgentRefusal get_refusal(Reader& in) {
  AgentRefusal refusal;
  refusal.step = in.get_enum(StartStep::connect_back);
  refusal.problem = in.get_text(kMaxTextBytes);
  refusal.advice = get_texts(in);
  if (refusal.problem.empty()) Reader::malformed("refusal of an agent");
  return refusal;
}

}  // namespace

ByteVector to_bytes(const AgentFrame& frame) {
  Writer out;
  out.put(static_cast<uint32_t>(frame.payload.size()));
  out.put(frame.kind);
  out.put(frame.host);
  out.put_bytes(frame.payload);
  return out.take();
}

void AgentFrameReader::add(ConstBytes bytes) {
  if (taken_ > kMaxTakenBytes || taken_ == waiting_.size()) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  if (in_noise_) skip_noise();
}

void AgentFrameReader::skip_noise() {
  const ConstBytes mark = as_bytes(kAgentPreamble);
  const auto found = std::search(waiting_.begin(), waiting_.end(), mark.begin(), mark.end());
  if (found == waiting_.end()) return;
  in_noise_ = false;
  taken_ = static_cast<size_t>(found - waiting_.begin()) + mark.size();
}

std::string AgentFrameReader::noise() const {
  return in_noise_ ? std::string(as_text(waiting_)) : std::string();
}

std::optional<AgentFrame> AgentFrameReader::next() {
  const ConstBytes rest = ConstBytes(waiting_).subspan(taken_);
  if (in_noise_) {
    if (rest.size() > kMaxNoiseBytes)
      fail(Code::internal, "no agent answered: its output does not begin with the preamble");
    return std::nullopt;
  }
  if (rest.size() < kHeaderBytes) return std::nullopt;
  Reader in(rest);
  const auto bytes = in.get<uint32_t>();
  AgentFrame frame;
  frame.kind = in.get_enum(AgentFrame::Kind::dumped);
  frame.host = in.get<uint32_t>();
  if (bytes > kMaxAgentFrameBytes) Reader::malformed("frame of an agent");
  if (in.rest().size() < bytes) return std::nullopt;
  const ConstBytes payload = in.take(bytes);
  frame.payload.assign(payload.begin(), payload.end());
  taken_ += kHeaderBytes + bytes;
  return frame;
}

ByteVector to_bytes(const AgentHello& hello) {
  Writer out;
  out.put_text(hello.version);
  out.put_text(hello.machine);
  return out.take();
}

/// Another version may append fields.
AgentHello read_hello(ConstBytes bytes) {
  Reader in(bytes);
  AgentHello hello;
  hello.version = in.get_text(kMaxTextBytes);
  hello.machine = in.get_text(kMaxTextBytes);
  return hello;
}

ByteVector to_bytes(const AgentSetup& setup) {
  Writer out;
  out.put_bytes(setup.key.bytes);
  out.put_text(setup.folder);
  put_texts(out, setup.command);
  out.put_count(setup.environment.size());
  for (const auto& [name, value] : setup.environment) {
    out.put_text(name);
    out.put_text(value);
  }
  put_texts(out, setup.interfaces);
  put_texts(out, setup.store_addresses);
  out.put(setup.store_port);
  out.put(setup.start_timeout_seconds);
  out.put_text(setup.host_name);
  out.put(setup.slots);
  out.put(setup.binding);
  out.put(setup.elastic);
  return out.take();
}

AgentSetup read_setup(ConstBytes bytes) {
  Reader in(bytes);
  AgentSetup setup;
  std::ranges::copy(in.take(setup.key.bytes.size()), setup.key.bytes.begin());
  setup.folder = in.get_text(kMaxTextBytes);
  setup.command = get_texts(in);
  for (uint64_t left = in.get_count(kMaxTexts); left > 0; --left) {
    std::string name = in.get_text(kMaxTextBytes);
    setup.environment.insert_or_assign(std::move(name), in.get_text(kMaxTextBytes));
  }
  setup.interfaces = get_texts(in);
  setup.store_addresses = get_texts(in);
  setup.store_port = in.get<uint16_t>();
  setup.start_timeout_seconds = in.get<uint32_t>();
  setup.host_name = in.get_text(kMaxTextBytes);
  setup.slots = in.get<uint32_t>();
  setup.binding = in.get_enum(BindingWish::cores);
  setup.elastic = in.get_bool();
  in.finish();
  if (setup.command.empty() || setup.slots == 0 || setup.slots > kMaxSlots)
    Reader::malformed("setup of an agent");
  return setup;
}

ByteVector to_bytes(const AgentReady& ready) {
  Writer out;
  out.put_text(ready.store_address);
  out.put_text(ready.interface);
  put_texts(out, ready.cpus);
  out.put_text(ready.not_bound);
  out.put_text(ready.warning);
  return out.take();
}

AgentReady read_ready(ConstBytes bytes) {
  Reader in(bytes);
  AgentReady ready;
  ready.store_address = in.get_text(kMaxTextBytes);
  ready.interface = in.get_text(kMaxTextBytes);
  ready.cpus = get_texts(in);
  ready.not_bound = in.get_text(kMaxTextBytes);
  ready.warning = in.get_text(kMaxTextBytes);
  in.finish();
  return ready;
}

ByteVector to_bytes(const AgentRefusal& refusal) {
  Writer out;
  put_refusal(out, refusal);
  return out.take();
}

AgentRefusal read_refusal(ConstBytes bytes) {
  Reader in(bytes);
  AgentRefusal refusal = get_refusal(in);
  in.finish();
  return refusal;
}

ByteVector to_bytes(const AgentReach& reach) {
  Writer out;
  out.put(reach.first);
  out.put(reach.last);
  out.put_text(reach.host);
  out.put_text(reach.ssh.agent);
  out.put_text(reach.ssh.identity.value_or(""));
  out.put(static_cast<uint16_t>(reach.ssh.port.value_or(0)));
  out.put(static_cast<uint32_t>(reach.ssh.connect_timeout_seconds));
  return out.take();
}

AgentReach read_reach(ConstBytes bytes) {
  Reader in(bytes);
  AgentReach reach;
  reach.first = in.get<uint32_t>();
  reach.last = in.get<uint32_t>();
  reach.host = in.get_text(kMaxTextBytes);
  reach.ssh.agent = in.get_text(kMaxTextBytes);
  if (std::string identity = in.get_text(kMaxTextBytes); !identity.empty())
    reach.ssh.identity = std::move(identity);
  if (const auto port = in.get<uint16_t>(); port != 0) reach.ssh.port = port;
  const auto seconds = in.get<uint32_t>();
  in.finish();
  if (reach.host.empty() || reach.first > reach.last || seconds == 0 || seconds > kMaxSshSeconds)
    Reader::malformed("host to reach");
  reach.ssh.connect_timeout_seconds = static_cast<int>(seconds);
  return reach;
}

ByteVector to_bytes(const AgentEnd& end) {
  Writer out;
  put_refusal(out, end.before);
  out.put_text(end.after);
  return out.take();
}

AgentEnd read_end(ConstBytes bytes) {
  Reader in(bytes);
  AgentEnd end;
  end.before = get_refusal(in);
  end.after = in.get_text(kMaxTextBytes);
  in.finish();
  return end;
}

ByteVector to_bytes(const AgentStart& start) {
  Writer out;
  out.put_count(start.workers.size());
  for (const AssignedWorker& worker : start.workers) put_worker(out, worker);
  return out.take();
}

AgentStart read_start(ConstBytes bytes) {
  Reader in(bytes);
  AgentStart start;
  for (uint64_t left = in.get_count(kMaxSlots); left > 0; --left)
    start.workers.push_back(get_worker(in));
  in.finish();
  return start;
}

ByteVector to_bytes(const AgentOutput& output) {
  Writer out;
  out.put(output.slot);
  out.put(output.incarnation);
  out.put(output.stream);
  out.put_bytes(as_bytes(output.bytes));
  return out.take();
}

AgentOutput read_output(ConstBytes bytes) {
  Reader in(bytes);
  AgentOutput output;
  output.slot = in.get<int32_t>();
  output.incarnation = in.get<int32_t>();
  output.stream = in.get_enum(Stream::err);
  output.bytes = as_text(in.rest());
  return output;
}

ByteVector to_bytes(const AgentWorkerNumber& number) {
  Writer out;
  out.put(number.slot);
  out.put(number.incarnation);
  out.put(number.number);
  return out.take();
}

AgentWorkerNumber read_worker_number(ConstBytes bytes) {
  Reader in(bytes);
  AgentWorkerNumber number;
  number.slot = in.get<int32_t>();
  number.incarnation = in.get<int32_t>();
  number.number = in.get<int32_t>();
  in.finish();
  return number;
}

ByteVector to_bytes(const AgentNumbers& numbers) {
  Writer out;
  out.put(numbers.first);
  out.put(numbers.second);
  return out.take();
}

AgentNumbers read_numbers(ConstBytes bytes) {
  Reader in(bytes);
  AgentNumbers numbers;
  numbers.first = in.get<int32_t>();
  numbers.second = in.get<int32_t>();
  in.finish();
  return numbers;
}

ByteVector to_bytes(Question question) { return {static_cast<std::byte>(question)}; }

Question read_question(ConstBytes bytes) {
  Reader in(bytes);
  const Question question = in.get_enum(kLastQuestion);
  in.finish();
  return question;
}

}  // namespace hvd::launcher
