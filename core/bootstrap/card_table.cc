#include "core/bootstrap/card_table.h"

#include "core/transport/store.h"

namespace hvd {
namespace {

constexpr size_t kMaxReasonBytes = 64 * KiB;

}  // namespace

ByteVector to_bytes(const CardTable& table) {
  Writer out;
  out.put(table.code);
  out.put(table.rank);
  out.put_text(table.reason);
  out.put_count(table.cards.size());
  for (PeerCard card : table.cards) {
    card.agreed.clear();  // compared already, and the longest part
    const ByteVector bytes = to_bytes(card);
    out.put_text(as_text(bytes));
  }
  return out.take();
}

CardTable read_card_table(ConstBytes bytes) {
  Reader in(bytes);
  CardTable table;
  table.code = in.get_enum(Code::internal);
  table.rank = in.get<int32_t>();
  table.reason = in.get_text(kMaxReasonBytes);
  for (size_t left = in.get_count(kMaxStoreValueBytes); left > 0; --left)
    table.cards.push_back(read_peer_card(as_bytes(in.get_text(kMaxStoreValueBytes))));
  in.finish();
  return table;
}

}  // namespace hvd
