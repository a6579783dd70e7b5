// What a StoreClient and the StoreServer say to each other, as control frames of a Channel of
// generation 0.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/bytes.h"

namespace hvd {

inline constexpr uint32_t kStoreGeneration = 0;  // one Store serves all generations of a job
inline constexpr const char* kStorePurpose = "store";

enum class StoreOperation : uint8_t { set, wait, peek };
enum class StoreStatus : uint8_t { stored, found, absent, refused };

/// A new request of a client ends its wait before.
struct StoreRequest {
  uint32_t number =
      0;  ///< comes back in the reply; a reply to a request that was given up is skipped
  StoreOperation operation = StoreOperation::set;
  std::string key;
  ConstBytes value;  ///< borrowed
};

struct StoreReply {
  uint32_t number = 0;
  StoreStatus status = StoreStatus::stored;
  ConstBytes value;  ///< borrowed; of a refused one, the reason
};

ByteVector to_bytes(const StoreRequest& request);
ByteVector to_bytes(const StoreReply& reply);
/// Both throw Error{internal} when malformed. The values point into `bytes`.
StoreRequest read_store_request(ConstBytes bytes);
StoreReply read_store_reply(ConstBytes bytes);

}  // namespace hvd
