// What the user asked horovodrun to do: the command line and the config file, as one value. Parsing
// decides nothing about hosts or processes beyond their spelling.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::job {

struct Options {
  enum class Mode : uint8_t { run, help, version, check_build, doctor };
  Mode mode = Mode::run;
  std::string help;  ///< in Mode::help

  /// Who starts the ranks, beside what HOROVOD_CONTROLLER says (in `knobs` if a flag or the config
  /// file did).
  bool jsrun = false;
  std::vector<std::string> mpi_args;      ///< for mpirun or jsrun, before the command
  std::vector<std::string> binding_args;  ///< in place of what they are told about cores

  int num_proc = 0;  ///< 0: not given
  std::optional<std::string> hosts;
  std::optional<std::string> hostfile;
  std::optional<std::string> output_filename;
  std::vector<std::string> interfaces;
  bool prefix_timestamp = false;
  bool verbose = false;
  bool no_infiniband = false;
  /// Of a program that started us as its own: it holds the job's key too (in a file of this
  /// number), and the job ends with it.
  std::optional<int> caller_key;
  std::optional<int> caller;  ///< its process id
  /// File that tells how far each host has come, for the doctor.
  std::optional<std::string> tell_start;
  std::optional<int> ssh_port;
  std::optional<std::string> ssh_identity;
  std::vector<std::string> command;

  Environment knobs;                  ///< variables that flags and the config file set
  std::vector<std::string> warnings;  ///< one line each, for standard error
};

/// `arguments` without the program's name. Throws Error{invalid_argument}.
Options parse_options(const std::vector<std::string>& arguments);

/// Removes from `environment` the settings of a later feature that is itself not used (those of
/// autotune without autotune), and returns a line for each later feature in use.
std::vector<std::string> tell_of_later(Environment& environment);

}  // namespace hvd::job
