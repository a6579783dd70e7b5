#include "launcher/through/mpirun.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using FlavourKind = MpiFlavour::Kind;
using Words = std::vector<std::string>;

/// From this number on, one ssh per host in parallel is faster and more robust than a tree of ssh.
constexpr size_t kManyHosts = 64;
/// The first Open MPI with PRRTE's mpirun, which has other names for settings of ssh and files.
constexpr int kFirstWithPrrte = 5;

void add(Words& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

int major_version(std::string_view text) {
  const size_t parenthesis = text.find(')');
  const size_t digit = text.find_first_of("0123456789", parenthesis);
  int major = 0;
  if (parenthesis != std::string_view::npos && digit != std::string_view::npos)
    std::from_chars(text.data() + digit, text.data() + text.size(), major);
  return major;
}

/// Exports names only: values would be visible in this machine's process list.
Words names_to_export(const Environment& job) {
  Words names;
  for (const auto& [name, value] : job) {
    const bool plain =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (plain && name != "_") names.push_back(name);
  }
  return names;
}

/// Returns the hosts that have ranks.
std::vector<Host> used_hosts(const Options& options, const std::vector<Host>& hosts) {
  std::vector<Host> used;
  for (const Host& host : filled(hosts, options.num_proc)) {
    if (host.name.find(':') != std::string::npos)
      fail(Code::invalid_argument,
           fmt::format("host {}: mpirun does not support IPv6 addresses; give the host's name",
                       host.name));
    used.push_back(*std::ranges::find(hosts, host.name, &Host::name));
  }
  return used;
}

/// Returns the further arguments of ssh; empty if there are none.
std::string ssh_arguments(const Options& options) {
  Words words;
  if (options.ssh_port) add(words, {"-p", fmt::format("{}", *options.ssh_port)});
  if (options.ssh_identity) {
    if (options.ssh_identity->find_first_of(" \t") != std::string::npos)
      fail(Code::invalid_argument,
           fmt::format("--ssh-identity-file '{}': mpirun does not support a path with a blank",
                       *options.ssh_identity));
    add(words, {"-i", *options.ssh_identity});
  }
  return fmt::format("{}", fmt::join(words, " "));
}

class OpenMpi {
 public:
  OpenMpi(const MpiFlavour& flavour, const Options& options, const std::vector<Host>& hosts)
      : spectrum_(flavour.kind == FlavourKind::spectrum),
        prrte_(!spectrum_ && flavour.major >= kFirstWithPrrte),
        options_(options),
        hosts_(used_hosts(options, hosts)) {}

  ForeignLauncher launcher(const Environment& job) const {
    ForeignLauncher result{.arguments = {"mpirun", "--allow-run-as-root"},
                           .environment = job,
                           .folders = {},
                           .warnings = {}};
    Words& words = result.arguments;
    add_output(result);
    std::vector<std::string> listed;
    for (const Host& host : hosts_) listed.push_back(fmt::format("{}:{}", host.name, host.slots));
    add(words, {"-np", fmt::format("{}", options_.num_proc)});
    add(words, {"-H", fmt::format("{}", fmt::join(listed, ","))});
    add_binding(words);
    add_network(words);
    add_ssh(words);
    for (const std::string& name : names_to_export(job)) add(words, {"-x", name});
    add(words, options_.mpi_args);
    return result;
  }

 private:
  void add_output(ForeignLauncher& result) const {
    Words& words = result.arguments;
    if (prrte_) {
      add(words, {"--output", options_.prefix_timestamp ? "tag,timestamp" : "tag"});
    } else {
      add(words, {"--tag-output"});
      if (options_.prefix_timestamp) add(words, {"--timestamp-output"});
    }
    if (!options_.output_filename) return;
    // PRRTE takes a prefix of file names. The others take a folder, which they create.
    if (prrte_) result.folders.push_back(*options_.output_filename);
    add(words, {"--output-filename", *options_.output_filename + (prrte_ ? "/rank" : "")});
  }

  void add_binding(Words& words) const {
    if (!options_.binding_args.empty()) return add(words, options_.binding_args);
    if (spectrum_)
      return add(words, {"-bind-to", "socket", "-map-by", "socket", "-rank-by", "core"});
    add(words, {"--bind-to", "none", "--map-by", "slot"});
  }

  void add_network(Words& words) const {
    if (!spectrum_) {
      add(words, {"--mca", "pml", "ob1", "--mca", "btl", "^openib"});
    } else if (options_.no_infiniband) {
      add(words, {"-tcp"});
    }
    if (options_.interfaces.empty()) return;
    const std::string list = fmt::format("{}", fmt::join(options_.interfaces, ","));
    add(words, {"--mca", "btl_tcp_if_include", list});
    // PRRTE's own connections reject loopback, and choose by themselves.
    if (!prrte_) add(words, {"--mca", "oob_tcp_if_include", list});
  }

  void add_ssh(Words& words) const {
    const std::string ssh = ssh_arguments(options_);
    const std::string how = prrte_ ? "--prtemca" : "--mca";
    const std::string prefix = prrte_ ? "plm_ssh_" : "plm_rsh_";
    if (!ssh.empty()) add(words, {how, prefix + "args", ssh});
    if (hosts_.size() < kManyHosts) return;
    add(words, {how, prefix + "no_tree_spawn", "true"});
    add(words, {how, prefix + "num_concurrent", fmt::format("{}", hosts_.size())});
  }

  bool spectrum_;
  bool prrte_;
  const Options& options_;
  std::vector<Host> hosts_;
};

const char* name_of(FlavourKind kind) { return kind == FlavourKind::intel ? "Intel MPI" : "MPICH"; }

/// Throws unless every host has as many slots as the first.
void check_equal_slots(FlavourKind kind, const std::vector<Host>& hosts) {
  for (const Host& host : hosts)
    if (host.slots != hosts.front().slots)
      fail(Code::invalid_argument,
           fmt::format(
               "{} needs equal slots on every host: {} has {}, {} has {}; change -H, or use "
               "--gloo or Open MPI",
               name_of(kind), hosts.front().name, hosts.front().slots, host.name, host.slots));
}

ForeignLauncher through_hydra(FlavourKind kind, const Options& options,
                              const std::vector<Host>& listed, const Environment& job) {
  const std::vector<Host> hosts = used_hosts(options, listed);
  check_equal_slots(kind, hosts);
  if (options.interfaces.size() > 1)
    fail(Code::invalid_argument,
         fmt::format("{} uses only one network interface, and {} were named: {}; give one, or use "
                     "--gloo or Open MPI",
                     name_of(kind), options.interfaces.size(), fmt::join(options.interfaces, ",")));
  ForeignLauncher result{
      .arguments = {"mpirun", "-l"}, .environment = job, .folders = {}, .warnings = {}};
  Words& words = result.arguments;
  Words names;
  for (const Host& host : hosts) names.push_back(host.name);
  add(words, {"-np", fmt::format("{}", options.num_proc)});
  add(words, {"-ppn", fmt::format("{}", hosts.front().slots)});
  add(words, {"-hosts", fmt::format("{}", fmt::join(names, ","))});
  add(words, options.binding_args);
  if (!options.interfaces.empty()) add(words, {"-iface", options.interfaces.front()});
  add(words, {"-genvlist", fmt::format("{}", fmt::join(names_to_export(job), ","))});
  if (options.output_filename) {
    for (int rank = 0; rank < options.num_proc; ++rank)
      result.folders.push_back(fmt::format("{}/rank.{}", *options.output_filename, rank));
    add(words, {"-outfile-pattern", *options.output_filename + "/rank.%r/stdout"});
    add(words, {"-errfile-pattern", *options.output_filename + "/rank.%r/stderr"});
  }
  if (options.prefix_timestamp)
    result.warnings.push_back(fmt::format(
        "--prefix-output-with-timestamp: the mpirun of {} cannot print times", name_of(kind)));
  const std::string ssh = ssh_arguments(options);
  if (!ssh.empty())
    result.environment.insert_or_assign(kind == FlavourKind::intel
                                            ? "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"
                                            : "HYDRA_LAUNCHER_EXTRA_ARGS",
                                        ssh);
  add(words, options.mpi_args);
  return result;
}

}  // namespace

std::optional<MpiFlavour> flavour_of(std::string_view text) {
  const auto says = [&](std::string_view word) { return text.find(word) != text.npos; };
  if (says("IBM Spectrum MPI")) return MpiFlavour{FlavourKind::spectrum, 0};
  if (says("Open MPI") || says("OpenRTE"))
    return MpiFlavour{FlavourKind::open_mpi, major_version(text)};
  if (says("Intel(R) MPI")) return MpiFlavour{FlavourKind::intel, 0};
  if (says("MPICH") || says("HYDRA")) return MpiFlavour{FlavourKind::mpich, 0};
  return std::nullopt;
}

ForeignLauncher through_mpirun(const MpiFlavour& flavour, const Options& options,
                               const std::vector<Host>& hosts, const Environment& job) {
  const bool hydra = flavour.kind == FlavourKind::mpich || flavour.kind == FlavourKind::intel;
  ForeignLauncher result = hydra ? through_hydra(flavour.kind, options, hosts, job)
                                 : OpenMpi(flavour, options, hosts).launcher(job);
  add(result.arguments, options.command);
  return result;
}

}  // namespace hvd::launcher
