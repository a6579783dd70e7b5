#include "launcher/options/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "launcher/options/command_line.h"
#include "launcher/options/text_file.h"

namespace hvd::launcher {
namespace {

[[noreturn]] void refuse(const std::string& text) { fail(Code::invalid_argument, text); }

/// Throws Error{invalid_argument} naming the flag if a value is not an integer in its bounds.
void check_numbers(const Given& given) {
  const Flag& flag = *given.flag;
  if (flag.knob != nullptr || flag.kind != FlagKind::integer) return;
  for (const std::string& text : given.values) {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end || value < flag.min || value > flag.max)
      refuse(fmt::format("{} {}: allowed is a whole number from {} to {}", given.spelled, text,
                         flag.min, flag.max));
  }
}

/// The last setting of a knob wins.
void set(Options& options, Setting setting) {
  const auto known = std::ranges::find(options.settings, setting.row, &Setting::row);
  if (known == options.settings.end()) {
    options.settings.push_back(std::move(setting));
  } else {
    *known = std::move(setting);
  }
}

void take_config_file(Options& options) {
  if (!options.config_file) return;
  const std::string& name = *options.config_file;
  ConfigFile config = parse_config(read_text_file(name, "config file"), name);
  for (Setting& setting : config.settings) set(options, std::move(setting));
  for (std::string& warning : config.warnings) options.warnings.push_back(std::move(warning));
}

void take_knob(Options& options, const Given& given) {
  const KnobRow* row = given.flag->knob;
  const bool toggle = given.flag->kind == FlagKind::toggle;
  set(options, {row, given.spelled, toggle ? std::string(given.flag->knob_value) : given.text()});
  if (given.spelled == "--log-hide-timestamp" || given.spelled == "--no-log-hide-timestamp")
    options.warnings.push_back(
        fmt::format("{} is deprecated; use {}", given.spelled, items(given.flag->names).front()));
}

/// Returns the variables of the settings, and those of the flags that choose a launcher.
void take_variables(Options& options) {
  for (const Setting& setting : options.settings)
    options.knobs[std::string(setting.row->env)] = variable_value(setting);
  if (options.gloo || options.mpi)
    options.knobs.insert_or_assign("HOROVOD_CONTROLLER", options.mpi ? "mpi" : "gloo");
}

void check_elastic(const Options& options) {
  if (const auto& range = options.cooldown; range && range->first > range->second)
    refuse(fmt::format("--blacklist-cooldown-range {} {}: the first number must not be larger",
                       range->first, range->second));
  const int least = options.min_num_proc.value_or(0);
  if (options.num_proc > 0 && least > options.num_proc)
    refuse(fmt::format("--min-np {} is more than -np {}, the number of processes to start with",
                       least, options.num_proc));
  if (const auto most = options.max_num_proc; most && *most < std::max(options.num_proc, least))
    refuse(fmt::format("--max-np {} is less than {}", *most,
                       least > options.num_proc ? fmt::format("--min-np {}", least)
                                                : fmt::format("-np {}", options.num_proc)));
}

/// Rejects options that horovod.runner may query, but that a job cannot be started with.
void check_can_start(const Options& options) {
  check_elastic(options);
  const bool examines = options.mode == Options::Mode::doctor;
  if (examines && !options.command.empty())
    refuse(fmt::format("--doctor takes no command; found '{}'", options.command[0]));
  if (options.mode == Options::Mode::run && options.command.empty())
    refuse("the command to run is missing, as in horovodrun -np 2 python train.py");
}

}  // namespace

Options options_of(const CommandLine& line) {
  Options options;
  options.mode = line.mode();
  options.verbose = line.last("verbose") != nullptr;
  if (options.mode > Options::Mode::dump) return options;  // the other modes ignore all else
  options.command = line.command;
  for (const Given& given : line.given) {
    check_numbers(given);
    if (given.flag->take != nullptr) given.flag->take(options, given);
  }
  take_config_file(options);
  for (const Given& given : line.given)
    if (given.flag->knob != nullptr) take_knob(options, given);
  take_variables(options);
  return options;
}

Options parse_options(const std::vector<std::string>& arguments) {
  const CommandLine line = read_command_line(arguments);
  Options options = options_of(line);
  if (options.mode <= Options::Mode::doctor) check_can_start(options);
  return options;
}

std::vector<std::string> tell_of_later(Environment& environment) {
  const auto in_use = [&](std::string_view name) {
    for (const KnobRow* row : later_in_use(environment))
      if (row->env == name) return true;
    return false;
  };
  std::vector<std::string> lines;
  for (const KnobRow* row : later_in_use(environment)) {
    // HOROVOD_AUTOTUNE_LOG is a setting of HOROVOD_AUTOTUNE.
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

}  // namespace hvd::launcher
