#include "launcher/elastic/desk.h"

#include "core/transport/job_number.h"

namespace hvd::launcher::elastic {

std::vector<Desk::Request> Desk::take_requests() {
  std::vector<Request> asking;
  for (const auto& [key, value] : store_.matching(kElasticAsks)) {
    const auto worker = worker_from(std::string_view(key).substr(kElasticAsks.size()));
    const auto request = place_request_from(as_text(value));
    if (!worker || !request || ignored_.contains(*worker)) continue;
    Client& client = clients_[*worker];
    if (client.request == request->id) continue;
    client.request = request->id;
    client.is_open = true;
    if (const auto& why = closed_ ? closed_ : client.refusal) {
      answer(*worker, client, {.refusal = *why, .job_ends = closed_.has_value()});
    } else {
      asking.push_back({*worker, request->version});
    }
  }
  return asking;
}

std::vector<WorkerId> Desk::take_departures() {
  std::vector<WorkerId> leaving;
  for (const auto& [key, value] : store_.matching(kElasticLeaves)) {
    store_.forget(key);
    if (const auto worker = worker_from(std::string_view(key).substr(kElasticLeaves.size())))
      leaving.push_back(*worker);
  }
  return leaving;
}

void Desk::give_place(const WorkerId& worker, const Environment& variables) {
  answer(worker, clients_[worker], {.news = next_news_, .variables = variables});
}

void Desk::refuse(const WorkerId& worker, const std::string& why) {
  Client& client = clients_[worker];
  client.refusal = why;
  if (client.is_open) answer(worker, client, {.refusal = why});
}

void Desk::close(const std::string& why) {
  if (closed_) return;
  closed_ = why;
  for (auto& [worker, client] : clients_)
    if (client.is_open && !ignored_.contains(worker))
      answer(worker, client, {.refusal = why, .job_ends = true});
}

void Desk::answer(const WorkerId& worker, Client& client, const Place& place) {
  store_.forget(client.answer_key);
  client.answer_key = elastic_place_key(worker, client.request);
  client.is_open = false;
  store_.set(client.answer_key, to_bytes(place));
}

void Desk::announce(const ElasticUpdate& update) {
  store_.set(elastic_news_key(next_news_++), to_bytes(update));
}

void Desk::forget_before(uint32_t generation) {
  store_.forget_jobs_before(job_number(generation, 0));
  while (oldest_news_ < next_news_) store_.forget(elastic_news_key(oldest_news_++));
}

}  // namespace hvd::launcher::elastic
