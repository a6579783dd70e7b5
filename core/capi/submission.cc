#include "core/capi/submission.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/capi/operation_of.h"

namespace hvd {
namespace {

/// Reads what a caller in C may have set to any number.
int number_of(const hvd_operation_kind& kind) {
  int number = 0;
  static_assert(sizeof(number) == sizeof(kind));
  std::memcpy(&number, &kind, sizeof(number));
  return number;
}

bool is_known(int kind) { return kind >= HVD_ALLREDUCE && kind <= HVD_MESSAGE; }

std::string_view kind_text(const hvd_operation_kind& kind) {
  const int number = number_of(kind);
  return is_known(number) ? name_of(static_cast<OperationKind>(number)) : "operation";
}

[[noreturn]] void refuse(const hvd_request& request, const std::string& why) {
  const char* name = request.name == nullptr ? "" : request.name;
  fail(Code::invalid_argument,
       fmt::format("{} \"{}\": {}", kind_text(request.operation.kind), name, why));
}

std::string device_text(const hvd_device& device) {
  if (device.type == HVD_HOST) return "the host";
  if (device.type < HVD_HOST || device.type > HVD_ROCM)
    return fmt::format("a device of unknown type {}", static_cast<int>(device.type));
  return fmt::format("device {} of {}", device.index, device.type == HVD_CUDA ? "CUDA" : "ROCm");
}

bool moves_rows(OperationKind kind) {
  return has_free_rows(kind) || kind == OperationKind::reducescatter;
}

void tell(void (*ended)(void*, const hvd_ending*), void* owner, const Outcome& outcome,
          Completion& completion) {
  std::vector<hvd_tensor> outputs;
  if (outcome.code == Code::ok) {
    for (Output& output : completion.outputs) outputs.push_back(released(output));
  }
  const hvd_ending ending{static_cast<hvd_status>(outcome.code), outcome.text.c_str(),
                          outputs.data(), static_cast<int32_t>(outputs.size()), completion.number};
  ended(owner, &ending);
}

void check_name(const hvd_request& request) {
  if (const int kind = number_of(request.operation.kind); !is_known(kind))
    refuse(request, fmt::format("unknown kind of operation {}", kind));
  if (request.operation.kind == HVD_JOIN) return;  // not matched by name
  if (request.name == nullptr || *request.name == '\0')
    refuse(request, "the operation needs a name");
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
  if (request.operation.kind == HVD_JOIN && request.process_set != ProcessSets::kWorldId)
    refuse(request, "only all ranks of the job can join, not a process set");
  if (request.operation.kind == HVD_MESSAGE && request.process_set != ProcessSets::kWorldId)
    refuse(request, "a message has global ranks; pass no process set");
  return set;
}

/// Checks and converts one request for a process set that includes this rank.
class Submission {
 public:
  Submission(const hvd_request& request, int rank, const ProcessSet& set)
      : request_(request),
        kind_(static_cast<OperationKind>(request.operation.kind)),
        rank_(rank),
        set_(set) {
    check_count();
    if (kind_ == OperationKind::broadcast) check_root();
    if (kind_ == OperationKind::message) check_ends();
    check_lists();
    for (int32_t i = 0; i < request_.count; ++i) {
      check_device(i);
      check_tensor(request_.inputs[i]);
      check_output(i);
    }
    if (reduces(kind_)) check_reduction(static_cast<DType>(request_.inputs[0].dtype));
    if (request_.sent_as != nullptr) check_conversion(*request_.sent_as);
  }

  Request make(const Knobs& knobs, ReadyPoints& ready) {
    Backend* const backend =
        is_on_device() ? &ready.backend_of(request_.inputs[0].device) : nullptr;
    if (is_on_device()) take_points(ready);
    if (kind_ == OperationKind::alltoall) splits_ = make_splits();
    Request made;
    made.group = set_.group;
    if (kind_ == OperationKind::join) {
      made.name = name_of(kind_);
      made.signature.operation.kind = kind_;
    } else {
      made.name = request_.name;
      made.signature = sign(knobs);
    }
    made.timeout = timeout();
    made.completion = std::make_shared<Completion>();
    prepare_outputs(*made.completion);
    for (int32_t i = 0; i < request_.count; ++i)
      made.tensors.push_back(bind(i, *made.completion, backend));
    if (request_.release != nullptr)
      made.release = [release = request_.release, owner = request_.owner] { release(owner); };
    if (request_.ended != nullptr) {
      made.ended = [ended = request_.ended, owner = request_.owner, completion = made.completion](
                       const Outcome& outcome) { tell(ended, owner, outcome, *completion); };
    }
    return made;
  }

  /// For a call on a group: equal parts, and outputs provided by the caller.
  Batch make_batch() const {
    if (is_on_device()) {
      refuse(
          fmt::format("input 0 of rank {} is on {}, but groups for blocking calls support host "
                      "memory only; submit the operation instead, or copy it to host memory (in "
                      "PyTorch: tensor.cpu())",
                      rank_, device_text(request_.inputs[0].device)));
    }
    if (kind_ == OperationKind::alltoall) equal_split(request_.inputs[0].shape[0]);
    Batch made{.operation = operation_of(request_)};
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
    const bool bare = kind_ == OperationKind::barrier || kind_ == OperationKind::join;
    const int least = bare ? 0 : 1;
    const int most = bare                               ? 0
                     : kind_ == OperationKind::alltoall ? 1
                                                        : static_cast<int>(kMaxTensorsInGroup);
    if (request_.count >= least && request_.count <= most) return;
    const std::string range =
        least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
    refuse(fmt::format("{} tensors, expected {}", request_.count, range));
  }

  void check_lists() const {
    if (request_.count == 0) return;
    if (request_.inputs == nullptr) refuse("inputs is NULL");
    if (needs_outputs() && request_.outputs == nullptr)
      refuse("outputs is NULL; the caller must provide outputs");
  }

  void check_output(int32_t i) const {
    if (!needs_outputs() || request_.outputs[i] != nullptr) return;
    const Shape shape = shape_of(request_.inputs[i]);
    const bool no_rows_here =
        kind_ == OperationKind::reducescatter && shape[0] <= set_.rank_of(rank_);
    if (element_count(shape) > 0 && !no_rows_here) refuse("an output has no memory");
  }

  std::chrono::milliseconds timeout() const {
    const double seconds = request_.timeout_seconds;
    constexpr double kMost = 1e9;  // 30 years; more may overflow a time point
    if (!(seconds >= 0)) refuse(fmt::format("a timeout of {} s", seconds));
    return std::chrono::ceil<std::chrono::milliseconds>(
        std::chrono::duration<double>(std::min(seconds, kMost)));
  }

  bool sends() const { return kind_ == OperationKind::message && request_.operation.root == rank_; }
  bool needs_outputs() const { return !has_free_rows(kind_) && !sends(); }

  void check_ends() const {
    const int from = request_.operation.root, to = request_.operation.receiver;
    for (const int end : {from, to}) {
      if (set_.rank_of(end) == kNoRank)
        refuse(fmt::format("rank {} is outside the job, 0 to {}", end, set_.size() - 1));
    }
    if (from == to) refuse(fmt::format("rank {} cannot send to itself", from));
    if (rank_ == from || rank_ == to) return;
    refuse(
        fmt::format("rank {} takes no part in a message from rank {} to rank {}", rank_, from, to));
  }

  void check_root() const {
    if (set_.rank_of(request_.operation.root) != kNoRank) return;
    refuse(fmt::format("root rank {} is not a member of process set {}, which has the ranks {}",
                       request_.operation.root, request_.process_set,
                       to_text_of_ranks(set_.ranks)));
  }

  bool is_on_device() const {
    return request_.count > 0 && request_.inputs[0].device.type != HVD_HOST;
  }

  /// The only place that decides which devices are supported.
  void check_device(int32_t i) const {
    const hvd_device& device = request_.inputs[i].device;
    const hvd_device& first = request_.inputs[0].device;
    if (device.type != HVD_HOST && device.type != HVD_CUDA) {
      refuse(
          fmt::format("input {} of rank {} is on {}, but this version supports host memory and "
                      "CUDA only; copy it to host memory first (in PyTorch: tensor.cpu())",
                      i, rank_, device_text(device)));
    }
    if (device.type != first.type || (device.type != HVD_HOST && device.index != first.index)) {
      refuse(
          fmt::format("the tensors of a group must be on one device, but input 0 of rank {} is on "
                      "{} and input {} on {}",
                      rank_, device_text(first), i, device_text(device)));
    }
    if (device.type != HVD_HOST && has_free_rows(kind_) && request_.allocate == nullptr)
      refuse("outputs on a device whose size depends on other ranks need `allocate`");
  }

  /// Records when the tensors are ready, on the calling thread.
  void take_points(ReadyPoints& ready) {
    for (int32_t i = 0; i < request_.count; ++i) {
      try {
        points_.push_back(ready.of(request_.inputs[i].device, request_.inputs[i].stream));
      } catch (const Error& error) {
        fail(error.code(), fmt::format("{} \"{}\": input {} of rank {} is on {}: {}",
                                       kind_text(request_.operation.kind), request_.name, i, rank_,
                                       device_text(request_.inputs[i].device), error.what()));
      }
    }
  }

  void check_tensor(const hvd_tensor& tensor) const {
    if (tensor.dtype < HVD_UINT8 || tensor.dtype > HVD_BFLOAT16)
      refuse(fmt::format("unknown element type {}", static_cast<int>(tensor.dtype)));
    if (tensor.dtype != request_.inputs[0].dtype) {
      refuse(
          fmt::format("the tensors of a group must have one element type, but there are {} and {}",
                      name_of(static_cast<DType>(request_.inputs[0].dtype)),
                      name_of(static_cast<DType>(tensor.dtype))));
    }
    if (tensor.dimensions < 0 || tensor.dimensions > static_cast<int>(kMaxDimensions))
      refuse(fmt::format("a tensor has {} dimensions, expected 0 to {}", tensor.dimensions,
                         kMaxDimensions));
    if (moves_rows(kind_) && tensor.dimensions == 0)
      refuse("a scalar has no first dimension, along which rows move; reshape it to one element");
    if (std::any_of(tensor.shape, tensor.shape + tensor.dimensions,
                    [](int64_t n) { return n < 0; }))
      refuse("a dimension is negative");
    check_size(tensor);
  }

  /// Computes the size in floating point, which cannot overflow. A non-empty tensor needs memory.
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
    const auto op = request_.operation.op;
    if (op < HVD_AVERAGE || op > HVD_PRODUCT)
      refuse(fmt::format("unknown reduction {}", static_cast<int>(op)));
    if (kind_ == OperationKind::reducescatter && op != HVD_AVERAGE && op != HVD_SUM) {
      refuse(fmt::format("the reduction must be average or sum, not {}",
                         name_of(static_cast<ReduceOp>(op))));
    }
    // Ranks compare scale factors, and NaN is not equal to itself.
    if (std::isnan(request_.operation.prescale) || std::isnan(request_.operation.postscale))
      refuse("a scale factor is not a number");
    if (dtype == DType::uint16) refuse("uint16 tensors can be moved, but not reduced");
    if (dtype == DType::boolean && op != HVD_MIN && op != HVD_MAX)
      refuse("bool tensors can be reduced with Min (and) or Max (or) only");
    if (op == HVD_ADASUM) check_adasum(dtype);
  }

  void check_conversion(hvd_dtype sent) const {
    if (kind_ != OperationKind::allreduce || !is_on_device() ||
        request_.inputs[0].dtype != HVD_FLOAT32 || (sent != HVD_FLOAT16 && sent != HVD_BFLOAT16)) {
      refuse(
          "only an allreduce of float32 tensors in device memory can be sent as another type, "
          "float16 or bfloat16; convert the tensors before");
    }
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
      refuse(fmt::format("{} rows cannot be divided equally among {} ranks; pass splits", rows,
                         set_.size()));
    }
    if (each > std::numeric_limits<int32_t>::max())
      refuse(fmt::format("{} rows per rank exceed the range of a split (int32)", each));
    return static_cast<int32_t>(each);
  }

  Signature sign(const Knobs& knobs) const {
    Signature signature;
    signature.name = hash_name(request_.name);
    signature.operation = operation_of(request_);
    for (int32_t i = 0; i < request_.count; ++i) {
      Shape& shape = signature.shapes.emplace_back(shape_of(request_.inputs[i]));
      if (has_free_rows(kind_)) shape[0] = kFreeDimension;
    }
    if (kind_ == OperationKind::message) {
      signature.members = {request_.operation.root, request_.operation.receiver};
      std::ranges::sort(signature.members);
    }
    signature.fuse_with_others = request_.count <= 1 || !knobs.disable_group_fusion;
    return signature;
  }

  void prepare_outputs(Completion& completion) const {
    if (!has_free_rows(kind_)) return;
    const size_t count = static_cast<size_t>(request_.count);
    completion.outputs = std::vector<Output>(count);
    for (Output& output : completion.outputs)
      output.dtype = static_cast<DType>(request_.inputs[0].dtype);
    if (kind_ != OperationKind::alltoall) return;
    completion.outputs.resize(count + 1);
    completion.outputs.back().dtype = DType::int32;
  }

  /// The caller's function, with the point at which the memory may be written.
  std::function<DeviceOutput(const Shape&)> allocation_of(int32_t i, Backend& backend) const {
    return [allocate = request_.allocate, owner = request_.owner, i, &backend,
            device = request_.inputs[i].device, name = std::string(request_.name),
            kind = request_.operation.kind](const Shape& shape) {
      hvd_tensor output{};
      const char* const failure =
          allocate(owner, i, shape.data(), static_cast<int32_t>(shape.size()), &output);
      if (failure != nullptr)
        fail(Code::internal,
             fmt::format("{} \"{}\": output {} of shape {} could not be allocated: {}",
                         kind_text(kind), name, i, to_text(shape), failure));
      return DeviceOutput{static_cast<std::byte*>(output.data),
                          backend.mark(device.index, output.stream)};
    };
  }

  BatchTensor bind(int32_t i, Completion& completion, Backend* backend) {
    BatchTensor bound;
    bound.input = static_cast<const std::byte*>(request_.inputs[i].data);
    bound.shape = shape_of(request_.inputs[i]);
    if (!points_.empty()) bound.ready = points_[static_cast<size_t>(i)];
    if (request_.sent_as != nullptr) bound.stored_as = static_cast<DType>(request_.inputs[i].dtype);
    if (!has_free_rows(kind_)) {
      bound.output = output_of(i);
      return bound;
    }
    bound.gathered = &completion.outputs[static_cast<size_t>(i)].gathered;
    if (is_on_device()) bound.gathered->allocate = allocation_of(i, *backend);
    if (kind_ == OperationKind::alltoall) {
      bound.splits = std::move(splits_);
      bound.received_splits = &completion.outputs.back().gathered;
    }
    return bound;
  }

  /// Replaces a null pointer for an empty output, because for the backend it means a rank that has
  /// joined. The output of a sender is its input, which a broadcast leaves as it is.
  std::byte* output_of(int32_t i) const {
    static std::byte nothing;
    if (sends() && request_.inputs[i].data != nullptr)
      return static_cast<std::byte*>(request_.inputs[i].data);
    if (sends()) return &nothing;
    return request_.outputs[i] == nullptr ? &nothing : static_cast<std::byte*>(request_.outputs[i]);
  }

  static Shape shape_of(const hvd_tensor& tensor) {
    return Shape(tensor.shape, tensor.shape + tensor.dimensions);
  }

  const hvd_request& request_;
  const OperationKind kind_;
  const int rank_;
  const ProcessSet& set_;
  std::vector<int32_t> splits_;
  std::vector<std::shared_ptr<const DevicePoint>> points_;  ///< of the inputs on a device
};

}  // namespace

std::shared_ptr<const DevicePoint> ReadyPoints::of(const hvd_device& device, void* stream) {
  for (const Recorded& one : recorded_) {
    if (one.device.type == device.type && one.device.index == device.index && one.stream == stream)
      return one.point;
  }
  auto point = backend_of(device).mark(device.index, stream);
  return recorded_.emplace_back(Recorded{device, stream, std::move(point)}).point;
}

hvd_tensor released(Output& output) {
  hvd_tensor tensor{};
  tensor.data = output.gathered.memory.release();
  tensor.shape = output.gathered.shape.data();
  tensor.dimensions = static_cast<int32_t>(output.gathered.shape.size());
  tensor.dtype = static_cast<hvd_dtype>(output.dtype);
  return tensor;
}

Request make_request(const hvd_request& request, int rank, const ProcessSets& sets,
                     const Knobs& knobs, ReadyPoints& ready) {
  check_name(request);
  const auto set = find_set(request, rank, sets);
  return Submission(request, rank, *set).make(knobs, ready);
}

Batch make_batch(const hvd_request& request, int rank, const ProcessSet& members) {
  check_name(request);
  return Submission(request, rank, members).make_batch();
}

}  // namespace hvd
