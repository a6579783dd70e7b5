#include "core/sim/census.h"

namespace hvd::sim {
namespace {

/// In the order of Ingredient.
constexpr std::array<std::string_view, kIngredients> kNames = {
    "allreduces",
    "adasums",
    "allgathers",
    "broadcasts",
    "alltoalls",
    "reducescatters",
    "barriers",
    "messages",
    "grouped",
    "kept apart",
    "batches",
    "fused",
    "stand ins",
    "submissions",
    "changes",
    "one time names",
    "duplicates",
    "faults",
    "sets added",
    "sets removed",
    "sets refused",
    "orphans",
    "joins",
    "messages to joined",
    "messages with names of operations",
    "messages of one name",
    "overlapping sets",
    "sets in midst",
    "sets removed in use",
    "joined in sets",
    "several joins",
    "capacity none",
    "capacity one",
    "capacity two",
    "capacity few",
    "capacity many",
    "evictions",
    "kept retired",
    "stalls",
    "silent ranks",
    "shutdowns",
    "deaths",
    "two deaths",
    "deaths in join",
    "deaths in set creation",
    "shutdowns and deaths",
    "mixed",
    "mixed with loss",
};

}  // namespace

std::string_view name_of(Ingredient ingredient) { return kNames[static_cast<size_t>(ingredient)]; }

}  // namespace hvd::sim
