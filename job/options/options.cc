#include "job/options/options.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "job/options/config_file.h"
#include "job/options/text_file.h"
#include "job/options/words.h"

namespace hvd::job {
namespace {

/// More processes than this on one machine are a typing error.
constexpr int kMaxProcesses = 65536;
constexpr int kMaxPort = 65535;

[[noreturn]] void refuse(const std::string& text) { fail(Code::invalid_argument, text); }

/// Spellings with one dash and several letters, which CLI11 would take for several options.
std::string long_spelling(const std::string& argument) {
  static const std::map<std::string, std::string, std::less<>> kSpellings{
      {"-np", "--num-proc"},
      {"-cb", "--check-build"},
      {"-hostfile", "--hostfile"},
      {"-prefix-timestamp", "--prefix-output-with-timestamp"}};
  const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
  const auto found = kSpellings.find(name);
  return found == kSpellings.end() ? argument : found->second + argument.substr(name.size());
}

/// Throws Error{invalid_argument} naming the flag when `text` is no whole number in these bounds.
int number(const char* flag, const std::string& text, int min, int max) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc{} || result.ptr != end || value < min || value > max)
    refuse(fmt::format("{} {}: allowed is a whole number from {} to {}", flag, text, min, max));
  return value;
}

/// Values as the user wrote them.
struct Raw {
  std::string num_proc, config_file, hosts, hostfile, output_filename, interfaces, interface_old;
  std::string slots, min_np, max_np, reset_limit, ssh_port, ssh_identity, mpi_args, binding_args;
  std::string discovery, caller_key, caller, tell_start;
  std::vector<std::string> cooldown;
  bool version = false, check_build = false, doctor = false, verbose = false,
       prefix_timestamp = false;
  bool disable_cache = false, gloo = false, mpi = false, jsrun = false, tcp = false;
};

/// The flags of one knob, and what was given.
struct KnobFlag {
  const KnobRow* row;
  std::string value;
  CLI::Option* option = nullptr;
};

class Parser {
 public:
  Parser();
  Options parse(const std::vector<std::string>& arguments);

 private:
  CLI::Option* text(const char* names, std::string& value, const char* help, const char* group);
  void flag(const char* names, bool& value, const char* help, const char* group);
  void add_own();
  void add_knobs();
  std::vector<std::string> split_off_command(const std::vector<std::string>& arguments,
                                             std::vector<std::string>& command) const;
  void run_cli(std::vector<std::string> flags);
  void take_knobs(Options& options) const;
  void take_launcher(Options& options) const;
  void warn_of_later(Options& options) const;
  void take_interfaces(Options& options) const;
  int processes() const;
  void take_caller(Options& options) const;

  CLI::App app_{
      "Starts a program on several processes that train together:\n"
      "  horovodrun -np N [flags] command [arguments]",
      "horovodrun"};
  Raw raw_;
  std::vector<KnobFlag> knob_flags_;
};

constexpr const char* kJob = "Job";
constexpr const char* kOutput = "Output";
constexpr const char* kTuning = "Tuning";
constexpr const char* kLater = "Accepted, not in this version";
constexpr const char* kHidden = "";  // for horovod.runner, not for people

Parser::Parser() {
  add_own();
  add_knobs();
}

CLI::Option* Parser::text(const char* names, std::string& value, const char* help,
                          const char* group) {
  return app_.add_option(names, value, help)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Parser::flag(const char* names, bool& value, const char* help, const char* group) {
  app_.add_flag(names, value, help)->group(group);
}

void Parser::add_own() {
  app_.set_help_flag("-h,--help", "Print this and exit")->group(kJob);
  flag("-v,--version", raw_.version, "Print the version and exit", kJob);
  flag("--check-build", raw_.check_build, "Print what this installation can do and exit (-cb)",
       kJob);
  flag("--doctor", raw_.doctor, "Examine this host, or all of -H, and say what to repair", kJob);
  text("--num-proc,--np", raw_.num_proc, "Number of processes (-np)", kJob);
  text("-H,--hosts", raw_.hosts, "Hosts and their slots: host:slots,[fd00::1]:slots", kJob);
  text("--hostfile", raw_.hostfile, "File with lines '<host> slots=<n>' (-hostfile)", kJob);
  text("--config-file", raw_.config_file, "YAML file with settings; flags win over it", kJob);
  text("-p,--ssh-port", raw_.ssh_port, "Port on which other hosts listen for ssh", kJob);
  text("-i,--ssh-identity-file", raw_.ssh_identity, "Key file for ssh to other hosts", kJob);
  text("--network-interfaces", raw_.interfaces, "Network interfaces to use: A,B", kJob);
  text("--network-interface", raw_.interface_old, "The same for one interface", kJob);
  flag("--gloo", raw_.gloo, "The built-in launcher, as without this flag", kJob);
  flag("--mpi", raw_.mpi, "Start through mpirun, of Open MPI, Spectrum MPI, MPICH or Intel MPI",
       kJob);
  flag("--jsrun", raw_.jsrun, "Start through jsrun, in a job of LSF", kJob);
  text("--mpi-args", raw_.mpi_args, "With --mpi: more arguments of mpirun, in one word", kJob);
  text("--binding-args", raw_.binding_args,
       "Cores of ranks: none, cores; with --mpi and --jsrun what these take instead", kJob);
  flag("--tcp", raw_.tcp, "TCP only: sets NCCL_IB_DISABLE=1", kJob);
  flag("--disable-cache", raw_.disable_cache, "No effect: nothing is cached between starts", kJob);
  text("--output-filename", raw_.output_filename,
       "Folder for the output of each rank: rank.<rank>/stdout and stderr", kOutput);
  flag("--prefix-output-with-timestamp", raw_.prefix_timestamp,
       "Lines of ranks begin with the time (-prefix-timestamp)", kOutput);
  flag("--verbose", raw_.verbose, "Tell what is done, on standard error", kOutput);
  text("--host-discovery-script", raw_.discovery, "Elastic: prints the hosts there are", kLater);
  text("--min-np,--min-num-proc", raw_.min_np, "Elastic: least number of processes", kLater);
  text("--max-np,--max-num-proc", raw_.max_np, "Elastic: largest number of processes", kLater);
  text("--slots-per-host", raw_.slots, "Elastic: slots of hosts that name none", kLater);
  text("--reset-limit", raw_.reset_limit, "Elastic: resets before the job ends", kLater);
  app_.add_option("--blacklist-cooldown-range", raw_.cooldown, "Elastic: seconds, LO HI")
      ->expected(2)
      ->group(kLater);
  text("--caller-key", raw_.caller_key, "Descriptor of a file with the job's key", kHidden);
  text("--caller", raw_.caller, "The process that the job ends with", kHidden);
  text("--tell-start", raw_.tell_start, "File for what became of each host at the start", kHidden);
}

void Parser::add_knobs() {
  knob_flags_.reserve(rows().size());  // CLI11 keeps references to the values
  for (const KnobRow& row : rows()) {
    if (row.flags.empty()) continue;
    KnobFlag& entry = knob_flags_.emplace_back(KnobFlag{&row, {}, nullptr});
    std::string names(row.flags);
    if (row.kind == KnobKind::boolean) {
      const auto with = [](std::string_view list, const char* suffix) {
        std::string result;
        for (size_t begin = 0; begin < list.size();) {
          const size_t end = std::min(list.find(',', begin), list.size());
          result += fmt::format("{}{}{}", result.empty() ? "" : ",",
                                list.substr(begin, end - begin), suffix);
          begin = end + 1;
        }
        return result;
      };
      names = with(row.flags, "{1}");
      if (!row.off_flags.empty()) names += "," + with(row.off_flags, "{0}");
      entry.option = app_.add_flag(names, entry.value, std::string(row.help));
    } else {
      entry.option = app_.add_option(names, entry.value, std::string(row.help));
    }
    entry.option->group(row.stage == Stage::now ? kTuning : kLater)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

/// The flags end at the first argument that is neither a flag nor a flag's value; from there on
/// every argument is the command's, untouched. Values are joined to their flag, so that one that
/// begins with a dash (-1) is not taken for a flag.
std::vector<std::string> Parser::split_off_command(const std::vector<std::string>& arguments,
                                                   std::vector<std::string>& command) const {
  std::vector<std::string> flags;
  size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string argument = long_spelling(arguments[i]);
    if (argument == "--") {
      ++i;
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') break;
    const bool is_long = argument[1] == '-';
    const size_t equals = argument.find('=');
    const std::string name = is_long ? argument.substr(0, equals) : argument.substr(0, 2);
    const CLI::Option* option = app_.get_option_no_throw(name);
    if (option == nullptr)
      refuse(fmt::format("unknown flag '{}'; horovodrun --help lists them", arguments[i]));
    const bool joined = is_long ? equals != std::string::npos : argument.size() > 2;
    const auto values = static_cast<size_t>(option->get_expected_min());
    if (joined || values == 0) {
      flags.push_back(argument);
      continue;
    }
    if (arguments.size() - i - 1 < values)
      refuse(fmt::format("flag '{}' needs {}", arguments[i],
                         values == 1 ? "a value" : fmt::format("{} values", values)));
    if (values == 1 && is_long) {
      flags.push_back(argument + "=" + arguments[++i]);
    } else {
      flags.push_back(argument);
      for (size_t value = 0; value < values; ++value) flags.push_back(arguments[++i]);
    }
  }
  command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  return flags;
}

/// CLI11 tells of what is wrong by an exception only; this is where it becomes ours.
void Parser::run_cli(std::vector<std::string> flags) {
  std::reverse(flags.begin(), flags.end());  // the order that CLI11 wants
  std::string problem;
  try {
    app_.parse(flags);
  } catch (const CLI::CallForHelp&) {
    return;
  } catch (const CLI::ParseError& error) {
    problem = error.what();
  }
  if (!problem.empty()) refuse(problem);
}

int Parser::processes() const {
  if (raw_.num_proc.empty()) return 0;
  return number("-np", raw_.num_proc, 1, kMaxProcesses);
}

void Parser::take_caller(Options& options) const {
  constexpr int kMost = std::numeric_limits<int>::max();
  if (!raw_.caller_key.empty())
    options.caller_key = number("--caller-key", raw_.caller_key, STDERR_FILENO + 1, kMost);
  if (!raw_.caller.empty()) options.caller = number("--caller", raw_.caller, 1, kMost);
  if (!raw_.tell_start.empty()) options.tell_start = raw_.tell_start;
}

void Parser::take_knobs(Options& options) const {
  if (!raw_.config_file.empty()) {
    ConfigFile config =
        parse_config(read_text_file(raw_.config_file, "config file"), raw_.config_file);
    options.knobs = std::move(config.knobs);
    for (std::string& warning : config.warnings) options.warnings.push_back(std::move(warning));
  }
  for (const KnobFlag& flag : knob_flags_) {
    if (flag.option->count() == 0) continue;
    const std::string name(flag.row->flags.substr(0, flag.row->flags.find(',')));
    options.knobs[std::string(flag.row->env)] = checked_flag(*flag.row, name, flag.value);
  }
}

void Parser::take_launcher(Options& options) const {
  if (raw_.gloo + raw_.mpi + raw_.jsrun > 1) refuse("--gloo, --mpi and --jsrun exclude each other");
  if (!raw_.discovery.empty())
    refuse(
        "not in this version: --host-discovery-script; without it, horovodrun starts the "
        "processes that -np counts");
  if (raw_.gloo || raw_.mpi)
    options.knobs.insert_or_assign("HOROVOD_CONTROLLER", raw_.mpi ? "mpi" : "gloo");
  options.jsrun = raw_.jsrun;
  options.mpi_args = split_words("--mpi-args", raw_.mpi_args);
  options.binding_args = split_words("--binding-args", raw_.binding_args);
}

void Parser::warn_of_later(Options& options) const {
  const std::pair<const char*, bool> flags[] = {
      {"--min-np", !raw_.min_np.empty()},
      {"--max-np", !raw_.max_np.empty()},
      {"--slots-per-host", !raw_.slots.empty()},
      {"--reset-limit", !raw_.reset_limit.empty()},
      {"--blacklist-cooldown-range", !raw_.cooldown.empty()}};
  for (const auto& [name, given] : flags)
    if (given) options.warnings.push_back(fmt::format("not in this version: {}", name));
}

void Parser::take_interfaces(Options& options) const {
  std::string list = raw_.interfaces;
  if (!raw_.interface_old.empty()) {
    if (!list.empty()) refuse("--network-interfaces and --network-interface exclude each other");
    list = raw_.interface_old;
    if (list.find(',') != std::string::npos)
      options.warnings.push_back(
          "--network-interface with a comma is deprecated; --network-interfaces took its place");
  }
  std::stringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');)
    if (!name.empty()) options.interfaces.push_back(name);
}

Options Parser::parse(const std::vector<std::string>& arguments) {
  Options options;
  const std::vector<std::string> flags = split_off_command(arguments, options.command);
  run_cli(flags);
  if (app_.get_help_ptr()->count() > 0) {
    options.mode = Options::Mode::help;
    options.help = app_.help();
    return options;
  }
  options.verbose = raw_.verbose;
  options.mode = raw_.version       ? Options::Mode::version
                 : raw_.check_build ? Options::Mode::check_build
                 : raw_.doctor      ? Options::Mode::doctor
                                    : Options::Mode::run;
  if (options.mode == Options::Mode::version || options.mode == Options::Mode::check_build)
    return options;
  options.num_proc = processes();
  if (!raw_.hosts.empty() && !raw_.hostfile.empty())
    refuse("--hosts and --hostfile exclude each other");
  if (!raw_.hosts.empty()) options.hosts = raw_.hosts;
  if (!raw_.hostfile.empty()) options.hostfile = raw_.hostfile;
  if (!raw_.output_filename.empty()) options.output_filename = raw_.output_filename;
  if (!raw_.ssh_port.empty()) options.ssh_port = number("--ssh-port", raw_.ssh_port, 1, kMaxPort);
  if (!raw_.ssh_identity.empty()) options.ssh_identity = raw_.ssh_identity;
  options.prefix_timestamp = raw_.prefix_timestamp;
  options.no_infiniband = raw_.tcp;
  take_interfaces(options);
  take_caller(options);
  take_knobs(options);
  take_launcher(options);
  warn_of_later(options);
  for (const std::string& flag : flags)
    if (flag == "--log-hide-timestamp" || flag == "--no-log-hide-timestamp")
      options.warnings.push_back(flag + " is deprecated; use --log-with" +
                                 (flag[2] == 'n' ? "" : "out") + "-timestamp");
  const bool examines = options.mode == Options::Mode::doctor;
  if (examines && !options.command.empty())
    refuse(fmt::format("--doctor takes no command; '{}' would not be run", options.command[0]));
  if (!examines && options.command.empty()) refuse("the command to run is missing");
  return options;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  return Parser().parse(arguments);
}

std::vector<std::string> tell_of_later(Environment& environment) {
  const auto in_use = [&](std::string_view name) {
    for (const KnobRow* row : later_in_use(environment))
      if (row->env == name) return true;
    return false;
  };
  std::vector<std::string> lines;
  for (const KnobRow* row : later_in_use(environment)) {
    // HOROVOD_AUTOTUNE_LOG belongs to HOROVOD_AUTOTUNE.
    bool idle = false;
    for (const KnobRow& owner : rows())
      if (owner.stage == Stage::later && row->env.starts_with(std::string(owner.env) + "_"))
        idle = idle || !in_use(owner.env);
    if (idle) {
      environment.erase(environment.find(row->env));
      continue;
    }
    const std::string& value = environment.find(row->env)->second;
    const std::string_view flag = row->flags.substr(0, row->flags.find(','));
    lines.push_back(fmt::format("not in this version: {}{}={}",
                                flag.empty() ? "" : fmt::format("{}, ", flag), row->env, value));
  }
  return lines;
}

}  // namespace hvd::job
