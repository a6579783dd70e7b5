// What ranks read at the start of a job: peer cards, the card table of rank 0, and the root
// address, which launchers carry. Whatever is read must survive being written and read again.
#include "core/bootstrap/rendezvous.h"

#include "core/bootstrap/card_table.h"
#include "core/bootstrap/peer_card.h"
#include "core/bootstrap/root_address.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

enum class Kind : uint8_t { card, table, root };
constexpr uint8_t kKinds = 3;

template <class Read>
void check_round_trip(ConstBytes input, Read read) {
  accepted([&] {
    const ByteVector once = to_bytes(read(input));
    must(to_bytes(read(once)) == once, "what was read survives the wire");
  });
}

void check_root_address(ConstBytes input) {
  accepted([&] {
    const std::string once = to_text(read_root_address(std::string(as_text(input))));
    must(once.size() <= kMaxRendezvousBytes, "a root address fits into a rendezvous");
    must(to_text(read_root_address(once)) == once, "what was read survives the wire");
  });
}

void take(ConstBytes bytes) {
  Input input(bytes);
  switch (static_cast<Kind>(input.byte() % kKinds)) {
    case Kind::card:
      return check_round_trip(input.rest(), read_peer_card);
    case Kind::table:
      return check_round_trip(input.rest(), read_card_table);
    case Kind::root:
      return check_root_address(input.rest());
  }
}

ByteVector sample(Kind kind, ConstBytes message) {
  Writer out;
  out.put(kind);
  out.put_bytes(message);
  return out.take();
}

PeerCard busy_card() {
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
  const CardTable whole{.cards = {PeerCard{}, busy_card()}};
  const CardTable none{
      .code = Code::timed_out, .rank = 1, .reason = "rank 1 has not joined the job"};
  const RootAddress root{
      .port = 4711, .key = {}, .machine = "0123456789abcdef", .addresses = {"192.0.2.1", "::1"}};
  return {sample(Kind::card, to_bytes(busy_card())), sample(Kind::table, to_bytes(whole)),
          sample(Kind::table, to_bytes(none)), sample(Kind::root, as_bytes(to_text(root)))};
}

}  // namespace

const Target rendezvous{"rendezvous", take, samples};

}  // namespace hvd::fuzz
