#include "core/capi/submission.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace hvd {
namespace {

constexpr char kJoin[] = "join";

std::string_view kind_text(hvd_kind kind) {
  if (kind == HVD_JOIN) return kJoin;
  const bool known = kind >= HVD_ALLREDUCE && kind <= HVD_BARRIER;
  return known ? name_of(static_cast<OperationKind>(kind)) : "operation";
}

[[noreturn]] void refuse(const hvd_request& request, const std::string& why) {
  const char* name = request.name == nullptr ? "" : request.name;
  fail(Code::invalid_argument, fmt::format("{} \"{}\": {}", kind_text(request.kind), name, why));
}

bool moves_rows(hvd_kind kind) {
  return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER;
}
bool has_free_rows(hvd_kind kind) { return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL; }
bool reduces(hvd_kind kind) { return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER; }

void tell(void (*ended)(void*, const hvd_ending*), void* owner, const Outcome& outcome,
          Operation& operation) {
  std::vector<hvd_tensor> outputs;
  if (outcome.code == Code::ok) {
    for (auto& [dtype, gathered] : operation.outputs) {
      outputs.push_back({gathered.memory.release(), gathered.shape.data(),
                         static_cast<int32_t>(gathered.shape.size()),
                         static_cast<hvd_dtype>(dtype)});
    }
  }
  const hvd_ending ending{static_cast<hvd_status>(outcome.code), outcome.text.c_str(),
                          outputs.data(), static_cast<int32_t>(outputs.size()), operation.number};
  ended(owner, &ending);
}

void check_name(const hvd_request& request) {
  if (request.kind < HVD_ALLREDUCE || request.kind > HVD_JOIN)
    refuse(request, fmt::format("{} is no kind of operation", static_cast<int>(request.kind)));
  if (request.kind == HVD_JOIN) return;  // nobody looks for it by name
  if (request.name == nullptr || *request.name == '\0') refuse(request, "a name is needed");
  if (std::char_traits<char>::length(request.name) > kMaxNameBytes)
    refuse(request, fmt::format("the name is longer than {} bytes", kMaxNameBytes));
}

std::shared_ptr<const ProcessSet> find_set(const hvd_request& request, int rank,
                                           const ProcessSets& sets) {
  auto set = sets.find(request.process_set);
  if (!set) refuse(request, fmt::format("no process set has the id {}", request.process_set));
  if (set->rank_of(rank) == kNoRank) {
    refuse(request, fmt::format("rank {} is not a member of process set {}, which has the ranks {}",
                                rank, request.process_set, to_text_of_ranks(set->ranks)));
  }
  if (request.kind == HVD_JOIN && request.process_set != ProcessSets::kWorldId)
    refuse(request, "only all ranks of the job can join, not a process set");
  return set;
}

/// One submission on its way from the C interface to who does it: the request, and the set that it
/// is for, of which this rank is a member.
class Submission {
 public:
  Submission(const hvd_request& request, int rank, const ProcessSet& set)
      : request_(request), rank_(rank), set_(set) {
    check_count();
    if (request_.kind == HVD_BROADCAST) check_root();
    check_lists();
    for (int32_t i = 0; i < request_.count; ++i) {
      check_tensor(request_.inputs[i]);
      check_output(i);
    }
    if (reduces(request_.kind)) check_reduction(static_cast<DType>(request_.inputs[0].dtype));
  }

  Request make(const Knobs& knobs) {
    if (request_.kind == HVD_ALLTOALL) splits_ = make_splits();
    Request made;
    made.kind = request_.kind == HVD_JOIN ? Request::Kind::join : Request::Kind::operation;
    made.group = set_.group;
    made.name = request_.kind == HVD_JOIN ? kJoin : request_.name;
    if (request_.kind != HVD_JOIN) made.signature = sign(knobs);
    made.operation = std::make_shared<Operation>();
    prepare_outputs(*made.operation);
    for (int32_t i = 0; i < request_.count; ++i) made.tensors.push_back(bind(i, *made.operation));
    if (request_.release != nullptr)
      made.release = [release = request_.release, owner = request_.owner] { release(owner); };
    if (request_.ended != nullptr) {
      made.ended = [ended = request_.ended, owner = request_.owner, operation = made.operation](
                       const Outcome& outcome) { tell(ended, owner, outcome, *operation); };
    }
    return made;
  }

  /// Of tensors that are dealt out equally, and go where the caller says.
  Batch make_batch() const {
    if (request_.kind == HVD_ALLTOALL) equal_split(request_.inputs[0].shape[0]);
    Batch made{.transfer = static_cast<Transfer>(request_.kind)};
    describe(made);
    made.tensors.reserve(static_cast<size_t>(request_.count));
    for (int32_t i = 0; i < request_.count; ++i) {
      made.tensors.push_back({.input = static_cast<const std::byte*>(request_.inputs[i].data),
                              .output = output_of(i),
                              .shape = shape_of(request_.inputs[i])});
    }
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { hvd::refuse(request_, why); }

  void check_count() const {
    const bool bare = request_.kind == HVD_BARRIER || request_.kind == HVD_JOIN;
    const int least = bare ? 0 : 1;
    const int most = bare                            ? 0
                     : request_.kind == HVD_ALLTOALL ? 1
                                                     : static_cast<int>(kMaxTensorsInGroup);
    if (request_.count >= least && request_.count <= most) return;
    const std::string range =
        least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
    refuse(fmt::format("{} tensors, expected {}", request_.count, range));
  }

  void check_lists() const {
    if (request_.count == 0) return;
    if (request_.inputs == nullptr) refuse("there are no inputs");
    if (!has_free_rows(request_.kind) && request_.outputs == nullptr)
      refuse("there are no outputs; the caller gives them");
  }

  void check_output(int32_t i) const {
    if (has_free_rows(request_.kind) || request_.outputs[i] != nullptr) return;
    const Shape shape = shape_of(request_.inputs[i]);
    const bool no_rows_here = request_.kind == HVD_REDUCESCATTER && shape[0] <= set_.rank_of(rank_);
    if (element_count(shape) > 0 && !no_rows_here) refuse("an output has no memory");
  }

  void check_root() const {
    if (set_.rank_of(request_.root) != kNoRank) return;
    refuse(fmt::format("root rank {} is not a member of process set {}, which has the ranks {}",
                       request_.root, request_.process_set, to_text_of_ranks(set_.ranks)));
  }

  void check_tensor(const hvd_tensor& tensor) const {
    if (tensor.dtype < HVD_UINT8 || tensor.dtype > HVD_BFLOAT16)
      refuse(fmt::format("{} is no element type", static_cast<int>(tensor.dtype)));
    if (tensor.dtype != request_.inputs[0].dtype) {
      refuse(
          fmt::format("the tensors of a group must have one element type, but there are {} and {}",
                      name_of(static_cast<DType>(request_.inputs[0].dtype)),
                      name_of(static_cast<DType>(tensor.dtype))));
    }
    if (tensor.dimensions < 0 || tensor.dimensions > static_cast<int>(kMaxDimensions))
      refuse(fmt::format("{} dimensions", tensor.dimensions));
    if (moves_rows(request_.kind) && tensor.dimensions == 0)
      refuse("a scalar has no first dimension, along which rows move; reshape it to one element");
    if (std::any_of(tensor.shape, tensor.shape + tensor.dimensions,
                    [](int64_t n) { return n < 0; }))
      refuse("a dimension is negative");
    check_size(tensor);
  }

  /// As a product of bytes that cannot wrap. Memory is needed where there are elements.
  void check_size(const hvd_tensor& tensor) const {
    const double most = static_cast<double>(std::numeric_limits<int64_t>::max());
    double bytes = static_cast<double>(element_bytes(static_cast<DType>(tensor.dtype)));
    bool empty = false;
    for (int32_t i = 0; i < tensor.dimensions; ++i) {
      bytes *= static_cast<double>(std::max<int64_t>(tensor.shape[i], 1));
      empty |= tensor.shape[i] == 0;
    }
    if (bytes >= most) refuse("a tensor of this shape is larger than any memory");
    if (tensor.data == nullptr && !empty) refuse("an input has no memory");
  }

  void check_reduction(DType dtype) const {
    const auto op = request_.op;
    if (op < HVD_AVERAGE || op > HVD_PRODUCT)
      refuse(fmt::format("{} is no reduction", static_cast<int>(op)));
    if (request_.kind == HVD_REDUCESCATTER && op != HVD_AVERAGE && op != HVD_SUM) {
      refuse(fmt::format("the reduction must be average or sum, not {}",
                         name_of(static_cast<ReduceOp>(op))));
    }
    // Ranks compare what they agree on, and it is not equal to itself.
    if (std::isnan(request_.prescale) || std::isnan(request_.postscale))
      refuse("a scale factor is not a number");
    if (dtype == DType::uint16) refuse("uint16 tensors can be moved, but not reduced");
    if (dtype == DType::boolean && op != HVD_MIN && op != HVD_MAX)
      refuse("bool tensors can be reduced with Min (and) or Max (or) only");
    if (op == HVD_ADASUM) check_adasum(dtype);
  }

  void check_adasum(DType dtype) const {
    if (!is_floating(dtype))
      refuse(fmt::format("Adasum needs floating-point tensors, not {}", name_of(dtype)));
    if (!std::has_single_bit(static_cast<unsigned>(set_.size()))) {
      refuse(fmt::format("Adasum needs a number of ranks that is a power of two, but {} take part",
                         set_.size()));
    }
  }

  /// The rows of the input for each rank of the set.
  std::vector<int32_t> make_splits() const {
    const int64_t rows = request_.inputs[0].shape[0];
    if (request_.splits == nullptr)
      return std::vector<int32_t>(set_.ranks.size(), equal_split(rows));
    std::vector<int32_t> splits(request_.splits,
                                request_.splits + std::max(request_.split_count, 0));
    if (splits.size() != set_.ranks.size()) {
      refuse(fmt::format("{} splits, expected one for each of the {} ranks", splits.size(),
                         set_.size()));
    }
    if (std::any_of(splits.begin(), splits.end(), [](int32_t split) { return split < 0; }))
      refuse("a split is negative");
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    if (sum > rows)
      refuse(fmt::format("the splits add up to {}, but the tensor has only {} rows", sum, rows));
    return splits;
  }

  int32_t equal_split(int64_t rows) const {
    const int64_t each = rows / set_.size();
    if (each * set_.size() != rows) {
      refuse(fmt::format("{} rows cannot be dealt out equally to {} ranks; give the splits", rows,
                         set_.size()));
    }
    if (each > std::numeric_limits<int32_t>::max())
      refuse(fmt::format("{} rows for each rank are more than a split can count", each));
    return static_cast<int32_t>(each);
  }

  Signature sign(const Knobs& knobs) const {
    Signature signature;
    signature.name = hash_name(request_.name);
    signature.kind = static_cast<OperationKind>(request_.kind);
    describe(signature);
    for (int32_t i = 0; i < request_.count; ++i) {
      Shape& shape = signature.shapes.emplace_back(shape_of(request_.inputs[i]));
      if (has_free_rows(request_.kind)) shape[0] = kFreeDimension;
    }
    signature.fuse_with_others = request_.count <= 1 || !knobs.disable_group_fusion;
    return signature;
  }

  /// Fills in what ranks agree on and backends must know alike.
  template <class SignatureOrBatch>
  void describe(SignatureOrBatch& made) const {
    if (request_.count > 0) made.dtype = static_cast<DType>(request_.inputs[0].dtype);
    if (reduces(request_.kind)) {
      made.op = static_cast<ReduceOp>(request_.op);
      made.prescale = request_.prescale;
      made.postscale = request_.postscale;
    }
    if (request_.kind == HVD_BROADCAST) made.root = request_.root;
  }

  void prepare_outputs(Operation& operation) const {
    if (!has_free_rows(request_.kind)) return;
    const size_t count = static_cast<size_t>(request_.count);
    operation.outputs = std::vector<Output>(count);
    for (Output& output : operation.outputs)
      output.dtype = static_cast<DType>(request_.inputs[0].dtype);
    if (request_.kind != HVD_ALLTOALL) return;
    operation.outputs.resize(count + 1);
    operation.outputs.back().dtype = DType::int32;
  }

  BatchTensor bind(int32_t i, Operation& operation) {
    BatchTensor bound;
    bound.input = static_cast<const std::byte*>(request_.inputs[i].data);
    bound.shape = shape_of(request_.inputs[i]);
    if (!has_free_rows(request_.kind)) {
      bound.output = output_of(i);
      return bound;
    }
    bound.gathered = &operation.outputs[static_cast<size_t>(i)].gathered;
    if (request_.kind == HVD_ALLTOALL) {
      bound.splits = std::move(splits_);
      bound.received_splits = &operation.outputs.back().gathered;
    }
    return bound;
  }

  /// A null pointer means to the backend a rank that has joined, so one for nothing becomes
  /// another.
  std::byte* output_of(int32_t i) const {
    static std::byte nothing;
    return request_.outputs[i] == nullptr ? &nothing : static_cast<std::byte*>(request_.outputs[i]);
  }

  static Shape shape_of(const hvd_tensor& tensor) {
    return Shape(tensor.shape, tensor.shape + tensor.dimensions);
  }

  const hvd_request& request_;
  const int rank_;
  const ProcessSet& set_;
  std::vector<int32_t> splits_;
};

}  // namespace

Request make_request(const hvd_request& request, int rank, const ProcessSets& sets,
                     const Knobs& knobs) {
  check_name(request);
  const auto set = find_set(request, rank, sets);
  return Submission(request, rank, *set).make(knobs);
}

Batch make_batch(const hvd_request& request, int rank, const ProcessSet& members) {
  check_name(request);
  return Submission(request, rank, members).make_batch();
}

}  // namespace hvd
