// The messages of agreement. What is decoded must encode to bytes that decode to the same.
#include "core/negotiate/testing.h"
#include "core/negotiate/wire.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

enum class Way : uint8_t { up, down };

template <class Decode>
void check_round_trip(ConstBytes input, Decode decode) {
  accepted([&] {
    // Bytes are compared and not values: a factor may be a NaN, which equals nothing.
    const ByteVector once = encode(decode(input));
    must(encode(decode(once)) == once, "what was decoded survives the wire");
  });
}

void take(ConstBytes bytes) {
  Input input(bytes);
  if (static_cast<Way>(input.byte() & 1) == Way::up) {
    check_round_trip(input.rest(), decode_up);
  } else {
    check_round_trip(input.rest(), decode_down);
  }
}

ByteVector sample(Way way, const ByteVector& message) {
  Writer out;
  out.put(way);
  out.put_bytes(message);
  return out.take();
}

Up busy_up() {
  Up up;
  up.seen = {{0, 5}, {7, 1u << 31}};
  up.entries = {entry_by_slot(0, 3), entry_in_full(allreduce_of("w", {kFreeDimension, 3}), 2, 7)};
  up.entries[1].opinions.push_back({.signature = barrier_of("w"), .rank = 1, .count = 300});
  up.joined = {12, 3};
  up.done = {{3, 2}};
  return up;
}

Up last_up() {
  Up up{.shutdown = true, .shutdown_by = 0, .lost = 9, .lost_why = "its process ended"};
  up.stalled = true;
  up.has_report = true;
  up.query = 77;
  up.report[{.names = {{0, "a", 2}, {4, "b", 0}}, .more = 3, .last = "c", .joined = true}] = {0, 5};
  up.report[{.silent = true}] = {1};
  return up;
}

Down busy_down() {
  Signature scaled = allreduce_of("x", {4, 3});
  scaled.operation.prescale = 0.5;
  scaled.shapes.push_back({});
  Item defined = defines(scaled, 8);
  defined.retire = {1, 2};
  Item added = defines(add_set_of("s", {1, 2}));
  added.new_group = 6;
  Verdict fault{.type = Verdict::Type::fault, .group = 2};
  fault.items = {defines(barrier_of("b"))};
  fault.opinions = {{.signature = barrier_of("b"), .rank = 0, .count = 1}};
  fault.joined_fault = true;
  return {batch_of({by_slot(3), defined}, 5, uint64_t{1} << 40), batch_of({added}, 0, 0), fault};
}

Down last_down() {
  return {{.type = Verdict::Type::join_done, .rank = 4},
          {.type = Verdict::Type::shut_down, .rank = 1, .text = "a stall"},
          {.type = Verdict::Type::abort, .rank = 3, .text = "killed"},
          {.type = Verdict::Type::query, .value = 5},
          {.type = Verdict::Type::knobs, .value = uint64_t{1} << 63},
          batch_of({defines(remove_set_of("s", 6))}, 0, 0)};
}

std::vector<ByteVector> samples() {
  return {sample(Way::up, encode(busy_up())), sample(Way::up, encode(last_up())),
          sample(Way::down, encode(busy_down())), sample(Way::down, encode(last_down()))};
}

}  // namespace

const Target agreement{"agreement", take, samples};

}  // namespace hvd::fuzz
