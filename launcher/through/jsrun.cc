#include "launcher/through/jsrun.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

void add_slots(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto known = std::ranges::find(hosts, name, &Host::name);
  if (known == hosts.end()) {
    hosts.push_back({name, slots});
  } else {
    known->slots += slots;
  }
}

/// `name slots name slots`
std::vector<Host> counted(const std::string& text) {
  std::vector<Host> hosts;
  std::stringstream words(text);
  std::string name, number;
  while (words >> name) {
    int slots = 0;
    if (words >> number) std::from_chars(number.data(), number.data() + number.size(), slots);
    if (slots < 1)
      fail(Code::invalid_argument,
           fmt::format("LSB_MCPU_HOSTS='{}': expected 'host slots host slots'", text));
    add_slots(hosts, name, slots);
  }
  return hosts;
}

/// `name name name`: each name once per slot.
std::vector<Host> repeated(const std::string& text) {
  std::vector<Host> hosts;
  std::stringstream words(text);
  for (std::string name; words >> name;) add_slots(hosts, name, 1);
  return hosts;
}

/// Returns the cores of one of the `local_size` ranks of a host, as a range. With fewer cores than
/// ranks, several ranks get the same core.
std::string cores_of(int local_rank, int local_size, int cores) {
  const int each = std::max(1, cores / local_size);
  const int first = local_rank * each % cores;
  return each == 1 ? fmt::format("{{{}}}", first)
                   : fmt::format("{{{}-{}}}", first, first + each - 1);
}

std::string names_of(const std::vector<Host>& hosts) {
  std::string names;
  for (const Host& host : hosts) names += (names.empty() ? "" : ", ") + host.name;
  return names;
}

}  // namespace

bool is_in_lsf(const Environment& environment) {
  const auto job = environment.find("LSB_JOBID");
  return job != environment.end() && !job->second.empty();
}

std::vector<Host> lsf_allocation(const Environment& environment) {
  if (!is_in_lsf(environment)) return {};
  const auto text_of = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::string with_counts = text_of("LSB_MCPU_HOSTS");
  auto hosts = with_counts.empty() ? repeated(text_of("LSB_HOSTS")) : counted(with_counts);
  // The batch script has one slot on its own node, listed before the compute nodes.
  const bool batch_node = hosts.size() > 1 && hosts.front().slots == 1 &&
                          std::ranges::all_of(hosts.begin() + 1, hosts.end(),
                                              [](const Host& host) { return host.slots > 1; });
  if (batch_node) hosts.erase(hosts.begin());
  return hosts;
}

std::string rank_file(const std::vector<Host>& filled, const std::vector<Host>& allocation) {
  std::string text = "overlapping_rs: allow\ncpu_index_using: logical\n";
  int rank = 0;
  for (const Host& host : filled) {
    const auto allocated = std::ranges::find(allocation, host.name, &Host::name);
    if (allocated == allocation.end())
      fail(Code::invalid_argument,
           fmt::format("host {} is not in the allocation of this LSF job, which has {}", host.name,
                       allocation.empty() ? "no hosts" : names_of(allocation)));
    for (int local_rank = 0; local_rank < host.slots; ++local_rank)
      text += fmt::format("rank: {}: {{ hostname: {}; cpu: {} ; gpu: * ; mem: * }}\n", rank++,
                          host.name, cores_of(local_rank, host.slots, allocated->slots));
  }
  return text;
}

bool needs_rank_file(const Options& options) { return options.binding_args.empty(); }

ForeignLauncher through_jsrun(const Options& options, const std::string& rank_file_path,
                              const Environment& job) {
  ForeignLauncher result{.arguments = {"jsrun"}, .environment = job, .folders = {}, .warnings = {}};
  auto& words = result.arguments;
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (needs_rank_file(options)) add({"--erf_input", rank_file_path});
  add(options.binding_args);
  if (options.output_filename)
    add({"--stdio_stdout", *options.output_filename, "--stdio_stderr", *options.output_filename});
  if (options.prefix_timestamp)
    result.warnings.push_back("--prefix-output-with-timestamp: jsrun cannot print times");
  add(options.mpi_args);
  add(options.command);
  return result;
}

}  // namespace hvd::launcher
