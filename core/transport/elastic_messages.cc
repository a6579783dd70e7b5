#include "core/transport/elastic_messages.h"

#include <fmt/core.h>

#include <utility>

namespace hvd {
namespace {

constexpr size_t kMaxTextBytes = 64 * KiB;
constexpr size_t kMaxRequestBytes = 200;
constexpr uint64_t kMaxVariables = 1000;

}  // namespace

std::string elastic_asks_key(const WorkerId& worker) {
  return fmt::format("{}{}", kElasticAsks, to_text(worker));
}

std::string elastic_leaves_key(const WorkerId& worker) {
  return fmt::format("{}{}", kElasticLeaves, to_text(worker));
}

std::string elastic_place_key(const WorkerId& worker, const std::string& request) {
  return fmt::format("elastic/place/{}/{}", to_text(worker), request);
}

std::string elastic_news_key(uint64_t number) { return fmt::format("elastic/news/{}", number); }

std::string to_text(const PlaceRequest& request) {
  return fmt::format("{} {}", request.id, request.version);
}

std::optional<PlaceRequest> place_request_from(std::string_view text) {
  const size_t space = text.find(' ');
  if (text.size() > kMaxRequestBytes || space == std::string_view::npos) return std::nullopt;
  return PlaceRequest{.id = std::string(text.substr(0, space)),
                      .version = std::string(text.substr(space + 1))};
}

ByteVector to_bytes(const Place& place) {
  Writer out;
  out.put_text(place.refusal);
  out.put(place.job_ends);
  out.put(place.news);
  out.put_count(place.variables.size());
  for (const auto& [name, value] : place.variables) {
    out.put_text(name);
    out.put_text(value);
  }
  return out.take();
}

Place read_place(ConstBytes bytes) {
  Reader in(bytes);
  Place place;
  place.refusal = in.get_text(kMaxTextBytes);
  place.job_ends = in.get_bool();
  place.news = in.get<uint64_t>();
  for (uint64_t left = in.get_count(kMaxVariables); left > 0; --left) {
    std::string name = in.get_text(kMaxTextBytes);
    place.variables.insert_or_assign(std::move(name), in.get_text(kMaxTextBytes));
  }
  in.finish();
  return place;
}

ByteVector to_bytes(const ElasticUpdate& update) {
  Writer out;
  out.put(update.added);
  out.put(update.removed);
  out.put(update.timestamp);
  return out.take();
}

ElasticUpdate read_elastic_update(ConstBytes bytes) {
  Reader in(bytes);
  ElasticUpdate update;
  update.added = in.get_bool();
  update.removed = in.get_bool();
  update.timestamp = in.get<double>();
  in.finish();
  return update;
}

}  // namespace hvd
