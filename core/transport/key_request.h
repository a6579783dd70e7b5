// How a rank, or a process that replaces one, requests the job's key: it connects to the abstract
// unix socket of the process that started the ranks of its host (launcher/process/keeper.h), which
// identifies the peer through the kernel. The name of the requester's own socket is the whole
// request. It is available with the connection, so the server never waits for a partial request.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/transport/handshake.h"

namespace hvd {

/// `begins`: the process starts a job as this rank and also requests its generation. Otherwise it
/// requests only the key.
struct KeyRequest {
  bool begins = true;
  int rank = 0;  ///< in an elastic job: the slot of the worker, since its rank may change
  /// In an elastic job: the launcher's generation in which the worker has its place.
  std::optional<uint32_t> generation{};
};

/// Returns a unique socket name for the request.
std::string to_socket_name(const KeyRequest& request);
/// Parses a socket name; nullopt if it is not a key request.
std::optional<KeyRequest> key_request_of(std::string_view socket_name);

/// The key, or the reason why the request was refused.
struct KeyAnswer {
  JobKey key{};
  uint32_t generation =
      0;  ///< generation of the job that the rank starts, if `begins`; counts from 1
  std::string refusal{};  ///< empty: not refused
};

inline constexpr size_t kMaxKeyAnswerBytes = 1000;

/// Truncates a refusal that is too long.
ByteVector to_bytes(const KeyAnswer& answer);
/// Throws Error{internal} if malformed.
KeyAnswer read_key_answer(ConstBytes bytes);

}  // namespace hvd
