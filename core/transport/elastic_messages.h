// What the workers of an elastic job and the launcher tell each other, through the launcher's
// Store. Pure.
//
// A worker that wants a place in the next generation sets elastic_asks_key() to a PlaceRequest and
// waits for elastic_place_key(). The launcher answers with a Place.
// Announcements are numbered: the worker waits for the first one after its Place. A worker that
// leaves the job sets elastic_leaves_key() before it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/knobs.h"
#include "core/transport/worker_id.h"

namespace hvd {

inline constexpr std::string_view kElasticAsks = "elastic/asks/";
inline constexpr std::string_view kElasticLeaves = "elastic/leaves/";
std::string elastic_asks_key(const WorkerId& worker);
std::string elastic_leaves_key(const WorkerId& worker);
/// `request`: PlaceRequest::id.
std::string elastic_place_key(const WorkerId& worker, const std::string& request);
/// `number`: from 1.
std::string elastic_news_key(uint64_t number);

struct PlaceRequest {
  std::string id{};       ///< that the worker uses only once
  std::string version{};  ///< of Horovod in its process
  bool operator==(const PlaceRequest&) const = default;
};
std::string to_text(const PlaceRequest& request);
/// Returns nullopt if the text is not a request.
std::optional<PlaceRequest> place_request_from(std::string_view text);

/// A worker's place in a generation, or why it has none.
struct Place {
  std::string refusal{};    ///< a sentence; empty: the worker has a place
  bool job_ends = false;    ///< refused like all others: there is no next generation
  uint64_t news = 1;        ///< the number of the first announcement that concerns it
  Environment variables{};  ///< that describe its rank and generation
  bool operator==(const Place&) const = default;
};
ByteVector to_bytes(const Place& place);
/// Throws Error{internal} if malformed.
Place read_place(ConstBytes bytes);

/// An announcement: the next generation will have other workers.
struct ElasticUpdate {
  bool added = false;      ///< workers wait to join
  bool removed = false;    ///< workers of this generation will leave
  double timestamp = 0.0;  ///< seconds by the launcher's clock
  bool operator==(const ElasticUpdate&) const = default;
};
ByteVector to_bytes(const ElasticUpdate& update);
/// Throws Error{internal} if malformed.
ElasticUpdate read_elastic_update(ConstBytes bytes);

}  // namespace hvd
