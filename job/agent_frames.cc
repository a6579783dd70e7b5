#include "job/agent_frames.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd::job {
namespace {

constexpr size_t kHeaderBytes = sizeof(uint32_t) + sizeof(uint8_t) + sizeof(uint32_t);
constexpr size_t kMaxTextBytes = 4 * MiB;
constexpr size_t kMaxTexts = 1 << 20;
/// Of what was read already, before it is thrown away.
constexpr size_t kMaxTakenBytes = 1 * MiB;

void put_texts(Writer& out, const std::vector<std::string>& texts) {
  out.put_count(texts.size());
  for (const std::string& text : texts) out.put_text(text);
}

/// A count in a message of unknown origin allocates nothing: what is not there cannot be read.
std::vector<std::string> get_texts(Reader& in) {
  std::vector<std::string> texts;
  for (uint64_t left = in.get_count(kMaxTexts); left > 0; --left)
    texts.push_back(in.get_text(kMaxTextBytes));
  return texts;
}

void put_place(Writer& out, const Place& place) {
  out.put_text(place.host);
  for (const int number : {place.rank, place.size, place.local_rank, place.local_size,
                           place.cross_rank, place.cross_size})
    out.put<int32_t>(number);
}

Place get_place(Reader& in) {
  Place place;
  place.host = in.get_text(kMaxTextBytes);
  for (int* number : {&place.rank, &place.size, &place.local_rank, &place.local_size,
                      &place.cross_rank, &place.cross_size})
    *number = in.get<int32_t>();
  return place;
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
    if (rest.size() > kMaxNoiseBytes) fail(Code::internal, "no agent speaks there");
    return std::nullopt;
  }
  if (rest.size() < kHeaderBytes) return std::nullopt;
  Reader in(rest);
  const auto bytes = in.get<uint32_t>();
  AgentFrame frame;
  frame.kind = in.get_enum(AgentFrame::Kind::input_taken);
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

/// Another version may say more.
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
  out.put_count(setup.places.size());
  for (const Place& place : setup.places) put_place(out, place);
  out.put(setup.binding);
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
  for (uint64_t left = in.get_count(kMaxTexts); left > 0; --left)
    setup.places.push_back(get_place(in));
  setup.binding = in.get_enum(BindingWish::cores);
  in.finish();
  if (setup.command.empty() || setup.places.empty()) Reader::malformed("setup of an agent");
  return setup;
}

ByteVector to_bytes(const AgentReady& ready) {
  Writer out;
  out.put_text(ready.store_address);
  out.put_text(ready.interface);
  out.put_text(ready.cpus);
  return out.take();
}

AgentReady read_ready(ConstBytes bytes) {
  Reader in(bytes);
  AgentReady ready;
  ready.store_address = in.get_text(kMaxTextBytes);
  ready.interface = in.get_text(kMaxTextBytes);
  ready.cpus = in.get_text(kMaxTextBytes);
  in.finish();
  return ready;
}

ByteVector to_bytes(const AgentRefusal& refusal) {
  Writer out;
  out.put(refusal.step);
  out.put_text(refusal.problem);
  put_texts(out, refusal.advice);
  return out.take();
}

AgentRefusal read_refusal(ConstBytes bytes) {
  Reader in(bytes);
  AgentRefusal refusal;
  refusal.step = in.get_enum(StartStep::connect_back);
  refusal.problem = in.get_text(kMaxTextBytes);
  refusal.advice = get_texts(in);
  in.finish();
  if (refusal.problem.empty()) Reader::malformed("refusal of an agent");
  return refusal;
}

ByteVector to_bytes(const AgentOutput& output) {
  Writer out;
  out.put(output.rank);
  out.put(output.stream);
  out.put_bytes(as_bytes(output.bytes));
  return out.take();
}

AgentOutput read_output(ConstBytes bytes) {
  Reader in(bytes);
  AgentOutput output;
  output.rank = in.get<int32_t>();
  output.stream = in.get_enum(Stream::err);
  output.bytes = as_text(in.rest());
  return output;
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

}  // namespace hvd::job
