// The names of the ingredients, as the census prints them.
#include <array>
#include <string_view>

#include "core/sim/world_program.h"

namespace hvd::sim {
namespace {

/// In the order of WorldIngredient.
constexpr std::array<std::string_view, kWorldIngredients> kNames = {
    "allreduces",
    "averages",
    "adasums",
    "minima",
    "maxima",
    "products",
    "allgathers",
    "broadcasts",
    "alltoalls",
    "reducescatters",
    "reducescatters of few rows",
    "barriers",
    "messages",
    "grouped",
    "empty tensors",
    "half types",
    "scaled",
    "in place",
    "overlapping tensors",
    "changes",
    "one time names",
    "duplicates",
    "on process sets",
    "mismatches",
    "faults by a join",
    "stand ins",
    "sets added",
    "sets removed",
    "sets removed in use",
    "sets refused",
    "orphans",
    "overlapping sets",
    "stand ins in sets",
    "join rounds",
    "several join rounds",
    "one host",
    "two hosts",
    "three hosts",
    "shared memory",
    "links",
    "shared memory and links",
    "launched runs",
    "levels",
    "deterministic",
    "no fusion",
    "little fusion",
    "no cache",
    "small cache",
    "more names than slots",
    "without faults",
    "faults of rank 0",
    "ranks given up",
    "long faults survived",
    "mixed",
    "mixed with fault",
};

}  // namespace

std::string_view name_of(WorldIngredient ingredient) {
  return kNames[static_cast<size_t>(ingredient)];
}

}  // namespace hvd::sim
