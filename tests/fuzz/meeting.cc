// What ranks read when they meet: cards, the table of rank 0, and its word, which launchers carry.
// What is read must be written as something that reads as the same.
#include "core/group/bootstrap/card.h"
#include "core/group/bootstrap/introduction.h"
#include "core/group/bootstrap/table.h"
#include "core/group/bootstrap/word.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

enum class Way : uint8_t { card, table, word };
constexpr uint8_t kWays = 3;

template <class Read>
void check_round_trip(ConstBytes input, Read read) {
  accepted([&] {
    const ByteVector once = to_bytes(read(input));
    must(to_bytes(read(once)) == once, "what was read survives the wire");
  });
}

void read_one_word(ConstBytes input) {
  accepted([&] {
    const std::string once = to_text(read_word(std::string(as_text(input))));
    must(once.size() <= kMaxIntroductionBytes, "a word fits where launchers carry it");
    must(to_text(read_word(once)) == once, "what was read survives the way");
  });
}

void take(ConstBytes bytes) {
  Input input(bytes);
  switch (static_cast<Way>(input.byte() % kWays)) {
    case Way::card:
      return check_round_trip(input.rest(), read_card);
    case Way::table:
      return check_round_trip(input.rest(), read_table);
    case Way::word:
      return read_one_word(input.rest());
  }
}

ByteVector sample(Way way, ConstBytes message) {
  Writer out;
  out.put(way);
  out.put_bytes(message);
  return out.take();
}

Card busy_card() {
  return {.rank = 1,
          .size = 2,
          .hostname = "node1",
          .kernel = "kernel",
          .network = "net:[1]",
          .addresses = {"192.0.2.1", "2001:db8::1"},
          .control_port = 4711,
          .data_port = 65535,
          .only_these_addresses = true,
          .cores = {0, 1, 300},
          .agreed = "HOROVOD_FUSION_THRESHOLD=1"};
}

std::vector<ByteVector> samples() {
  const Table whole{.cards = {Card{}, busy_card()}};
  const Table none{.code = Code::timed_out, .rank = 1, .reason = "rank 1 has not come"};
  const Word word{
      .port = 4711, .key = {}, .machine = "0123456789abcdef", .addresses = {"192.0.2.1", "::1"}};
  return {sample(Way::card, to_bytes(busy_card())), sample(Way::table, to_bytes(whole)),
          sample(Way::table, to_bytes(none)), sample(Way::word, as_bytes(to_text(word)))};
}

}  // namespace

const Target meeting{"meeting", take, samples};

}  // namespace hvd::fuzz
