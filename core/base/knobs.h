// The configuration of a Context. The struct gives type and default; the table in knobs.cc gives
// the rest of each row (environment variable, flag, YAML key, range, scope, help), from which come
// the reader of the environment, the launcher's flags, docs/knobs.md and `_core.knobs()`. The
// environment is read once, at init; nothing below capi/ reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/log.h"

namespace hvd {

/// Who starts the ranks: horovodrun itself, or mpirun.
enum class ControllerChoice : uint8_t { gloo, mpi };
/// Who moves tensors in host memory: the runtime itself, or MPI.
enum class CpuOperationsChoice : uint8_t { gloo, mpi };
enum class TransportChoice : uint8_t { automatic, shm, tcp };
enum class AlgorithmChoice : uint8_t {
  automatic,
  direct,
  ring,
  recursive_doubling,
  halving_doubling,
  tree,
  parameter_server,
};

struct Knobs {
  // Batching and agreement.
  int64_t fusion_bytes = int64_t{128} << 20;
  std::chrono::microseconds cycle{1000};
  int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;
  bool dynamic_process_sets = false;
  // Moving bytes.
  CpuOperationsChoice cpu_operations = CpuOperationsChoice::gloo;
  TransportChoice transport = TransportChoice::automatic;
  AlgorithmChoice allreduce_algorithm = AlgorithmChoice::automatic;
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  bool torus_allreduce = false;  ///< the same as hierarchical_allreduce
  bool deterministic = false;    ///< the same bits whatever the batching and the algorithm
  int64_t staging_bytes = int64_t{2} << 20;  ///< shared memory a rank
  std::string interface_name;                ///< empty: by host name
  // Finding each other.
  std::string secret_file;  ///< empty: none
  bool no_secret = false;
  // Waiting.
  std::chrono::seconds start_timeout{30};
  std::chrono::seconds peer_timeout{30};
  std::string thread_affinity;  ///< comma list of cores, one for each local rank
  // Stalls.
  bool stall_check_disable = false;
  std::chrono::seconds stall_check{60};
  std::chrono::seconds stall_shutdown{0};  ///< 0: never
  // The timeline.
  std::string timeline;  ///< empty: none; "DYNAMIC": when asked for
  bool timeline_mark_cycles = false;
  // Log.
  LogLevel log_level = LogLevel::warning;
  bool log_hide_time = false;
  // The launcher.
  ControllerChoice controller = ControllerChoice::gloo;
  std::chrono::milliseconds grace{
      1000};                   ///< for the other ranks to end by themselves after a failure
  int64_t agent_fan_out = 64;  ///< hosts that one machine reaches by ssh itself
};

/// Variables and their values.
using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process as it is now. Only capi/ and the launcher ask.
Environment process_environment();

/// `agreed`: must be the same on every rank, compared when the world forms.
enum class Scope : uint8_t { agreed, local };
/// `later`: known and checked, but without effect in this version; whoever uses it is told.
enum class Stage : uint8_t { now, later };
/// `cores`: a comma list of core numbers.
enum class KnobKind : uint8_t { boolean, integer, decimal, text, choice, cores };
enum class Unit : uint8_t { none, bytes, mebibytes, milliseconds, seconds };

/// Where the value goes; nothing for a row that no field of Knobs holds.
using KnobField =
    std::variant<std::monostate, bool Knobs::*, int64_t Knobs::*, std::string Knobs::*,
                 std::chrono::microseconds Knobs::*, std::chrono::milliseconds Knobs::*,
                 std::chrono::seconds Knobs::*, LogLevel Knobs::*, TransportChoice Knobs::*,
                 AlgorithmChoice Knobs::*, ControllerChoice Knobs::*, CpuOperationsChoice Knobs::*>;

/// One row of the table. A list of spellings is separated by commas; "" means that there is none.
struct KnobRow {
  KnobField field{};
  std::string_view env;
  KnobKind kind = KnobKind::integer;
  Unit env_unit = Unit::none;
  std::string_view flags{};      ///< takes a value; a boolean: switches on
  std::string_view off_flags{};  ///< a boolean: switches off
  Unit flag_unit = Unit::none;   ///< of the flag and the YAML key, where it is not env_unit
  std::string_view dest{};       ///< name in Python's parse_args(); "!": with the opposite sense
  std::string_view yaml{};       ///< "section.key"; "!": with the opposite sense
  double min = 0;
  double max = std::numeric_limits<int64_t>::max() / 1024;
  std::span<const std::string_view> choices{};  ///< of an enum, in its order
  Scope scope = Scope::local;
  Stage stage = Stage::now;
  std::string_view
      initial{};  ///< the default of a row without field, as its variable would spell it
  std::string_view help;
};

/// The table.
std::span<const KnobRow> rows();

/// Fills Knobs from the variables that are set; one that is set to nothing counts as not set.
/// Throws Error{invalid_argument} naming the variable, its value and what is allowed.
Knobs knobs_from(const Environment& environment);

/// Throws Error{invalid_argument} unless the variable of `row` can take `text`; `shown` is what the
/// user wrote to set it ("--cycle-time-ms"). Returns `text` in its one spelling (true -> 1).
std::string checked(const KnobRow& row, std::string_view shown, std::string_view text);
/// The same for a value in the flag's unit; returns the value of the variable.
std::string checked_flag(const KnobRow& row, std::string_view shown, std::string_view text);

/// The value of a row as its variable spells it; of a row without field, the default.
std::string text_of(const KnobRow& row, const Knobs& knobs);

/// `<variable>=<value>` lines of the agreed knobs: equal texts, equal choices on all ranks.
std::string agreed_text(const Knobs& knobs);

/// The variables of rows of later versions that are set to something else than their default.
std::vector<const KnobRow*> later_in_use(const Environment& environment);

/// What the value of a row may be, in words: "0, 1, false, true, ...", "a number from 0 to 1".
std::string allowed_text(const KnobRow& row, Unit unit);

/// The names of the enumerations, for docs/knobs.md and Python.
std::string_view to_text(KnobKind kind);
std::string_view to_text(Unit unit);
std::string_view to_text(Scope scope);
std::string_view to_text(Stage stage);

}  // namespace hvd
