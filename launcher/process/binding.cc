#include "launcher/process/binding.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd::launcher {
namespace {

/// Cores that each rank must get: a rank on one core would compete with its own data loaders while
/// another rank's core may be idle.
constexpr int kWantedCores = 2;

/// Returns why no rank is bound; empty if all are.
std::string obstacle(const Cores& cores, int ranks, BindingWish wish) {
  const int count = static_cast<int>(cores.list.size());
  if (wish == BindingWish::none) return "--binding-args none";
  if (wish == BindingWish::cores)
    return count >= ranks ? "" : fmt::format("too few cores: {} for {} ranks", count, ranks);
  if (count < kWantedCores * ranks)
    return fmt::format("fewer than {} cores for each of {} ranks", kWantedCores, ranks);
  if (cores.quota && *cores.quota < count)
    return fmt::format("a cgroup limits CPU time to {:.3g} of {} cores", *cores.quota, count);
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

Binding binding_here(int ranks, BindingWish wish) {
  if (ranks < 2) return {};
  const std::vector<int> allowed = allowed_cpus();
  if (wish == BindingWish::cores || static_cast<int>(allowed.size()) >= kWantedCores * ranks)
    return bind_ranks(read_cores(allowed, ""), ranks, wish);
  Cores few;  // too few to bind ranks, so their topology does not matter
  for (const int cpu : allowed) few.list.push_back({.cpus = {cpu}});
  return bind_ranks(few, ranks, wish);
}

bool is_refused(const Binding& binding, BindingWish wish) {
  return wish == BindingWish::cores && !binding.why_not.empty();
}

std::vector<std::string> cpus_by_slot(const Binding& binding) {
  std::vector<std::string> texts;
  for (const std::vector<int>& cpus : binding.cpus) texts.push_back(cpus_text(cpus));
  return texts;
}

}  // namespace hvd::launcher
