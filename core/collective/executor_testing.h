// Shared by the executor tests: memory laid out as in fused batches, test values, and networks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/collective/executor.h"
#include "core/collective/schedule.h"
#include "core/sim/network.h"

namespace hvd {

using Make = Schedule (*)(int rank, int size);
struct Named {
  const char* name;
  Make make;
};
inline Schedule folded(int rank, int size) {
  return folded_allreduce(rank, size, size % 2 == 0 ? size / 2 : size);
}
/// All allreduce schedules.
inline constexpr std::array kAllreduces = {
    Named{"direct", direct_allreduce},
    Named{"one_shot", one_shot_allreduce},
    Named{"ring", ring_allreduce},
    Named{"recursive_doubling", recursive_doubling_allreduce},
    Named{"halving_doubling", halving_doubling_allreduce},
    Named{"folded", folded},
    Named{"tree", tree_allreduce},
    Named{"parameter_server", parameter_server_allreduce}};

/// Memory of one rank laid out as in a fused batch: pieces of odd lengths at separate addresses.
class Tensors {
 public:
  Tensors() = default;
  Tensors(size_t elements, size_t element, uint64_t pieces_seed) {
    std::mt19937_64 random(pieces_seed);
    while (elements > 0) {
      const size_t piece = std::min<size_t>(elements, random() % 40);
      pieces_.emplace_back(piece * element + kGuard, std::byte{0x77});
      elements -= piece;
    }
  }

  GatherList list() {
    GatherList list;
    for (ByteVector& piece : pieces_) list.add(piece.data(), piece.size() - kGuard);
    return list;
  }
  ByteVector content() {
    ByteVector all;
    list().for_each(0, list().bytes(), [&](MutableBytes piece, size_t) {
      all.insert(all.end(), piece.begin(), piece.end());
    });
    return all;
  }
  void set(const ByteVector& all) {
    list().for_each(0, all.size(), [&](MutableBytes piece, size_t offset) {
      std::memcpy(piece.data(), all.data() + offset, piece.size());
    });
  }

 private:
  static constexpr size_t kGuard = 1;  // makes some pieces misaligned and keeps them apart
  std::vector<ByteVector> pieces_;
};

inline std::shared_ptr<const Plan> split_plan(Schedule schedule, size_t bytes, size_t segment_bytes,
                                              size_t element_bytes) {
  Layout layout = Layout::split(bytes, segment_bytes, schedule.chunks, element_bytes);
  return make_plan(std::move(schedule), std::move(layout));
}
inline std::shared_ptr<const Plan> blocks_plan(Schedule schedule, const std::vector<size_t>& blocks,
                                               size_t segment_bytes, size_t element_bytes) {
  Layout layout = Layout::blocks(blocks, segment_bytes, schedule.room_chunks, element_bytes);
  return make_plan(std::move(schedule), std::move(layout));
}

/// Small integers: sums are bitwise equal in any order, for all types.
inline ByteVector small_numbers(DType dtype, size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(elements);
  for (std::byte& byte : bytes) byte = std::byte(random() % 3);
  ByteVector values(elements * element_bytes(dtype));
  const auto put = [&]<class T>(T) {
    for (size_t i = 0; i < elements; ++i) {
      const T value = static_cast<T>(bytes[i]);
      std::memcpy(values.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (element_bytes(dtype)) {
    case 1:
      put(uint8_t{});
      break;
    case 2: {  // 0, 1 and 2 of the half types
      const bool half = dtype == DType::float16;
      for (size_t i = 0; i < elements; ++i) {
        const uint16_t one = half ? 0x3c00 : 0x3f80, two = 0x4000;
        const uint16_t value = bytes[i] == std::byte{2} ? two : bytes[i] == std::byte{1} ? one : 0;
        std::memcpy(values.data() + i * 2, &value, 2);
      }
      break;
    }
    case 4:
      dtype == DType::float32 ? put(float{}) : put(int32_t{});
      break;
    default:
      dtype == DType::float64 ? put(double{}) : put(int64_t{});
  }
  return values;
}

inline sim::NetworkOptions network_of(uint64_t seed) {
  return {.unit_bytes = 64 + 8 * (seed % 60),
          .units_in_flight = 2 + static_cast<uint32_t>(seed % 4),
          .units_to_overlap = 1 + static_cast<uint32_t>(seed % 5),
          .shared_memory = seed % 2 == 0};
}

/// Runs `works` and expects no errors.
inline void run_all(sim::Network& network, std::vector<Work> works) {
  for (const auto& error : network.run(std::move(works)))
    ASSERT_FALSE(error.has_value()) << error->what();
}

}  // namespace hvd
