/// Building blocks of the C++ interface: elements, reductions, spans as tensors, errors. Included
/// by horovod.hpp.
#ifndef HOROVOD_ELEMENTS_HPP_
#define HOROVOD_ELEMENTS_HPP_

#include <horovod/horovod.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace hvd {

// ---- errors ------------------------------------------------------------------------------------

/// An error of the runtime: a status and a text.
class Error : public std::runtime_error {
 public:
  Error(hvd_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  hvd_status status() const noexcept { return status_; }

 private:
  hvd_status status_;
};

namespace detail {

inline void check(hvd_status status) {
  if (status != HVD_OK) throw Error(status, hvd_last_error());
}

inline void expect(bool holds, const char* what) {
  if (!holds) throw Error(HVD_INVALID_ARGUMENT, what);
}

}  // namespace detail

// ---- elements ----------------------------------------------------------------------------------

/// An IEEE 754 half-precision number, stored as its bits.
struct float16 {
  std::uint16_t bits = 0;
  bool operator==(const float16&) const = default;
};
/// A bfloat16 number (the upper half of a float), stored as its bits.
struct bfloat16 {
  std::uint16_t bits = 0;
  bool operator==(const bfloat16&) const = default;
};

namespace detail {

template <class T>
constexpr std::optional<hvd_dtype> find_dtype() {
  if constexpr (std::is_same_v<T, float>) return HVD_FLOAT32;
  if constexpr (std::is_same_v<T, double>) return HVD_FLOAT64;
  if constexpr (std::is_same_v<T, float16>) return HVD_FLOAT16;
  if constexpr (std::is_same_v<T, bfloat16>) return HVD_BFLOAT16;
  if constexpr (std::is_same_v<T, bool>) return HVD_BOOL;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? HVD_INT8 : HVD_UINT8;
    if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? HVD_INT16 : HVD_UINT16;
    if constexpr (sizeof(T) == 4 && std::is_signed_v<T>) return HVD_INT32;
    if constexpr (sizeof(T) == 8 && std::is_signed_v<T>) return HVD_INT64;
  }
  return std::nullopt;
}

}  // namespace detail

/// The element types. Reductions do not support uint16, and support bool with min and max only.
template <class T>
concept Element = detail::find_dtype<T>()
.has_value();

template <Element T>
inline constexpr hvd_dtype dtype_of = *detail::find_dtype<T>();

/// A contiguous range in memory of the caller: a std::span, or an lvalue std::vector, std::array or
/// array.
template <class Range>
concept Elements = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> && Element<std::ranges::range_value_t<Range>>;
/// A range of Elements that can be written.
template <class Range>
concept Room = Elements<Range> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;
template <Elements Range>
using element_of = std::ranges::range_value_t<Range>;

/// A writable range with the element type of `In`.
template <class Range, class In>
concept RoomFor = Room<Range> && std::same_as<element_of<Range>, element_of<In>>;

/// How an allreduce or reducescatter combines the inputs. Equal on all ranks. A reducescatter
/// supports `average` and `sum`.
struct Reduction {
  hvd_reduce_op op = HVD_SUM;
  double prescale = 1.0;   ///< factor before the reduction
  double postscale = 1.0;  ///< factor after the reduction
};

inline constexpr Reduction average{HVD_AVERAGE};
inline constexpr Reduction sum{HVD_SUM};
inline constexpr Reduction adasum{HVD_ADASUM};
inline constexpr Reduction min{HVD_MIN};
inline constexpr Reduction max{HVD_MAX};
inline constexpr Reduction product{HVD_PRODUCT};

namespace detail {

/// Builds the C structure of one operation. Each range of elements is a tensor of one dimension.
class Call {
 public:
  Call(hvd_operation_kind kind, const char* name) {
    request_.operation.kind = kind, request_.name = name;
  }

  template <Elements Data>
  Call& input(Data&& data) {
    using T = element_of<Data>;
    lengths_.push_back(static_cast<std::int64_t>(std::ranges::size(data)));
    // The runtime does not write to inputs.
    inputs_.push_back(
        {const_cast<T*>(std::ranges::data(data)), nullptr, 1, dtype_of<T>, {HVD_HOST, 0}, nullptr});
    return *this;
  }
  template <Room Data>
  Call& output(Data&& data) {
    outputs_.push_back(std::ranges::data(data));
    return *this;
  }
  Call& with(const Reduction& how) {
    request_.operation.op = how.op;
    request_.operation.prescale = how.prescale;
    request_.operation.postscale = how.postscale;
    return *this;
  }
  Call& root(int rank) { return request_.operation.root = rank, *this; }
  Call& message(int sender, int receiver) {
    return request_.operation.receiver = receiver, root(sender);
  }
  Call& on(int process_set) { return request_.process_set = process_set, *this; }
  Call& splits(std::span<const std::int32_t> rows) {
    if (rows.empty()) return *this;
    request_.splits = rows.data();
    request_.split_count = static_cast<std::int32_t>(rows.size());
    return *this;
  }

  /// The pointer is valid until this object changes or is destroyed.
  const hvd_request* request() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i].shape = &lengths_[i];
    request_.count = static_cast<std::int32_t>(inputs_.size());
    request_.inputs = inputs_.data();
    request_.outputs = outputs_.empty() ? nullptr : outputs_.data();
    return &request_;
  }
  hvd_handle submit() {
    hvd_handle handle = 0;
    check(hvd_submit(request(), &handle));
    return handle;
  }

 private:
  hvd_request request_{.operation = {.kind = HVD_BARRIER,
                                     .op = HVD_SUM,
                                     .prescale = 1.0,
                                     .postscale = 1.0,
                                     .root = 0,
                                     .receiver = 0},
                       .name = nullptr,
                       .process_set = 0,
                       .count = 0,
                       .inputs = nullptr,
                       .outputs = nullptr,
                       .splits = nullptr,
                       .split_count = 0,
                       .release = nullptr,
                       .owner = nullptr,
                       .ended = nullptr,
                       .allocate = nullptr,
                       .timeout_seconds = 0,
                       .sent_as = nullptr};
  std::vector<hvd_tensor> inputs_;
  std::vector<std::int64_t> lengths_;
  std::vector<void*> outputs_;
};

inline hvd_rank_list list_of(std::span<const std::int32_t> ranks) {
  return {ranks.data(), static_cast<std::int32_t>(ranks.size())};
}

/// Returns how many of `total` elements rank `rank` of `size` ranks gets. The lowest ranks get one
/// more if the division leaves a remainder.
constexpr std::size_t share_of(std::size_t total, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return total / ranks + (static_cast<std::size_t>(rank) < total % ranks ? 1 : 0);
}

}  // namespace detail

}  // namespace hvd

#endif  // HOROVOD_ELEMENTS_HPP_
