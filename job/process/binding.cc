#include "job/process/binding.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd::job {
namespace {

/// A rank on one core would wait for that core while a loader that it has started uses it, and the
/// core of another rank is idle.
constexpr int kWantedCores = 2;

/// Why nobody is bound; empty: all are.
std::string obstacle(const Cores& cores, int ranks, BindingWish wish) {
  const int count = static_cast<int>(cores.list.size());
  if (wish == BindingWish::none) return "--binding-args none";
  if (wish == BindingWish::cores)
    return count >= ranks ? "" : fmt::format("too few cores: {} for {} ranks", count, ranks);
  if (count < kWantedCores * ranks)
    return fmt::format("fewer than {} cores for each of {} ranks", kWantedCores, ranks);
  if (cores.quota && *cores.quota < count)
    return fmt::format("a cgroup grants the time of {:.3g} of {} cores", *cores.quota, count);
  return "";
}

std::vector<int> cpus_of(const std::vector<Core>& cores, size_t begin, size_t end) {
  std::vector<int> cpus;
  for (size_t core = begin; core < end; ++core)
    cpus.insert(cpus.end(), cores[core].cpus.begin(), cores[core].cpus.end());
  std::ranges::sort(cpus);
  return cpus;
}

}  // namespace

std::optional<BindingWish> parse_wish(const std::vector<std::string>& binding_args) {
  if (binding_args.empty()) return BindingWish::sensible;
  if (binding_args == std::vector<std::string>{"none"}) return BindingWish::none;
  if (binding_args == std::vector<std::string>{"cores"}) return BindingWish::cores;
  return std::nullopt;
}

Binding bind_ranks(const Cores& cores, int ranks, BindingWish wish) {
  Binding binding;
  if (ranks < 2) return binding;
  const double count = static_cast<double>(cores.list.size());
  const double granted = std::min(count, cores.quota.value_or(count));
  binding.threads = std::max(1, static_cast<int>(granted) / ranks);
  binding.why_not = obstacle(cores, ranks, wish);
  if (!binding.why_not.empty()) return binding;
  const auto shares = static_cast<size_t>(ranks);
  for (size_t share = 0; share < shares; ++share)
    binding.cpus.push_back(cpus_of(cores.list, share * cores.list.size() / shares,
                                   (share + 1) * cores.list.size() / shares));
  return binding;
}

Binding binding_here(const std::vector<Place>& places, BindingWish wish) {
  const int ranks = static_cast<int>(places.size());
  if (ranks < 2) return {};
  const std::vector<int> allowed = allowed_cpus();
  if (wish == BindingWish::cores || static_cast<int>(allowed.size()) >= kWantedCores * ranks)
    return bind_ranks(read_cores(allowed, ""), ranks, wish);
  Cores few;  // so few that it does not matter what they are
  for (const int cpu : allowed) few.list.push_back({.cpus = {cpu}});
  return bind_ranks(few, ranks, wish);
}

bool is_refused(const Binding& binding, BindingWish wish) {
  return wish == BindingWish::cores && !binding.why_not.empty();
}

std::string describe(const Binding& binding, const std::vector<Place>& places) {
  if (binding.cpus.empty())
    return fmt::format("not bound{}{}", binding.why_not.empty() ? "" : ": ", binding.why_not);
  std::string text;
  for (size_t share = 0; share < binding.cpus.size(); ++share)
    text += fmt::format("{}rank {}: {}", share == 0 ? "" : "; ", places[share].rank,
                        cpus_text(binding.cpus[share]));
  return text;
}

}  // namespace hvd::job
