#include "core/transport/board_state.h"

#include <string_view>

namespace hvd {
namespace {

constexpr size_t kMaxTextBytes = 1000;  // of a name, a description, an error
constexpr size_t kMaxRanks = 1 << 20;

void put_text(Writer& out, std::string_view text) { out.put_text(text.substr(0, kMaxTextBytes)); }
void put_time(Writer& out, std::chrono::milliseconds time) { out.put<int64_t>(time.count()); }
std::chrono::milliseconds get_time(Reader& in) {
  return std::chrono::milliseconds(in.get<int64_t>());
}

void put_pending(Writer& out, const PendingOperation& operation) {
  put_text(out, operation.name);
  put_text(out, operation.what);
  out.put_count(operation.between.size());
  for (const int32_t rank : operation.between) out.put(rank);
  put_time(out, operation.age);
  out.put(operation.is_agreed);
  out.put(operation.is_call);
}

PendingOperation get_pending(Reader& in) {
  PendingOperation operation;
  operation.name = in.get_text(kMaxTextBytes);
  operation.what = in.get_text(kMaxTextBytes);
  for (uint64_t left = in.get_count(kMaxRanks); left > 0; --left)
    operation.between.push_back(in.get<int32_t>());
  operation.age = get_time(in);
  operation.is_agreed = in.get_bool();
  operation.is_call = in.get_bool();
  return operation;
}

void put_past(Writer& out, const PastOperation& operation) {
  put_text(out, operation.name);
  put_text(out, operation.what);
  put_time(out, operation.age);
}

PastOperation get_past(Reader& in) {
  PastOperation operation;
  operation.name = in.get_text(kMaxTextBytes);
  operation.what = in.get_text(kMaxTextBytes);
  operation.age = get_time(in);
  return operation;
}

}  // namespace

ByteVector to_bytes(const BoardState& state) {
  Writer out;
  out.put(state.rank);
  out.put(state.size);
  out.put(state.generation);
  out.put(state.step);
  out.put(state.batches);
  out.put(state.has_joined);
  out.put(state.has_ended);
  out.put_count(state.pending.size());
  for (const PendingOperation& one : state.pending) put_pending(out, one);
  out.put(state.more_pending);
  out.put_count(state.last.size());
  for (const PastOperation& one : state.last) put_past(out, one);
  put_text(out, state.last_failure);
  put_time(out, state.since_failure);
  out.put_count(state.silent.size());
  for (const SilentPeer& one : state.silent) {
    out.put(one.rank);
    put_time(out, one.silence);
  }
  return out.take();
}

BoardState read_board_state(ConstBytes bytes) {
  Reader in(bytes);
  BoardState state;
  state.rank = in.get<int32_t>();
  state.size = in.get<int32_t>();
  state.generation = in.get<uint32_t>();
  state.step = in.get<uint64_t>();
  state.batches = in.get<uint64_t>();
  state.has_joined = in.get_bool();
  state.has_ended = in.get_bool();
  for (uint64_t left = in.get_count(kMaxPendingInState); left > 0; --left)
    state.pending.push_back(get_pending(in));
  state.more_pending = in.get<uint64_t>();
  for (uint64_t left = in.get_count(kMaxLastInState); left > 0; --left)
    state.last.push_back(get_past(in));
  state.last_failure = in.get_text(kMaxTextBytes);
  state.since_failure = get_time(in);
  for (uint64_t left = in.get_count(kMaxSilentInState); left > 0; --left) {
    const auto rank = in.get<int32_t>();
    state.silent.push_back({rank, get_time(in)});
  }
  in.finish();
  return state;
}

}  // namespace hvd
