#include "core/sim/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace hvd::sim {
namespace {

using std::chrono_literals::operator""ms;

constexpr std::array<std::string_view, kFaults> kFaultNames = {
    "none", "kill", "two kills", "pause", "partition", "delay", "clock jump"};
constexpr std::array<std::string_view, kMoments> kMomentNames = {
    "start", "negotiation", "transfer", "join", "set creation", "shutdown", "idle"};
constexpr int kLatest = 1500;        // steps
constexpr int kLongestBetween = 40;  // steps

class Drawing {
 public:
  Drawing(std::mt19937_64& random, const Places& places)
      : random_(random),
        places_(places),
        size_(std::accumulate(places.ranks_per_host.begin(), places.ranks_per_host.end(), 0)) {}

  FaultPlan draw() {
    FaultPlan plan;
    plan.fault = static_cast<Fault>(1 + below(kFaults - 1));
    if (plan.fault == Fault::partition && !divide(plan)) plan.fault = Fault::pause;
    plan.moment = static_cast<Moment>(below(kMoments));
    plan.after = plan.moment == Moment::start ? 0 : below(kLatest);
    plan.between = below(kLongestBetween);
    if (plan.ranks.empty()) choose_ranks(plan);
    plan.lasts = draw_time(plan.fault);
    return plan;
  }

 private:
  int below(size_t limit) { return static_cast<int>(random_() % limit); }
  bool chance(int percent) { return below(100) < percent; }

  /// Often rank 0, which has the Root.
  void choose_ranks(FaultPlan& plan) {
    const int first = chance(25) ? 0 : below(static_cast<size_t>(size_));
    plan.ranks = {first};
    if (plan.fault != Fault::two_kills) return;
    if (size_ < 3) {
      plan.fault = Fault::kill;  // of two ranks, one must be left to notice it
    } else {
      plan.ranks.push_back((first + 1 + below(static_cast<size_t>(size_ - 1))) % size_);
    }
  }

  /// By hosts, or anywhere if no memory is shared.
  bool divide(FaultPlan& plan) {
    const bool by_hosts = places_.shared_memory || chance(50);
    const size_t parts = by_hosts ? places_.ranks_per_host.size() : static_cast<size_t>(size_);
    if (parts < 2) return false;
    const uint64_t all = (uint64_t{1} << parts) - 1;
    const uint64_t side = 1 + random_() % (all - 1);
    int rank = 0;
    for (size_t host = 0; host < places_.ranks_per_host.size(); ++host) {
      for (int i = 0; i < places_.ranks_per_host[host]; ++i, ++rank) {
        if ((side >> (by_hosts ? host : static_cast<size_t>(rank)) & 1) != 0)
          plan.ranks.push_back(rank);
      }
    }
    return true;
  }

  Duration draw_time(Fault fault) {
    constexpr std::chrono::milliseconds kShort = kShortPause;
    if (fault == Fault::clock_jump) return std::chrono::minutes(1 + below(60));
    if (fault == Fault::delay || chance(35)) return (1 + below(kShort.count())) * 1ms;
    return kSimHeartbeat + std::chrono::seconds(1 + below(60));
  }

  std::mt19937_64& random_;
  const Places& places_;
  const int size_;
};

}  // namespace

std::string_view name_of(Fault fault) { return kFaultNames[static_cast<size_t>(fault)]; }
std::string_view name_of(Moment moment) { return kMomentNames[static_cast<size_t>(moment)]; }

bool FaultPlan::may_cost_ranks() const {
  if (kills()) return true;
  return (fault == Fault::pause || fault == Fault::partition) && lasts > kShortPause;
}

std::string FaultPlan::text() const {
  const double seconds = std::chrono::duration<double>(lasts).count();
  return fmt::format("{} of ranks [{}] at {} after {} steps, for {:g} s", name_of(fault),
                     fmt::join(ranks, ", "), name_of(moment), after, seconds);
}

FaultPlan draw_faults(std::mt19937_64& random, const Places& places) {
  return Drawing(random, places).draw();
}

void FaultCensus::add(const FaultCensus& other) {
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t moment = 0; moment < kMoments; ++moment)
      counts_[fault][moment] += other.counts_[fault][moment];
  }
}

std::string FaultCensus::text() const {
  std::string text = fmt::format("{:>12}", "");
  for (const std::string_view moment : kMomentNames) text += fmt::format(" {:>12}", moment);
  for (size_t fault = 1; fault < kFaults; ++fault) {
    text += fmt::format("\n{:>12}", kFaultNames[fault]);
    for (const uint64_t count : counts_[fault]) text += fmt::format(" {:>12}", count);
  }
  return text + "\n";
}

}  // namespace hvd::sim
