// The configuration of a Context. The struct gives type and default; the table in knobs_table.h
// gives the rest of each row (environment variable, flag, YAML key, range, scope, help). The table
// generates the parser of the environment, the launcher's flags, docs/knobs.md and `_core.knobs()`.
// The environment is read once, at init; no code below capi/ reads it.
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

/// The launcher of the ranks: horovodrun itself, or mpirun.
enum class ControllerChoice : uint8_t { gloo, mpi };
/// The implementation that moves tensors in host memory: the runtime itself, or MPI.
enum class CpuOperationsChoice : uint8_t { gloo, mpi };
/// What moves tensors in GPU memory: NCCL if all ranks have it, NCCL or an error, or the
/// implementation for host memory with copies from and to the GPU.
enum class GpuOperationsChoice : uint8_t { automatic, nccl, host };
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
  // Tensor fusion and negotiation.
  int64_t fusion_bytes = int64_t{128} << 20;
  std::chrono::microseconds cycle{1000};
  int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;
  bool dynamic_process_sets = false;
  // Data transfer.
  CpuOperationsChoice cpu_operations = CpuOperationsChoice::gloo;
  GpuOperationsChoice gpu_operations = GpuOperationsChoice::automatic;
  std::string nccl_library;      ///< the file of NCCL; empty: it is looked for
  bool async_completion = true;  ///< GPU operations complete when they are queued on the GPU
  TransportChoice transport = TransportChoice::automatic;
  AlgorithmChoice allreduce_algorithm = AlgorithmChoice::automatic;
  std::string ways;  ///< allowed algorithms of blocking groups and small batches, see parse_ways();
                     ///< empty: all
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  bool torus_allreduce = false;  ///< alias of hierarchical_allreduce
  bool deterministic = false;    ///< bitwise reproducible whatever the batching and the algorithm
  int64_t staging_bytes = int64_t{2} << 20;  ///< shared memory per rank
  std::string interface_name;                ///< empty: all interfaces
  // Rendezvous.
  std::string secret_file;  ///< empty: none
  bool no_secret = false;
  bool encrypt = false;  ///< TCP connections between ranks, and those to the Store
  // Timeouts and affinity.
  std::chrono::seconds start_timeout{30};
  std::chrono::seconds peer_timeout{30};
  std::chrono::milliseconds heartbeat{5000};  ///< silence after which a rank is given up; 0: never
  std::string thread_affinity;                ///< comma-separated cores, one per local rank
  // Stalls.
  bool stall_check_disable = false;
  std::chrono::seconds stall_check{60};
  std::chrono::seconds stall_shutdown{0};  ///< 0: never
  // Dumps.
  int64_t dump_signal = 59;  ///< 0: none
  // The timeline.
  std::string timeline;  ///< empty: none; "DYNAMIC": started by the user
  bool timeline_mark_cycles = false;
  // Log.
  LogLevel log_level = LogLevel::warning;
  bool log_hide_time = false;
  // The launcher.
  ControllerChoice controller = ControllerChoice::gloo;
  std::chrono::milliseconds grace{1000};  ///< time for the other ranks to exit after a failure
  bool elastic = false;                   ///< read by Python, too: the number of ranks may change
  std::chrono::seconds elastic_timeout{600};
  std::chrono::seconds survivor_timeout{30};
  std::string state_dir;                        ///< read by Python; empty: none
  std::chrono::milliseconds state_interval{0};  ///< read by Python; 0: by the cost of writing
  bool replace_gloo = false;                    ///< read by Python, when torch is imported
  int64_t agent_fan_out = 64;                   ///< hosts that one machine connects to by ssh
};

/// Environment variables and their values.
using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the current environment of this process. Only capi/ and the launcher call this.
Environment process_environment();

/// `agreed`: must be equal on all ranks; compared when the world forms.
enum class Scope : uint8_t { agreed, local };
/// `later`: recognized and checked, but without effect in this version; the user gets a warning.
enum class Stage : uint8_t { now, later };
/// `cores`: comma-separated core numbers.
enum class KnobKind : uint8_t { boolean, integer, decimal, text, choice, cores };
enum class Unit : uint8_t { none, bytes, mebibytes, milliseconds, seconds };

/// The field that stores the value; monostate if Knobs has no such field.
using KnobField =
    std::variant<std::monostate, bool Knobs::*, int64_t Knobs::*, std::string Knobs::*,
                 std::chrono::microseconds Knobs::*, std::chrono::milliseconds Knobs::*,
                 std::chrono::seconds Knobs::*, LogLevel Knobs::*, TransportChoice Knobs::*,
                 AlgorithmChoice Knobs::*, ControllerChoice Knobs::*, CpuOperationsChoice Knobs::*,
                 GpuOperationsChoice Knobs::*>;

/// One row of the table. Lists are separated by commas; "" means none.
struct KnobRow {
  KnobField field{};
  std::string_view env;
  KnobKind kind = KnobKind::integer;
  Unit env_unit = Unit::none;
  std::string_view flags{};      ///< with a value; for a boolean: switches it on
  std::string_view off_flags{};  ///< for a boolean: switches it off
  Unit flag_unit = Unit::none;   ///< of the flag and the YAML key, if it differs from env_unit
  std::string_view dest{};       ///< name in Python's parse_args(); "!": negated
  std::string_view yaml{};       ///< "section.key"; "!": negated
  double min = 0;
  double max = std::numeric_limits<int64_t>::max() / 1024;
  std::span<const std::string_view> choices{};  ///< for an enum, in its order
  Scope scope = Scope::local;
  Stage stage = Stage::now;
  std::string_view initial{};  ///< the default of a row without a field, as in the variable
  std::string_view help;
};

/// The table.
std::span<const KnobRow> rows();

/// Returns the Knobs given by `environment`. An empty variable counts as unset. Throws
/// Error{invalid_argument} naming the variable, its value and the allowed values.
Knobs knobs_from(const Environment& environment);

/// Throws Error{invalid_argument} unless `text` is valid for the variable of `row`; `shown` is the
/// spelling that the user wrote ("--cycle-time-ms"). Returns `text` in canonical form (true -> 1).
std::string checked(const KnobRow& row, std::string_view shown, std::string_view text);
/// Checks a value in the flag's unit as checked() does; returns the value of the variable.
std::string checked_flag(const KnobRow& row, std::string_view shown, std::string_view text);

/// Returns the value of a row as in its variable; for a row without a field, the default.
std::string text_of(const KnobRow& row, const Knobs& knobs);

/// Returns `<variable>=<value>` lines of the agreed knobs. Equal texts mean equal knobs.
std::string agreed_text(const Knobs& knobs);

/// Returns the rows with Stage::later whose variables differ from their default.
std::vector<const KnobRow*> later_in_use(const Environment& environment);

/// Describes the allowed values: "0, 1, false, true, ...", "a number from 0 to 1".
std::string allowed_text(const KnobRow& row, Unit unit);

/// Names of the enumerators, for docs/knobs.md and Python.
std::string_view to_text(KnobKind kind);
std::string_view to_text(Unit unit);
std::string_view to_text(Scope scope);
std::string_view to_text(Stage stage);

}  // namespace hvd
