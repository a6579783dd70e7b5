// The messages between StoreClient and StoreServer, sent as control frames of a Channel of
// generation 0.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/bytes.h"

namespace hvd {

inline constexpr uint32_t kStoreGeneration = 0;  // one Store serves all generations
inline constexpr const char* kStorePurpose = "store";

enum class StoreOperation : uint8_t { set, wait, peek };
enum class StoreStatus : uint8_t { stored, found, absent, refused };

/// A new request of a client cancels its previous wait.
struct StoreRequest {
  uint32_t number = 0;  ///< returned in the reply; the client skips replies to abandoned requests
  StoreOperation operation = StoreOperation::set;
  std::string key;
  ConstBytes value;  ///< borrowed
};

struct StoreReply {
  uint32_t number = 0;
  StoreStatus status = StoreStatus::stored;
  ConstBytes value;  ///< borrowed; the reason if refused: the store is full, the job has ended
};

ByteVector to_bytes(const StoreRequest& request);
ByteVector to_bytes(const StoreReply& reply);
/// Throw Error{internal} if malformed. The values point into `bytes`.
StoreRequest read_store_request(ConstBytes bytes);
StoreReply read_store_reply(ConstBytes bytes);

}  // namespace hvd
