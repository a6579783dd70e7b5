#include "core/negotiate/wire.h"

#include <limits>

namespace hvd {
namespace {

constexpr uint64_t kAnyNumber = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kAnyShort = std::numeric_limits<uint32_t>::max();

// ---- small values

/// Ranks and slots encode "none" as 0, so that common small numbers take one byte.
void put_rank(Writer& out, int32_t rank) { out.put_count(static_cast<uint64_t>(rank - kNoRank)); }

int32_t get_rank(Reader& in) { return static_cast<int32_t>(in.get_count(kMaxRanks)) + kNoRank; }

/// Something is lost, so that "none" stands for the launcher.
void put_lost(Writer& out, int32_t lost) { put_rank(out, lost == kLostLauncher ? kNoRank : lost); }

int32_t get_lost(Reader& in) {
  const int32_t rank = get_rank(in);
  return rank == kNoRank ? kLostLauncher : rank;
}

uint32_t get_short(Reader& in) { return static_cast<uint32_t>(in.get_count(kAnyShort)); }

/// Encodes a slot and flags in one number.
void put_slot(Writer& out, SlotNumber slot, int flag_bits, uint64_t flags) {
  const uint64_t code = slot == kNoSlot ? 0 : uint64_t{slot} + 1;
  out.put_count(code << flag_bits | flags);
}

struct SlotAndFlags {
  SlotNumber slot = kNoSlot;
  uint64_t flags = 0;
};

SlotAndFlags get_slot(Reader& in, int flag_bits) {
  const uint64_t both = in.get_count(((kAnyShort + 1) << flag_bits) - 1);
  const uint64_t code = both >> flag_bits;
  const uint64_t flags = both & ((uint64_t{1} << flag_bits) - 1);
  return {code == 0 ? kNoSlot : static_cast<SlotNumber>(code - 1), flags};
}

class Flags {
 public:
  explicit Flags(uint64_t bits) : bits_(bits) {}
  bool next() {
    const bool set = (bits_ & 1) != 0;
    bits_ >>= 1;
    return set;
  }

 private:
  uint64_t bits_;
};

template <class... Bool>
uint64_t flags_of(Bool... flags) {
  uint64_t bits = 0;
  int place = 0;
  ((bits |= uint64_t{flags} << place++), ...);
  return bits;
}

void put_ranks(Writer& out, const std::vector<int32_t>& ranks) {
  out.put_count(ranks.size());
  for (const int32_t rank : ranks) put_rank(out, rank);
}

std::vector<int32_t> get_ranks(Reader& in) {
  std::vector<int32_t> ranks;
  for (size_t left = in.get_count(kMaxRanks); left > 0; --left) {
    ranks.push_back(get_rank(in));
    if (ranks.back() == kNoRank) Reader::malformed("rank");
  }
  return ranks;
}

using Numbers = std::vector<std::pair<GroupNumber, uint32_t>>;

void put_numbers(Writer& out, const Numbers& numbers) {
  out.put_count(numbers.size());
  for (const auto& [group, number] : numbers) {
    out.put_count(group);
    out.put_count(number);
  }
}

Numbers get_numbers(Reader& in) {
  Numbers numbers;
  for (size_t left = in.get_count(kMaxEntriesInMessage); left > 0; --left) {
    const GroupNumber group = get_short(in);
    numbers.emplace_back(group, get_short(in));
  }
  return numbers;
}

// ---- signatures

/// Encodes the free dimension as 0, dimension d as d + 1.
void put_shape(Writer& out, const Shape& shape) {
  out.put_count(shape.size());
  for (const int64_t dimension : shape) {
    out.put_count(static_cast<uint64_t>(dimension - kFreeDimension));
  }
}

/// Rejects shapes whose byte count would overflow.
Shape get_shape(Reader& in) {
  constexpr int64_t kMaxElements = int64_t{1} << 56;
  Shape shape;
  int64_t elements = 1;
  for (size_t left = in.get_count(kMaxDimensions); left > 0; --left) {
    const auto code = in.get_count(static_cast<uint64_t>(kMaxElements));
    shape.push_back(static_cast<int64_t>(code) + kFreeDimension);
    if (shape.back() <= 0) continue;
    if (shape.back() > kMaxElements / elements) Reader::malformed("shape");
    elements *= shape.back();
  }
  return shape;
}

void put_operation(Writer& out, const Operation& operation) {
  out.put(operation.kind);
  out.put(operation.dtype);
  out.put(operation.op);
  out.put(operation.device);
  put_rank(out, operation.root);
  const bool is_scaled = operation.prescale != 1.0 || operation.postscale != 1.0;
  out.put(static_cast<uint8_t>(flags_of(is_scaled)));
  if (!is_scaled) return;
  out.put(operation.prescale);
  out.put(operation.postscale);
}

/// Reads the operation of a signature; joins have no signature.
Operation get_operation(Reader& in) {
  Operation operation;
  operation.kind = in.get_enum(kLastOperationKind);
  if (operation.kind == OperationKind::join) Reader::malformed("operation");
  operation.dtype = in.get_enum(kLastDType);
  operation.op = in.get_enum(kLastReduceOp);
  operation.device = in.get_enum(kLastDeviceKind);
  operation.root = get_rank(in);
  if (!Flags(in.get<uint8_t>()).next()) return operation;
  operation.prescale = in.get<double>();
  operation.postscale = in.get<double>();
  return operation;
}

void put_signature(Writer& out, const Signature& signature) {
  out.put(signature.name.high);
  out.put(signature.name.low);
  put_operation(out, signature.operation);
  out.put(static_cast<uint8_t>(flags_of(signature.fuse_with_others)));
  out.put_count(signature.target);
  put_ranks(out, signature.members);
  out.put_count(signature.shapes.size());
  for (const Shape& shape : signature.shapes) put_shape(out, shape);
}

bool is_between_two(const Signature& message) {
  const auto& ranks = message.members;
  if (ranks.size() != 2 || ranks.front() >= ranks.back()) return false;
  return message.operation.root == ranks.front() || message.operation.root == ranks.back();
}

Signature get_signature(Reader& in) {
  Signature signature;
  signature.name.high = in.get<uint64_t>();
  signature.name.low = in.get<uint64_t>();
  signature.operation = get_operation(in);
  signature.fuse_with_others = Flags(in.get<uint8_t>()).next();
  signature.target = get_short(in);
  signature.members = get_ranks(in);
  for (size_t left = in.get_count(kMaxTensorsInGroup); left > 0; --left) {
    signature.shapes.push_back(get_shape(in));
  }
  const OperationKind kind = signature.operation.kind;
  const bool adds_nobody = kind == OperationKind::add_process_set && signature.members.empty();
  const bool removes_world =
      kind == OperationKind::remove_process_set && signature.target == kWorldGroup;
  if (adds_nobody || removes_world) Reader::malformed("process set");
  if (kind == OperationKind::message && !is_between_two(signature)) Reader::malformed("message");
  return signature;
}

void put_opinions(Writer& out, const Opinions& opinions) {
  out.put_count(opinions.size());
  for (const Opinion& opinion : opinions) {
    put_signature(out, opinion.signature);
    put_rank(out, opinion.rank);
    out.put_count(opinion.count);
    out.put_count(opinion.folded);
  }
}

/// Reads at least one opinion.
Opinions get_opinions(Reader& in) {
  Opinions opinions;
  for (size_t left = in.get_count(kMaxOpinions); left > 0; --left) {
    Opinion& opinion = opinions.emplace_back();
    opinion.signature = get_signature(in);
    opinion.rank = get_rank(in);
    opinion.count = get_short(in);
    opinion.folded = get_short(in);
  }
  if (opinions.empty()) Reader::malformed("opinions");
  return opinions;
}

// ---- to the parent

void put_entry(Writer& out, const Entry& entry) {
  out.put_count(entry.group);
  put_slot(out, entry.slot, 1, flags_of(entry.substituted));
  put_rank(out, entry.lowest);
  out.put_count(entry.count);
  if (entry.slot == kNoSlot) put_opinions(out, entry.opinions);
}

Entry get_entry(Reader& in) {
  Entry entry;
  entry.group = get_short(in);
  const auto [slot, flags] = get_slot(in, 1);
  entry.slot = slot;
  entry.substituted = flags != 0;
  entry.lowest = get_rank(in);
  entry.count = get_short(in);
  if (slot == kNoSlot) entry.opinions = get_opinions(in);
  return entry;
}

void put_waiting(Writer& out, const Waiting& waiting) {
  out.put_count(waiting.names.size());
  for (const WaitingName& name : waiting.names) {
    out.put_count(name.group);
    out.put_text(name.name);
    out.put_count(name.age_ticks);
    put_ranks(out, name.between);
    out.put_count(name.expired_ms);
  }
  out.put_count(waiting.more);
  out.put_text(waiting.last);
  out.put(static_cast<uint8_t>(flags_of(waiting.joined, waiting.silent)));
}

Waiting get_waiting(Reader& in) {
  Waiting waiting;
  for (size_t left = in.get_count(kMaxNamesInReport); left > 0; --left) {
    WaitingName& name = waiting.names.emplace_back();
    name.group = get_short(in);
    name.name = in.get_text(kMaxNameBytes);
    name.age_ticks = get_short(in);
    name.between = get_ranks(in);
    name.expired_ms = get_short(in);
  }
  waiting.more = get_short(in);
  waiting.last = in.get_text(kMaxNameBytes);
  Flags flags(in.get<uint8_t>());
  waiting.joined = flags.next();
  waiting.silent = flags.next();
  return waiting;
}

void put_report(Writer& out, const StallReport& report) {
  out.put_count(report.size());
  for (const auto& [waiting, ranks] : report) {
    put_waiting(out, waiting);
    put_ranks(out, ranks);
  }
}

StallReport get_report(Reader& in) {
  StallReport report;
  for (size_t left = in.get_count(kMaxRanks); left > 0; --left) {
    Waiting waiting = get_waiting(in);
    report[std::move(waiting)] = get_ranks(in);
  }
  return report;
}

// ---- to the children

/// The flag for an Item with more than its slot; unset in the steady state.
void put_item(Writer& out, const Item& item) {
  const bool has_more = !item.retire.empty() || item.new_group != kWorldGroup;
  put_slot(out, item.slot, 2, flags_of(item.define, has_more));
  if (item.define) put_signature(out, item.signature);
  if (!has_more) return;
  out.put_count(item.retire.size());
  for (const SlotNumber slot : item.retire) out.put_count(slot);
  out.put_count(item.new_group);
}

Item get_item(Reader& in) {
  Item item;
  const auto [slot, bits] = get_slot(in, 2);
  Flags flags(bits);
  item.slot = slot;
  item.define = flags.next();
  if (slot == kNoSlot && !item.define) Reader::malformed("item");
  const bool has_more = flags.next();
  if (item.define) item.signature = get_signature(in);
  if (!has_more) return item;
  for (size_t left = in.get_count(kMaxEntriesInMessage); left > 0; --left) {
    item.retire.push_back(get_short(in));
  }
  item.new_group = get_short(in);
  return item;
}

void put_verdict(Writer& out, const Verdict& verdict) {
  out.put(verdict.type);
  switch (verdict.type) {
    case Verdict::Type::batch:
      out.put_count(verdict.group);
      out.put_count(verdict.sequence);
      out.put_count(verdict.items.size());
      for (const Item& item : verdict.items) put_item(out, item);
      return;
    case Verdict::Type::fault:
      out.put_count(verdict.group);
      put_item(out, verdict.items.front());
      put_opinions(out, verdict.opinions);
      out.put(static_cast<uint8_t>(verdict.joined_fault));
      return;
    case Verdict::Type::join_done:
    case Verdict::Type::shut_down:
      put_rank(out, verdict.rank);
      out.put_text(verdict.text);
      return;
    case Verdict::Type::abort:
      put_lost(out, verdict.rank);
      out.put_text(verdict.text);
      return;
    case Verdict::Type::query:
    case Verdict::Type::knobs:
      out.put_count(verdict.value);
      return;
  }
}

Verdict get_verdict(Reader& in) {
  Verdict verdict{.type = in.get_enum(Verdict::Type::knobs)};
  switch (verdict.type) {
    case Verdict::Type::batch:
      verdict.group = get_short(in);
      verdict.sequence = in.get_count(kAnyNumber);
      for (size_t left = in.get_count(kMaxEntriesInMessage); left > 0; --left) {
        verdict.items.push_back(get_item(in));
      }
      if (verdict.items.empty()) Reader::malformed("batch");
      break;
    case Verdict::Type::fault:
      verdict.group = get_short(in);
      verdict.items.push_back(get_item(in));
      verdict.opinions = get_opinions(in);
      verdict.joined_fault = in.get_bool();
      if (!verdict.items.front().define) Reader::malformed("fault");
      if (verdict.opinions.size() == 1 && !verdict.joined_fault) Reader::malformed("fault");
      break;
    case Verdict::Type::join_done:
    case Verdict::Type::shut_down:
      verdict.rank = get_rank(in);
      verdict.text = in.get_text(kMaxTextBytes);
      break;
    case Verdict::Type::abort:
      verdict.rank = get_lost(in);
      verdict.text = in.get_text(kMaxTextBytes);
      break;
    case Verdict::Type::query:
    case Verdict::Type::knobs:
      verdict.value = in.get_count(kAnyNumber);
      break;
  }
  return verdict;
}

}  // namespace

ByteVector encode(const Up& up) {
  Writer out;
  const bool is_lost = up.lost != kNoRank;
  out.put(static_cast<uint8_t>(flags_of(!up.joined.empty(), !up.done.empty(), up.shutdown, is_lost,
                                        up.stalled, up.has_report, up.expired)));
  put_numbers(out, up.seen);
  out.put_count(up.entries.size());
  for (const Entry& entry : up.entries) put_entry(out, entry);
  if (!up.joined.empty()) put_ranks(out, up.joined);
  if (!up.done.empty()) put_numbers(out, up.done);
  if (up.shutdown) put_rank(out, up.shutdown_by);
  if (is_lost) {
    put_lost(out, up.lost);
    out.put_text(up.lost_why);
  }
  if (up.has_report) {
    out.put_count(up.query);
    put_report(out, up.report);
  }
  return out.take();
}

Up decode_up(ConstBytes bytes) {
  Reader in(bytes);
  Up up;
  Flags flags(in.get<uint8_t>());
  const bool has_joined = flags.next();
  const bool has_done = flags.next();
  up.shutdown = flags.next();
  const bool is_lost = flags.next();
  up.stalled = flags.next();
  up.has_report = flags.next();
  up.expired = flags.next();
  up.seen = get_numbers(in);
  for (size_t left = in.get_count(kMaxEntriesInMessage); left > 0; --left) {
    up.entries.push_back(get_entry(in));
  }
  if (has_joined) up.joined = get_ranks(in);
  if (has_joined && up.joined.empty()) Reader::malformed("join");
  if (has_done) up.done = get_numbers(in);
  if (up.shutdown) up.shutdown_by = get_rank(in);
  if (is_lost) {
    up.lost = get_lost(in);
    up.lost_why = in.get_text(kMaxTextBytes);
  }
  if (up.has_report) {
    up.query = get_short(in);
    up.report = get_report(in);
  }
  in.finish();
  return up;
}

ByteVector encode(const Down& down) {
  Writer out;
  out.put_count(down.size());
  for (const Verdict& verdict : down) put_verdict(out, verdict);
  return out.take();
}

Down decode_down(ConstBytes bytes) {
  Reader in(bytes);
  Down down;
  for (size_t left = in.get_count(kMaxVerdictsInMessage); left > 0; --left) {
    down.push_back(get_verdict(in));
  }
  in.finish();
  return down;
}

}  // namespace hvd
