// What ranks and the launcher tell each other besides frames: values in the launcher's Store, names
// of sockets, the key, and reports for --dump, which come from agents. What is read must be written
// as something that reads as the same.
#include "core/transport/board_state.h"
#include "core/transport/elastic_messages.h"
#include "core/transport/key_request.h"
#include "core/transport/store_messages.h"
#include "launcher/driver/last_word.h"
#include "launcher/dump/gathered.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

enum class Kind : uint8_t {
  place,
  update,
  board,
  key_answer,
  store_reply,
  key_request,
  last_word,
  reports,
  gathered
};
constexpr uint8_t kKinds = 9;

template <class Read>
void check_round_trip(ConstBytes input, Read read) {
  accepted([&] {
    const ByteVector once = to_bytes(read(input));
    must(to_bytes(read(once)) == once, "what was read survives the wire");
  });
}

void check_key_request(std::string_view name) {
  const auto request = key_request_of(name);
  if (!request) return;
  const auto again = key_request_of(to_socket_name(*request));
  must(again && again->rank == request->rank && again->begins == request->begins &&
           again->generation == request->generation,
       "a request survives its name");
}

/// A rank of a job of two workers ends because of another one.
void check_last_word(Input input) {
  const ConstBytes key = input.piece(input.byte());
  const auto word = launcher::parse_last_word(as_text(key), as_text(input.rest()));
  const auto assignment = launcher::assign_ranks({{0, 0, 0}, {1, 0, 0}}, 0);
  if (word) launcher::worker_ends(*word, assignment);
}

/// Texts in it may be no UTF-8, and are written as such.
template <class Read>
void check_reports(std::string_view text, Read read) {
  const auto reports = read(text);
  if (reports) must(read(launcher::to_text(*reports)).has_value(), "what was read can be written");
}

void take(ConstBytes bytes) {
  Input input(bytes);
  switch (static_cast<Kind>(input.byte() % kKinds)) {
    case Kind::place:
      return check_round_trip(input.rest(), read_place);
    case Kind::update:
      return check_round_trip(input.rest(), read_elastic_update);
    case Kind::board:
      return check_round_trip(input.rest(), read_board_state);
    case Kind::key_answer:
      return check_round_trip(input.rest(), read_key_answer);
    case Kind::store_reply:
      return check_round_trip(input.rest(), read_store_reply);
    case Kind::key_request:
      return check_key_request(as_text(input.rest()));
    case Kind::last_word:
      return check_last_word(input);
    case Kind::reports:
      return check_reports(as_text(input.rest()), launcher::reports_in);
    case Kind::gathered:
      return check_reports(as_text(input.rest()), launcher::read_gathered);
  }
}

ByteVector sample(Kind kind, ConstBytes message) {
  Writer out;
  out.put(kind);
  out.put_bytes(message);
  return out.take();
}

BoardState busy_board() {
  using std::chrono_literals::operator""ms;
  BoardState board{.rank = 1, .size = 2, .generation = 3, .step = 7, .batches = 9};
  board.pending = {{"w", "allreduce float32 [4, 2]", {0, 1}, 1200ms, true, true}};
  board.more_pending = 5;
  board.last = {{"w", "allreduce float32 [4, 2]", 1200ms}};
  board.last_failure = "a shape differs";
  board.since_failure = 30ms;
  board.silent = {{0, 4100ms}};
  return board;
}

ByteVector sample_of_word() {
  Writer out;
  const std::string_view key = "ended/0/1";
  out.put(static_cast<uint8_t>(key.size()));
  out.put_bytes(as_bytes(key));
  out.put_bytes(as_bytes("0! it is silent"));
  return sample(Kind::last_word, out.take());
}

launcher::RankReport busy_report() {
  launcher::RankReport report;
  report.state = busy_board();
  return report;
}

std::vector<ByteVector> samples() {
  const Place place{.refusal = "", .news = 4, .variables = {{"HOROVOD_RANK", "1"}}};
  const launcher::Gathered gathered{{busy_report()}, {"host b does not answer"}};
  return {sample(Kind::place, to_bytes(place)),
          sample(Kind::place, to_bytes(Place{.refusal = "the job ends"})),
          sample(Kind::update, to_bytes(ElasticUpdate{true, false, 1.5})),
          sample(Kind::board, to_bytes(busy_board())),
          sample(Kind::key_answer, to_bytes(KeyAnswer{.generation = 2})),
          sample(Kind::key_answer, to_bytes(KeyAnswer{.refusal = "another user"})),
          sample(Kind::store_reply, to_bytes(StoreReply{3, StoreStatus::found, as_bytes("value")})),
          sample(Kind::key_request, as_bytes("horovod-begins-as-rank-3-in-2-123")),
          sample_of_word(),
          sample(Kind::reports, as_bytes(launcher::to_text(std::vector{busy_report()}))),
          sample(Kind::gathered, as_bytes(launcher::to_text(gathered)))};
}

}  // namespace

const Target launcher_values{"launcher", take, samples};

}  // namespace hvd::fuzz
