#include "core/bootstrap/membership.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/version.h"
#include "core/bootstrap/encryption.h"
#include "core/bootstrap/job_key.h"
#include "core/bootstrap/start_deadline.h"
#include "core/bootstrap/variables.h"
#include "core/transport/job_number.h"
#include "core/transport/rank_board.h"

namespace hvd {
namespace {

constexpr const char* kWorker = "HOROVOD_WORKER";
constexpr const char* kGeneration = "HOROVOD_GENERATION";
constexpr const char* kStoreHost = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
constexpr const char* kStorePort = "HOROVOD_GLOO_RENDEZVOUS_PORT";

/// A boundary. Returns what `call` returns. If the launcher does not answer it, the error says what
/// this means for the process, which cannot know whether the launcher or the network is down.
template <class Call>
auto with_launcher(Call call) try {
  return call();
} catch (const Error& error) {
  const bool is_lost = error.code() == Code::peer_lost || error.code() == Code::timed_out;
  if (!is_lost) fail(error.code(), error.what(), error.rank());
  fail(
      error.code(),
      fmt::format("the launcher of this elastic job cannot be reached any more ({}): if horovodrun "
                  "still runs, the job goes on without this host; otherwise the job has ended",
                  error.what()));
}

}  // namespace

std::optional<WorkerId> worker_of(const Environment& environment) {
  const auto text = variable(environment, kWorker);
  if (!text) return std::nullopt;
  const auto worker = worker_from(*text);
  if (!worker)
    fail(Code::invalid_argument,
         fmt::format("{}={} is not the name of a worker; horovodrun sets it", kWorker, *text));
  return worker;
}

std::optional<uint32_t> place_generation(const Environment& environment) {
  if (!variable(environment, kWorker)) return std::nullopt;
  const auto number = number_variable(environment, kGeneration, 0, kMaxGeneration);
  if (!number) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

Membership::Membership(const Environment& environment)
    : environment_(environment),
      worker_(worker_of(environment).value()),
      generation_(place_generation(environment)) {}

std::optional<uint32_t> Membership::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

Environment Membership::variables() const {
  const std::lock_guard lock(mutex_);
  return variables_;
}

void Membership::ask() {
  const std::lock_guard lock(mutex_);
  std::string request = fmt::format("{}-{}", ::getpid(), ++requests_);
  const std::string text = to_text(PlaceRequest{.id = request, .version = kVersion});
  with_launcher([&] { store().set(elastic_asks_key(worker_), as_bytes(text)); });
  RankBoard::enter(RankStage::next_generation);
  request_ = std::move(request);
}

bool Membership::await_place(Duration timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (request_.empty() && generation_) return true;
  }
  if (request_.empty()) ask();
  const std::lock_guard lock(mutex_);
  const auto bytes =
      with_launcher([&] { return store().wait(elastic_place_key(worker_, request_), timeout); });
  if (!bytes) return false;
  request_.clear();
  Place place = read_place(*bytes);
  RankBoard::enter(place.refusal.empty() ? RankStage::before_init : RankStage::after_shutdown);
  if (!place.refusal.empty())
    fail(place.job_ends ? Code::peer_lost : Code::shut_down, place.refusal);
  generation_ =
      place_generation({{kWorker, to_text(worker_)}, {kGeneration, place.variables[kGeneration]}});
  variables_ = std::move(place.variables);
  next_news_ = place.news;
  return true;
}

void Membership::leave() {
  const std::lock_guard lock(mutex_);
  with_launcher([&] { store().set(elastic_leaves_key(worker_), {}); });
}

std::optional<ElasticUpdate> Membership::pending_update() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !request_.empty()) return std::nullopt;  // the next place knows what is new
  std::optional<ElasticUpdate> all;
  while (const auto one = next_update()) {
    if (!all) all.emplace();
    all->added |= one->added;
    all->removed |= one->removed;
    all->timestamp = one->timestamp;
  }
  return all;
}

std::optional<ElasticUpdate> Membership::next_update() {
  const auto bytes = store().poll(elastic_news_key(next_news_));
  if (!bytes) return std::nullopt;
  ++next_news_;
  return read_elastic_update(*bytes);
}

StoreClient& Membership::store() {
  if (store_) return *store_;
  const Knobs knobs = knobs_from(environment_);
  const StartDeadline deadline(knobs.start_timeout);
  const KeyAnswer answer =
      ask_for_key(environment_, {.begins = false, .rank = worker_.slot}, deadline);
  const auto port = number_variable(environment_, kStorePort, 1, 65535);
  const Address launcher{variable(environment_, kStoreHost).value_or(""),
                         static_cast<uint16_t>(port.value_or(0))};
  const StoreClient::Options options{.rank = worker_.slot, .encryption = encryption_of(knobs)};
  store_ =
      std::make_unique<StoreClient>(std::vector{launcher}, answer.key, options, deadline.left());
  return *store_;
}

}  // namespace hvd
