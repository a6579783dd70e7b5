// The options of horovodrun: the command line and the config file as one value. Parsing checks only
// the spelling of hosts and commands.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/knobs.h"
#include "launcher/options/chaos.h"
#include "launcher/options/config_file.h"
#include "launcher/options/host_list.h"

namespace hvd::launcher {

struct CommandLine;

struct Options {
  enum class Mode : uint8_t { run, doctor, dump, check_build, version, help };
  Mode mode = Mode::run;

  /// The launcher that starts the ranks. HOROVOD_CONTROLLER may choose it as well (in `knobs` if a
  /// flag or the config file set it).
  bool gloo = false;
  bool mpi = false;
  bool jsrun = false;
  std::vector<std::string> mpi_args;      ///< for mpirun or jsrun, before the command
  std::vector<std::string> binding_args;  ///< replace its default arguments about cores

  int num_proc = 0;  ///< 0: not given
  std::optional<int> min_num_proc;
  std::optional<int> max_num_proc;
  std::optional<int> slots_per_host;  ///< of discovered hosts without a number
  std::optional<int> reset_limit;
  std::optional<std::pair<int, int>> cooldown;  ///< seconds
  std::optional<Chaos> chaos;
  std::optional<std::string> discovery_script;
  std::vector<Host> discovered;  ///< by its first run
  std::optional<std::string> hosts;
  std::optional<std::string> hostfile;
  std::optional<std::string> config_file;
  std::optional<std::string> output_filename;
  std::vector<std::string> interfaces;
  bool prefix_timestamp = false;
  bool verbose = false;
  bool dump_as_json = false;
  bool no_infiniband = false;
  /// Set if another program started horovodrun as its own part: it holds the job's key too (in the
  /// file with this descriptor), and the job ends with it.
  std::optional<int> caller_key;
  std::optional<int> caller;  ///< its process id
  /// File that receives the start-up state of each host, for the doctor.
  std::optional<std::string> tell_start;
  std::optional<int> ssh_port;
  std::optional<std::string> ssh_identity;
  std::vector<std::string> command;

  std::vector<Setting> settings;  ///< of knobs, by flags and the config file: at most one per knob
  Environment knobs;              ///< the variables that `settings` set
  std::vector<std::string> warnings;  ///< one line each, for standard error

  /// Whether the number of workers may change.
  bool is_elastic() const { return min_num_proc || discovery_script; }
};

/// Interprets the flags of `line` and the config file that it names. Throws Error{invalid_argument}
/// naming an invalid value and the allowed ones.
Options options_of(const CommandLine& line);

/// `arguments` excludes the program's name. Throws Error{invalid_argument}, also if the command is
/// missing.
Options parse_options(const std::vector<std::string>& arguments);

/// Removes from `environment` the settings of features of a later version that are not enabled
/// (those of autotune without autotune). Returns one line per enabled feature of a later version.
std::vector<std::string> tell_of_later(Environment& environment);

}  // namespace hvd::launcher
