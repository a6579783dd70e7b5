// What each rank of a simulated job has submitted, and what came of it. Value types.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "core/sim/world_program.h"

namespace hvd::sim {

/// The part of one rank in an item.
struct Part {
  std::shared_ptr<Completion> completion;  ///< nullptr before the submission
  std::vector<ByteVector> inputs, outputs;
  int released = 0;
  int ended = 0;
  bool ended_well_after_loss = false;  ///< the engine had announced a loss before

  bool is_submitted() const { return completion != nullptr; }
  bool is_done() const { return is_submitted() && completion->handle.done(); }
};

struct RankWork {
  std::vector<Part> parts;                         ///< [item]
  std::vector<std::shared_ptr<Completion>> joins;  ///< [stage]
  std::vector<std::shared_ptr<Completion>> duplicates;
  int stage = 0;
};

struct WorldJob {
  explicit WorldJob(const WorldProgram& program) : ranks(static_cast<size_t>(program.size())) {
    for (RankWork& rank : ranks) {
      rank.parts = std::vector<Part>(program.items.size());
      rank.joins.resize(program.stage_joins.size());
    }
  }
  std::vector<RankWork> ranks;   ///< memory of the requests; must outlive the engines
  int shut_down_by = -1;         ///< the rank that has ended the job
  bool shut_down_early = false;  ///< with operations in flight
};

inline std::string describe(const WorldProgram& program, size_t i) {
  const Item& item = program.items[i];
  return fmt::format("#{} {} \"{}\" on set {}", i, name_of(item.any().operation.kind), item.name,
                     item.set);
}

}  // namespace hvd::sim
