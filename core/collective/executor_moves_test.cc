// The executor with operations whose ranks have different parts: data movement over the simulated
// network, and absent memory.
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <random>

#include "core/base/bytes.h"
#include "core/collective/executor_testing.h"
#include "core/sim/seeds.h"

namespace hvd {
namespace {

using Make = Schedule (*)(int rank, int size);

Schedule doubling_where_possible(int rank, int size) {
  return std::has_single_bit(static_cast<unsigned>(size)) ? recursive_doubling_allgather(rank, size)
                                                          : ring_allgather(rank, size);
}

TEST(Executor, GathersBlocksOfUnevenLengths) {
  for (const Make make : {direct_allgather, ring_allgather, doubling_where_possible})
    for (const uint64_t seed : sim::seeds(20)) {
      const int size = 1 + static_cast<int>(seed % 9);
      std::mt19937_64 random(seed);
      std::vector<size_t> blocks;
      for (int rank = 0; rank < size; ++rank) blocks.push_back(random() % 3 * (random() % 700) * 4);
      std::vector<size_t> starts(size);
      std::exclusive_scan(blocks.begin(), blocks.end(), starts.begin(), size_t{0});
      const size_t bytes = starts.back() + blocks.back();
      ByteVector expected(bytes);
      for (std::byte& byte : expected) byte = std::byte(random());
      sim::Network network(size, seed, network_of(seed));
      std::vector<Tensors> outputs;
      std::vector<Work> works(size);
      for (int rank = 0; rank < size; ++rank) {
        ByteVector own(bytes);  // only its own block is valid
        std::copy_n(expected.begin() + starts[rank], blocks[rank], own.begin() + starts[rank]);
        outputs.emplace_back(bytes / 4, 4, seed + rank).set(own);
      }
      for (int rank = 0; rank < size; ++rank) {
        works[rank].plan =
            blocks_plan(make(rank, size), blocks, network.group(rank).unit_bytes(), 4);
        works[rank].output = outputs[rank].list();
        works[rank].input = works[rank].output;
        if (seed % 4 == 3) continue;  // in place
        outputs[rank].set(ByteVector(bytes));
        works[rank].input = {};
        works[rank].input.add_absent(starts[rank]);
        works[rank].input.add(expected.data() + starts[rank], blocks[rank]);
        works[rank].input.add_absent(bytes - starts[rank] - blocks[rank]);
      }
      for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
      for (Tensors& output : outputs) ASSERT_EQ(output.content(), expected) << "seed " << seed;
    }
}

TEST(Executor, GathersWhatOutgrowsTheCaches) {
  constexpr int kSize = 8;
  const std::vector<size_t> blocks(kSize, 320 * KiB);  // 22 MiB for all ranks together
  const size_t bytes = kSize * blocks[0];
  ByteVector expected(bytes);
  std::mt19937_64 random(1);
  for (std::byte& byte : expected) byte = std::byte(random());
  sim::Network network(kSize, 1, {.unit_bytes = 256 * KiB, .shared_memory = true});
  std::vector<ByteVector> outputs(kSize, ByteVector(bytes));
  std::vector<Work> works(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    works[rank].plan =
        blocks_plan(direct_allgather(rank, kSize), blocks, network.group(rank).unit_bytes(), 4);
    works[rank].output.add(outputs[rank].data(), bytes);
    works[rank].input.add_absent(rank * blocks[0]);
    works[rank].input.add(expected.data() + rank * blocks[0], blocks[0]);
    works[rank].input.add_absent((kSize - 1 - rank) * blocks[0]);
  }
  for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
  for (const ByteVector& output : outputs) EXPECT_EQ(output, expected);
}

/// Integers as floats, different for every rank, seed and position.
std::vector<float> numbers(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 1000);
  return values;
}
void add(GatherList& list, const std::vector<float>& values) {
  list.add(reinterpret_cast<std::byte*>(const_cast<float*>(values.data())), values.size() * 4);
}

TEST(Executor, ScattersWhatItReducesAndNeedsNoRoomForTheRest) {
  for (const uint64_t seed : sim::seeds(20)) {
    const int size = 1 + static_cast<int>(seed % 7);
    std::mt19937_64 random(seed);
    std::vector<size_t> blocks;
    for (int rank = 0; rank < size; ++rank) blocks.push_back(random() % 3 * (random() % 300) * 4);
    const size_t count = std::accumulate(blocks.begin(), blocks.end(), size_t{0}) / 4;
    sim::Network network(size, seed, network_of(seed));
    std::vector<std::vector<float>> inputs, outputs;
    std::vector<Work> works(size);
    for (int rank = 0; rank < size; ++rank) {
      inputs.push_back(numbers(count, seed * 100 + rank));
      outputs.emplace_back(blocks[rank] / 4);
      Work& work = works[rank];
      work.plan = blocks_plan(direct_reducescatter(rank, size), blocks,
                              network.group(rank).unit_bytes(), 4);
      add(work.input, inputs[rank]);
      for (int block = 0; block < size; ++block)
        block == rank ? add(work.output, outputs[rank]) : work.output.add_absent(blocks[block]);
      work.dtype = DType::float32;
      work.prescale = 2.0;
      work.postscale = 0.5;
    }
    const auto before = inputs;
    for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
    ASSERT_EQ(inputs, before);
    size_t start = 0;
    for (int rank = 0; rank < size; ++rank) {
      for (size_t i = 0; i < outputs[rank].size(); ++i) {
        float sum = 0;
        for (const auto& input : inputs) sum += input[start + i];
        ASSERT_EQ(outputs[rank][i], sum) << "seed " << seed << ", rank " << rank;
      }
      start += outputs[rank].size();
    }
  }
}

TEST(Executor, BringsEveryRankItsPartOfEveryOther) {
  for (const uint64_t seed : sim::seeds(20)) {
    const size_t size = 1 + seed % 6;
    std::mt19937_64 random(seed);
    std::vector<size_t> blocks;  // [from * size + to]
    for (size_t i = 0; i < size * size; ++i) blocks.push_back(random() % 3 * (random() % 200) * 4);
    sim::Network network(static_cast<int>(size), seed, network_of(seed));
    std::vector<std::vector<float>> sent(size * size), received(size * size);
    std::vector<Work> works(size);
    for (size_t i = 0; i < size * size; ++i) {
      sent[i] = numbers(blocks[i] / 4, seed * 100 + i);
      received[i].resize(blocks[i] / 4);
    }
    for (size_t rank = 0; rank < size; ++rank) {
      Work& work = works[rank];
      work.plan = blocks_plan(direct_alltoall(static_cast<int>(rank), static_cast<int>(size)),
                              blocks, network.group(static_cast<int>(rank)).unit_bytes(), 4);
      for (size_t i = 0; i < size * size; ++i) {
        i / size == rank ? add(work.input, sent[i]) : work.input.add_absent(blocks[i]);
        i % size == rank ? add(work.output, received[i]) : work.output.add_absent(blocks[i]);
      }
      work.dtype = DType::float32;
    }
    for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
    ASSERT_EQ(received, sent) << "seed " << seed;
  }
}

TEST(Executor, ScalesInPlaceWhatItSendsOnlyOnce) {
  for (const size_t unit_bytes : {64, 1024}) {
    constexpr int kSize = 3;
    std::vector<std::vector<float>> memory(kSize, std::vector<float>(150, 1.0F));
    std::vector<Work> works(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      Work& work = works[rank];
      work.plan = blocks_plan(direct_reducescatter(rank, kSize), {200, 200, 200}, unit_bytes, 4);
      add(work.output, memory[rank]);
      work.input = work.output;
      work.dtype = DType::float32;
      work.prescale = 2.0;
      work.postscale = 10.0;
    }
    sim::Network network(kSize, 1, {.unit_bytes = unit_bytes});
    run_all(network, std::move(works));
    for (int rank = 0; rank < kSize; ++rank)
      for (int i = 0; i < 150; ++i)
        ASSERT_EQ(memory[rank][i], i / 50 == rank ? 60.0F : 20.0F) << "rank " << rank << ", " << i;
  }
}

TEST(Executor, BroadcastsFromEveryRoot) {
  for (const auto make : {direct_broadcast, binomial_broadcast, chain_broadcast})
    for (int size = 1; size <= 8; ++size)
      for (int root = 0; root < size; ++root) {
        const uint64_t seed = static_cast<uint64_t>(size * 10 + root);
        sim::Network network(size, seed, network_of(seed));
        std::vector<Tensors> outputs;
        std::vector<Work> works(size);
        const ByteVector expected = small_numbers(DType::float32, 700, seed);
        for (int rank = 0; rank < size; ++rank) outputs.emplace_back(700, 4, seed + rank);
        Tensors input(700, 4, seed);
        input.set(expected);
        for (int rank = 0; rank < size; ++rank) {
          works[rank].input = works[rank].output = outputs[rank].list();
          if (rank == root) works[rank].input = input.list();  // out of place at the root
          works[rank].plan =
              split_plan(make(rank, size, root), 2800, network.group(rank).unit_bytes(), 4);
        }
        for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
        for (Tensors& output : outputs) ASSERT_EQ(output.content(), expected);
      }
}

}  // namespace
}  // namespace hvd
