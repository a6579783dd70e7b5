#include "core/sim/world_reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <random>

#include "core/kernel/reference.h"

namespace hvd::sim {
namespace {

namespace plain = kernel::reference;

/// Products of these values stay small; they are also valid as bool.
double small_number(const Call& call, uint64_t drawn) {
  if (call.operation.dtype == DType::boolean) return static_cast<double>(drawn % 2);
  if (call.operation.op == ReduceOp::product) return static_cast<double>(1 + drawn % 2);
  return static_cast<double>(drawn % 4);
}

Numbers draw_numbers(const WorldProgram& program, size_t item, int rank, size_t tensor,
                     size_t count) {
  std::minstd_rand random(static_cast<uint32_t>(1 + item * 1009 + tensor * 31) * 8 +
                          static_cast<uint32_t>(rank));
  Numbers numbers(count);
  for (double& number : numbers)
    number = small_number(program.items[item].calls.at(rank), random() >> 8);
  return numbers;
}

/// Content of the shared memory of the tensors before the operation.
Numbers memory_before(const WorldProgram& program, size_t item, int rank) {
  return draw_numbers(program, item, rank, 0,
                      program.items[item].calls.at(rank).placement.elements);
}

Numbers numbers_of(const WorldProgram& program, size_t item, int rank, size_t tensor) {
  const Call& call = program.items[item].calls.at(rank);
  const auto count = static_cast<size_t>(element_count(call.shapes[tensor]));
  if (call.placement.elements == 0) return draw_numbers(program, item, rank, tensor, count);
  const Numbers memory = memory_before(program, item, rank);
  const auto begin = memory.begin() + static_cast<ptrdiff_t>(call.placement.places[tensor].input);
  return {begin, begin + static_cast<ptrdiff_t>(count)};
}

double scaled(DType dtype, double number, double factor) {
  return is_floating(dtype) ? number * factor : std::trunc(number * factor);
}

/// Sums of the inputs are exact. Averages are rounded at every merge. Adasum rounds often, in an
/// order that depends on the number of ranks.
double tolerance_of(const Call& call) {
  const bool is_adasum = call.operation.op == ReduceOp::adasum;
  if (!is_floating(call.operation.dtype) || (!is_adasum && call.operation.op != ReduceOp::average))
    return 0;
  if (call.operation.dtype == DType::float16) return is_adasum ? 0x1p-6 : 0x1p-9;
  if (call.operation.dtype == DType::bfloat16) return is_adasum ? 0x1p-3 : 0x1p-6;
  if (call.operation.dtype == DType::float32) return is_adasum ? 0x1p-17 : 0x1p-21;
  return is_adasum ? 0x1p-40 : 0x1p-50;
}

Numbers adasum_pair(const Numbers& a, const Numbers& b) {
  const double dot = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double square_of_a = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double square_of_b = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  const double limit = std::sqrt(DBL_MIN);
  const double of_a = square_of_a < limit ? 1 : 1 - dot / (2 * square_of_a);
  const double of_b = square_of_b < limit ? 1 : 1 - dot / (2 * square_of_b);
  Numbers sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

/// Combines rank with rank ^ 1, then rank ^ 2, and so on.
Numbers adasum(std::vector<Numbers> vectors) {
  while (vectors.size() > 1) {
    std::vector<Numbers> pairs;
    for (size_t i = 0; i < vectors.size(); i += 2)
      pairs.push_back(adasum_pair(vectors[i], vectors[i + 1]));
    vectors = std::move(pairs);
  }
  return vectors[0];
}

double combine(ReduceOp op, double a, double b) {
  if (op == ReduceOp::min) return std::min(a, b);
  if (op == ReduceOp::max) return std::max(a, b);
  return op == ReduceOp::product ? a * b : a + b;
}

/// Reduces over the `members` that take part. The others have joined.
Numbers reduced(const WorldProgram& program, size_t index, size_t tensor) {
  const Item& item = program.items[index];
  const Call& call = item.any();
  const std::vector<int> members = program.members_of(item.set);
  std::vector<Numbers> vectors;
  for (const int rank : members) {
    if (item.calls.contains(rank)) {
      vectors.push_back(numbers_of(program, index, rank, tensor));
      for (double& number : vectors.back())
        number = scaled(call.operation.dtype, number, call.operation.prescale);
    } else if (call.operation.op == ReduceOp::adasum) {
      vectors.emplace_back(static_cast<size_t>(element_count(call.shapes[tensor])), 0.0);
    }
  }
  Numbers sum = vectors[0];
  if (call.operation.op == ReduceOp::adasum) {
    sum = adasum(std::move(vectors));
  } else {
    for (size_t v = 1; v < vectors.size(); ++v)
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] = combine(call.operation.op, sum[i], vectors[v][i]);
  }
  const double share =
      call.operation.op == ReduceOp::average ? static_cast<double>(members.size()) : 1.0;
  for (double& number : sum) {
    const double exact = number * call.operation.postscale / share;
    number = is_floating(call.operation.dtype) ? exact : std::trunc(exact);
  }
  return sum;
}

size_t row_elements(const Shape& shape) {
  return static_cast<size_t>(element_count(Shape(shape.begin() + 1, shape.end())));
}

struct Rows {
  size_t first = 0;
  size_t count = 0;
};

/// The lowest ranks get the remaining rows.
Rows share_of(size_t rows, size_t place, size_t size) {
  const size_t each = rows / size, over = rows % size;
  return {place * each + std::min(place, over), each + (place < over ? 1 : 0)};
}

Numbers cut(const Numbers& numbers, Rows rows, size_t row) {
  const auto begin = numbers.begin() + static_cast<ptrdiff_t>(rows.first * row);
  return {begin, begin + static_cast<ptrdiff_t>(rows.count * row)};
}

Expected gathered(const WorldProgram& program, size_t item, size_t tensor) {
  Expected all;
  for (const auto& [rank, call] : program.items[item].calls) {
    const Numbers part = numbers_of(program, item, rank, tensor);
    const int64_t rows_before = all.shape.empty() ? 0 : all.shape[0];
    all.shape = call.shapes[tensor];
    all.shape[0] += rows_before;
    all.numbers.insert(all.numbers.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<Expected> exchanged(const WorldProgram& program, size_t item, size_t place) {
  Expected rows, splits;
  splits.dtype = DType::int32;
  for (const auto& [from, call] : program.items[item].calls) {
    const auto first = std::accumulate(call.splits.begin(),
                                       call.splits.begin() + static_cast<ptrdiff_t>(place), 0);
    const int count = call.splits[place];
    const Numbers part =
        cut(numbers_of(program, item, from, 0),
            {static_cast<size_t>(first), static_cast<size_t>(count)}, row_elements(call.shapes[0]));
    rows.numbers.insert(rows.numbers.end(), part.begin(), part.end());
    splits.numbers.push_back(count);
    rows.shape = call.shapes[0];
  }
  rows.shape[0] =
      static_cast<int64_t>(std::accumulate(splits.numbers.begin(), splits.numbers.end(), 0.0));
  splits.shape = {static_cast<int64_t>(splits.numbers.size())};
  rows.dtype = program.items[item].any().operation.dtype;
  return {rows, splits};
}

Expected one_output(const WorldProgram& program, size_t index, size_t place, size_t tensor) {
  const Item& item = program.items[index];
  const Call& call = item.any();
  const Shape& shape = call.shapes[tensor];
  switch (call.operation.kind) {
    case OperationKind::allgather:
      return gathered(program, index, tensor);
    case OperationKind::broadcast:
    case OperationKind::message:
      return {.shape = shape, .numbers = numbers_of(program, index, call.operation.root, tensor)};
    case OperationKind::reducescatter: {
      const Rows rows = share_of(static_cast<size_t>(shape[0]), place, item.calls.size());
      Expected part{.shape = shape,
                    .numbers = cut(reduced(program, index, tensor), rows, row_elements(shape))};
      part.shape[0] = static_cast<int64_t>(rows.count);
      return part;
    }
    default:
      return {.shape = shape, .numbers = reduced(program, index, tensor)};
  }
}

/// Content of the shared memory after the outputs have been stored in order.
Expected memory_after(const WorldProgram& program, size_t item, int rank,
                      const std::vector<Expected>& outputs) {
  Expected memory = outputs[0];
  memory.numbers = memory_before(program, item, rank);
  const Placement& placement = program.items[item].calls.at(rank).placement;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto to = static_cast<ptrdiff_t>(placement.places[i].output);
    std::ranges::copy(outputs[i].numbers, memory.numbers.begin() + to);
  }
  return memory;
}

ByteVector to_bytes(DType dtype, const Numbers& numbers) {
  ByteVector bytes(numbers.size() * element_bytes(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) plain::put_number(dtype, bytes.data(), i, numbers[i]);
  return bytes;
}

}  // namespace

std::vector<ByteVector> inputs_of(const WorldProgram& program, size_t item, int rank) {
  const Call& call = program.items[item].calls.at(rank);
  if (call.placement.elements > 0)
    return {to_bytes(call.operation.dtype, memory_before(program, item, rank))};
  std::vector<ByteVector> inputs;
  for (size_t tensor = 0; tensor < call.shapes.size(); ++tensor)
    inputs.push_back(to_bytes(call.operation.dtype, numbers_of(program, item, rank, tensor)));
  return inputs;
}

std::vector<Expected> expected_of(const WorldProgram& program, size_t index, int rank) {
  const Item& item = program.items[index];
  const Call& call = item.any();
  const std::vector<int> members = program.members_of(item.set);
  const auto place = static_cast<size_t>(std::ranges::find(members, rank) - members.begin());
  if (call.operation.kind == OperationKind::alltoall) return exchanged(program, index, place);
  std::vector<Expected> outputs;
  for (size_t tensor = 0; tensor < call.shapes.size(); ++tensor) {
    outputs.push_back(one_output(program, index, place, tensor));
    outputs.back().dtype = call.operation.dtype;
    outputs.back().tolerance = tolerance_of(call);
  }
  if (item.calls.at(rank).placement.elements > 0)
    return {memory_after(program, index, rank, outputs)};
  return outputs;
}

std::string difference(const Expected& expected, const std::byte* actual) {
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    const double number = plain::number_at(expected.dtype, actual, i);
    const double wanted = expected.numbers[i];
    const double slack = expected.tolerance * std::max(1.0, std::abs(wanted));
    if (!(std::abs(number - wanted) <= slack))
      return fmt::format("element {} of {} is {}, expected {}", i, name_of(expected.dtype), number,
                         wanted);
  }
  return "";
}

}  // namespace hvd::sim
