#include "launcher/options/flags.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "launcher/options/words.h"

namespace hvd::launcher {
namespace {

/// A larger number of processes is a typing error.
constexpr int kMaxProcesses = 65536;
constexpr int kMaxPort = 65535;

int number_of(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Handlers of the rows. The parser has checked the type of the value.

template <auto Field>
void turn_on(Options& options, const Given&) {
  options.*Field = true;
}

template <auto Field>
void set_number(Options& options, const Given& given) {
  options.*Field = number_of(given.text());
}

template <auto Field>
void set_text(Options& options, const Given& given) {
  options.*Field = given.text();
}

template <auto Field>
void set_words(Options& options, const Given& given) {
  options.*Field = split_words(given.spelled, given.text());
}

/// Modes are ordered by precedence: --help overrides all others.
template <Options::Mode Mode>
void choose_mode(Options& options, const Given&) {
  options.mode = std::max(options.mode, Mode);
}

void choose_json(Options& options, const Given& given) {
  choose_mode<Options::Mode::dump>(options, given);
  options.dump_as_json = true;
}

void set_interfaces(Options& options, const Given& given) {
  options.interfaces.clear();
  for (const std::string_view name : items(given.text())) options.interfaces.emplace_back(name);
  if (given.spelled == "--network-interface" && options.interfaces.size() > 1)
    options.warnings.push_back(
        "--network-interface with a comma is deprecated; use --network-interfaces");
}

void set_cooldown(Options& options, const Given& given) {
  options.cooldown = {number_of(given.values[0]), number_of(given.values[1])};
}

void set_chaos(Options& options, const Given& given) { options.chaos = parse_chaos(given.text()); }

void ignore(Options&, const Given&) {}

constexpr Flag kOwnFlags[] = {
    // ---- Job ----
    {.names = "-np,--num-proc,--np",
     .dest = "num_proc",
     .kind = FlagKind::integer,
     .value = "N",
     .min = 1,
     .max = kMaxProcesses,
     .help =
         "Number of processes. Required, except in an LSF job, where all slots are the default.",
     .take = set_number<&Options::num_proc>},
    {.names = "-H,--hosts",
     .dest = "hosts",
     .value = "HOST:SLOTS,...",
     .initial = "localhost with N slots",
     .exclusive = "hosts",
     .help = "Hosts, each with its number of slots (processes); 1 slot if no number is given. An "
             "IPv6 address is written in brackets: [fd00::1]:4.",
     .take = set_text<&Options::hosts>},
    {.names = "--hostfile,-hostfile",
     .dest = "hostfile",
     .value = "FILE",
     .exclusive = "hosts",
     .help = "File with one host per line, in mpirun's format: 'host slots=4', 'host:4' or 'host'; "
             "'#' begins a comment.",
     .take = set_text<&Options::hostfile>},
    {.names = "--config-file",
     .dest = "config_file",
     .value = "FILE",
     .help = "YAML file with settings. Flags override it, and it overrides variables.",
     .take = set_text<&Options::config_file>},
    {.names = "-p,--ssh-port",
     .dest = "ssh_port",
     .kind = FlagKind::integer,
     .value = "PORT",
     .min = 1,
     .max = kMaxPort,
     .initial = "ssh's own",
     .help = "Port of the ssh server on other hosts.",
     .take = set_number<&Options::ssh_port>},
    {.names = "-i,--ssh-identity-file",
     .dest = "ssh_identity_file",
     .value = "FILE",
     .initial = "ssh's own",
     .help = "Private key file for ssh to other hosts.",
     .take = set_text<&Options::ssh_identity>},
    {.names = "--network-interfaces,--network-interface",
     .dest = "nics",
     .kind = FlagKind::names,
     .value = "NAME,...",
     .initial = "all",
     .help = "Network interfaces to use.",
     .take = set_interfaces},
    {.names = "--gloo",
     .dest = "use_gloo",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .exclusive = "launcher",
     .help = "Start the ranks with the built-in launcher (the default).",
     .take = turn_on<&Options::gloo>},
    {.names = "--mpi",
     .dest = "use_mpi",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .exclusive = "launcher",
     .help = "Start the ranks with mpirun of Open MPI, Spectrum MPI, MPICH or Intel MPI.",
     .take = turn_on<&Options::mpi>},
    {.names = "--jsrun",
     .dest = "use_jsrun",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .exclusive = "launcher",
     .help = "Start the ranks with jsrun, inside an LSF job.",
     .take = turn_on<&Options::jsrun>},
    {.names = "--mpi-args",
     .dest = "mpi_args",
     .kind = FlagKind::words,
     .value = "'ARG ...'",
     .help = "With --mpi or --jsrun: further arguments for it, in one word: "
             "--mpi-args='--mca btl tcp,self'.",
     .take = set_words<&Options::mpi_args>},
    {.names = "--binding-args",
     .dest = "binding_args",
     .kind = FlagKind::words,
     .value = "'ARG ...'",
     .initial = "cores",
     .help =
         "Binding of ranks to cores: 'cores' divides the cores of a host among its ranks, "
         "'none' does not bind. With --mpi and --jsrun: the binding arguments of that launcher.",
     .take = set_words<&Options::binding_args>},
    {.names = "--tcp",
     .dest = "tcp_flag",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "TCP only: sets NCCL_IB_DISABLE=1.",
     .take = turn_on<&Options::no_infiniband>},
    {.names = "--disable-cache",
     .dest = "disable_cache",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "No effect: nothing is cached between starts.",
     .take = ignore},
    {.names = "-cb,--check-build",
     .dest = "check_build",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Print the features of this installation and exit.",
     .take = choose_mode<Options::Mode::check_build>},
    {.names = "--doctor",
     .dest = "doctor",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Check this host, or all hosts of -H, print problems with their remedies, and exit.",
     .take = choose_mode<Options::Mode::doctor>},
    {.names = "--dump",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help =
         "Print what each rank of a running job waits for and where its main thread is, and "
         "exit. The first line states the cause of a hang. The process id of its horovodrun or "
         "of one of its ranks may follow: horovodrun --dump 4711. It is needed if several jobs run "
         "on this host, or if another program has started the ranks.",
     .take = choose_mode<Options::Mode::dump>},
    {.names = "--dump-json",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "The same as JSON.",
     .take = choose_json},
    {.names = "-v,--version",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Print the version and exit.",
     .take = choose_mode<Options::Mode::version>},
    {.names = "-h,--help",
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Print this help and exit.",
     .take = choose_mode<Options::Mode::help>},
    // ---- Output ----
    {.names = "--output-filename",
     .dest = "output_filename",
     .heading = Heading::output,
     .value = "FOLDER",
     .help = "Write the output of each rank to files as well: FOLDER/rank.<rank>/stdout and "
             "stderr.",
     .take = set_text<&Options::output_filename>},
    {.names = "--prefix-output-with-timestamp,-prefix-timestamp",
     .dest = "prefix_output_with_timestamp",
     .heading = Heading::output,
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Prefix the lines of ranks with the time.",
     .take = turn_on<&Options::prefix_timestamp>},
    {.names = "--verbose",
     .dest = "verbose",
     .heading = Heading::output,
     .kind = FlagKind::toggle,
     .value_count = 0,
     .help = "Log the steps of the launcher; HOROVOD_LOG_LEVEL=info for ranks, unless set.",
     .take = turn_on<&Options::verbose>},
    // ---- Elastic jobs ----
    {.names = "--min-np,--min-num-proc",
     .dest = "min_num_proc",
     .heading = Heading::elastic,
     .kind = FlagKind::integer,
     .value = "N",
     .min = 1,
     .max = kMaxProcesses,
     .initial = "-np",
     .help = "Makes the job elastic: it goes on while at least N processes are left.",
     .take = set_number<&Options::min_num_proc>},
    {.names = "--max-np,--max-num-proc",
     .dest = "max_num_proc",
     .heading = Heading::elastic,
     .kind = FlagKind::integer,
     .value = "N",
     .min = 1,
     .max = kMaxProcesses,
     .initial = "-np; with --host-discovery-script, all slots",
     .help = "Maximum number of processes: the job grows to it when slots are free.",
     .take = set_number<&Options::max_num_proc>},
    {.names = "--host-discovery-script",
     .dest = "host_discovery_script",
     .heading = Heading::elastic,
     .value = "FILE",
     .exclusive = "hosts",
     .help = "Makes the job elastic: program that prints the hosts that are available now, one per "
             "line: 'host:slots' or 'host'. It is run every second.",
     .take = set_text<&Options::discovery_script>},
    {.names = "--slots-per-host",
     .dest = "slots",
     .heading = Heading::elastic,
     .kind = FlagKind::integer,
     .value = "N",
     .min = 1,
     .max = kMaxProcesses,
     .help = "Slots of hosts that --host-discovery-script prints without a number.",
     .take = set_number<&Options::slots_per_host>},
    {.names = "--reset-limit",
     .dest = "reset_limit",
     .heading = Heading::elastic,
     .kind = FlagKind::integer,
     .value = "N",
     .initial = "no limit",
     .help = "How often the job may begin again with other processes.",
     .take = set_number<&Options::reset_limit>},
    {.names = "--blacklist-cooldown-range",
     .dest = "cooldown_range",
     .heading = Heading::elastic,
     .kind = FlagKind::integer,
     .value = "LOW HIGH",
     .value_count = 2,
     .min = 1,
     .max = 3600,
     .initial = "none: a host is not used again after two failures",
     .help = "Seconds for which a host is not used after a failure: about LOW after the first one, "
             "twice as long after each further one, up to HIGH.",
     .take = set_cooldown},
    {.names = "--chaos",
     .dest = "chaos",
     .heading = Heading::elastic,
     .value = "kill=TIME",
     .help = "To try out recovery: kills a random rank every TIME, such as 30s. kill=30s,seed=7 "
             "chooses others.",
     .take = set_chaos},
    // ---- For horovod.runner and horovod.doctor ----
    {.names = "--caller-key",
     .heading = Heading::hidden,
     .kind = FlagKind::integer,
     .min = STDERR_FILENO + 1,
     .help = "Descriptor of a file that holds the job's key.",
     .take = set_number<&Options::caller_key>},
    {.names = "--caller",
     .heading = Heading::hidden,
     .kind = FlagKind::integer,
     .min = 1,
     .help = "Process id; the job ends when this process ends.",
     .take = set_number<&Options::caller>},
    {.names = "--tell-start",
     .heading = Heading::hidden,
     .help = "File for the start-up state of each host.",
     .take = set_text<&Options::tell_start>},
};

FlagKind kind_of(KnobKind kind) {
  switch (kind) {
    case KnobKind::boolean:
      return FlagKind::toggle;
    case KnobKind::integer:
      return FlagKind::integer;
    case KnobKind::decimal:
      return FlagKind::decimal;
    case KnobKind::text:
      return FlagKind::text;
    case KnobKind::choice:
      return FlagKind::choice;
    case KnobKind::cores:
      return FlagKind::cores;
  }
  return FlagKind::text;
}

void add_knob(std::vector<Flag>& table, const KnobRow& row) {
  if (row.flags.empty()) return;
  const bool toggles = row.kind == KnobKind::boolean;
  Flag flag{.names = row.flags,
            .dest = row.dest,
            .heading = row.stage == Stage::now ? Heading::tuning : Heading::later,
            .kind = kind_of(row.kind),
            .value_count = toggles ? size_t{0} : size_t{1},
            .help = row.help,
            .knob = &row,
            .knob_value = toggles ? "1" : ""};
  table.push_back(flag);
  if (row.off_flags.empty()) return;
  flag.names = row.off_flags;
  flag.knob_value = "0";
  table.push_back(flag);
}

std::vector<Flag> make_table() {
  std::vector<Flag> table(std::begin(kOwnFlags), std::end(kOwnFlags));
  for (const KnobRow& row : rows()) add_knob(table, row);
  return table;
}

}  // namespace

std::span<const Flag> flags() {
  static const std::vector<Flag> table = make_table();
  return table;
}

const Flag* find_flag(std::string_view spelled) {
  for (const Flag& flag : flags())
    for (const std::string_view name : items(flag.names))
      if (name == spelled) return &flag;
  return nullptr;
}

std::vector<std::string_view> items(std::string_view list) {
  std::vector<std::string_view> result;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) result.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace hvd::launcher
