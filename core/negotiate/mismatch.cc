#include "core/negotiate/mismatch.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/assert.h"

namespace hvd {
namespace {

using Value = std::function<std::string(const Signature&)>;

/// One property that ranks can disagree about: whether two opinions differ in it, and how to print
/// it.
struct Difference {
  std::string what;  ///< "the shape"
  std::string same;  ///< "shape", in "submit the same shape on all ranks"
  Value value;
};

template <class T>
bool differ(const Opinions& opinions, T Signature::*member) {
  return std::any_of(opinions.begin(), opinions.end(), [&](const Opinion& opinion) {
    return (*opinion.signature).*member != (*opinions.front().signature).*member;
  });
}
template <class T>
bool differ(const Opinions& opinions, T Operation::*member) {
  return std::any_of(opinions.begin(), opinions.end(), [&](const Opinion& opinion) {
    return opinion.signature->operation.*member != opinions.front().signature->operation.*member;
  });
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += shape[i] == kFreeDimension ? "*" : std::to_string(shape[i]);
  }
  return text + "]";
}

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::string text = "[";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text + "]";
}

/// For a grouped operation, the first tensor that differs is reported.
Difference shape_difference(const Opinions& opinions) {
  const Shapes& first = opinions.front().signature->shapes;
  for (const Opinion& opinion : opinions) {
    if (opinion.signature->shapes.size() == first.size()) continue;
    return {"the number of tensors in the group", "tensors",
            [](const Signature& s) { return std::to_string(s.shapes.size()); }};
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const bool same = std::all_of(opinions.begin(), opinions.end(), [&](const Opinion& opinion) {
      return opinion.signature->shapes[i] == first[i];
    });
    if (same) continue;
    const std::string which =
        first.size() == 1 ? "" : fmt::format(" of tensor {} of {}", i + 1, first.size());
    return {"the shape" + which, "shape",
            [i](const Signature& s) { return shape_text(s.shapes[i]); }};
  }
  HVD_ASSERT(false && "shapes that differ");
}

std::optional<Difference> difference_of_kind(const Opinions& opinions) {
  if (differ(opinions, &Operation::dtype)) {
    return Difference{"the data type", "data type",
                      [](const Signature& s) { return std::string(name_of(s.operation.dtype)); }};
  }
  if (differ(opinions, &Operation::kind)) {
    return Difference{"the operation", "operation",
                      [](const Signature& s) { return std::string(name_of(s.operation.kind)); }};
  }
  if (differ(opinions, &Signature::shapes)) return shape_difference(opinions);
  return std::nullopt;
}

std::optional<Difference> difference_of_arithmetic(const Opinions& opinions) {
  if (differ(opinions, &Operation::prescale)) {
    return Difference{"the prescale factor", "prescale factor",
                      [](const Signature& s) { return fmt::format("{}", s.operation.prescale); }};
  }
  if (differ(opinions, &Operation::postscale)) {
    return Difference{"the postscale factor", "postscale factor",
                      [](const Signature& s) { return fmt::format("{}", s.operation.postscale); }};
  }
  if (differ(opinions, &Operation::op)) {
    return Difference{"the reduce operation", "reduce operation",
                      [](const Signature& s) { return std::string(name_of(s.operation.op)); }};
  }
  return std::nullopt;
}

std::optional<Difference> difference_of_place(const Opinions& opinions) {
  if (differ(opinions, &Operation::root)) {
    const bool is_message = opinions.front().signature->operation.kind == OperationKind::message;
    const std::string root = is_message ? "sender" : "root rank";
    return Difference{"the " + root, root,
                      [](const Signature& s) { return std::to_string(s.operation.root); }};
  }
  if (differ(opinions, &Operation::device)) {
    return Difference{"the device", "kind of device",
                      [](const Signature& s) { return std::string(name_of(s.operation.device)); }};
  }
  return std::nullopt;
}

std::optional<Difference> difference_of_sets(const Opinions& opinions) {
  if (differ(opinions, &Signature::members)) {
    return Difference{"the ranks of the process set", "ranks",
                      [](const Signature& s) { return ranks_text(s.members); }};
  }
  if (differ(opinions, &Signature::target)) {
    return Difference{"the process set", "process set",
                      [](const Signature& s) { return fmt::format("number {}", s.target); }};
  }
  if (differ(opinions, &Signature::fuse_with_others)) {
    return Difference{"the fusion of groups", "setting", [](const Signature& s) {
                        return std::string(s.fuse_with_others ? "fusion" : "no fusion");
                      }};
  }
  return std::nullopt;
}

Difference first_difference(const Opinions& opinions) {
  for (const auto find :
       {difference_of_kind, difference_of_arithmetic, difference_of_place, difference_of_sets}) {
    if (auto difference = find(opinions)) return *difference;
  }
  HVD_ASSERT(false && "opinions that differ");
}

/// The ranks with one value of the property, whatever else they differ in.
struct Camp {
  std::string value;
  int32_t lowest = kNoRank;
  uint32_t count = 0;
};

std::vector<Camp> camps(const Opinions& opinions, const Value& value) {
  std::vector<Camp> camps;
  for (const Opinion& opinion : opinions) {
    const std::string text = value(opinion.signature);
    const auto same = [&](const Camp& camp) { return camp.value == text; };
    const auto camp = std::find_if(camps.begin(), camps.end(), same);
    if (camp == camps.end()) {
      camps.push_back({text, opinion.rank, opinion.count});
    } else {
      camp->lowest = std::min(camp->lowest, opinion.rank);
      camp->count += opinion.count;
    }
  }
  std::sort(camps.begin(), camps.end(),
            [](const Camp& a, const Camp& b) { return a.lowest < b.lowest; });
  return camps;
}

std::string operation_text(const Signature& signature) {
  const bool is_group = signature.shapes.size() > 1;
  return fmt::format("{}{}", is_group ? "grouped " : "", name_of(signature.operation.kind));
}

std::string describe_mismatch(const Opinions& opinions, const std::string& name) {
  const Difference difference = first_difference(opinions);
  const auto lowest =
      std::min_element(opinions.begin(), opinions.end(),
                       [](const Opinion& a, const Opinion& b) { return a.rank < b.rank; });
  std::string text =
      fmt::format("{} \"{}\": ranks disagree about {}: ", operation_text(lowest->signature), name,
                  difference.what);
  uint32_t folded = 0;
  for (const Opinion& opinion : opinions) folded += opinion.folded;
  bool is_first = true;
  for (const Camp& camp : camps(opinions, difference.value)) {
    const std::string others =
        camp.count > 1 ? fmt::format(" and {} more have", camp.count - 1) : " has";
    text += fmt::format("{}rank {}{} {}", is_first ? "" : ", ", camp.lowest, others, camp.value);
    is_first = false;
  }
  if (folded > 0) text += fmt::format(", {} more ranks have other values", folded);
  return text + fmt::format("; submit the same {} on all ranks", difference.same);
}

std::string describe_joined(const Signature& signature, const std::string& name) {
  const bool can_be_dense = signature.operation.kind == OperationKind::allgather;
  return fmt::format(
      "{} \"{}\": a rank has joined, and until all ranks have joined, allreduce is the only "
      "collective operation that can run without it; keep the ranks in step, or call join after "
      "the last {}{}",
      operation_text(signature), name, name_of(signature.operation.kind),
      can_be_dense ? " (for sparse gradients: sparse_as_dense=True makes them an allreduce)" : "");
}

/// `said`: of the rank that has not joined.
std::string describe_joined_end(const Opinion& said, const std::string& name) {
  const auto& ends = said.signature->members;
  const int32_t joined = ends.front() == said.rank ? ends.back() : ends.front();
  return fmt::format(
      "message \"{}\": rank {} has joined, so it exchanges no message with rank {} before all "
      "ranks "
      "have joined; call join after the last message",
      name, joined, said.rank);
}

}  // namespace

std::string describe_fault(const Verdict& verdict, const std::string& name) {
  HVD_ASSERT(verdict.type == Verdict::Type::fault && !verdict.opinions.empty());
  if (verdict.opinions.size() > 1) return describe_mismatch(verdict.opinions, name);
  HVD_ASSERT(verdict.joined_fault);
  const Signature& signature = verdict.opinions.front().signature;
  return signature.operation.kind == OperationKind::message
             ? describe_joined_end(verdict.opinions.front(), name)
             : describe_joined(signature, name);
}

}  // namespace hvd
