// Runs what the fuzzers have kept, in every build. HVD_UPDATE_GOLDEN=1 writes the samples.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

using Path = std::filesystem::path;

Path folder_of(const Target& target) {
  return Path(HVD_SOURCE_DIR "/tests/fuzz/corpus") / target.name;
}

Path sample_path(const Target& target, size_t number) {
  return folder_of(target) / ("sample-" + std::to_string(number));
}

ByteVector read(const Path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ConstBytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

void write_samples(const Target& target) {
  std::filesystem::create_directories(folder_of(target));
  size_t number = 0;
  for (const ByteVector& sample : target.samples()) {
    std::ofstream out(sample_path(target, number++), std::ios::binary);
    out << as_text(sample);
  }
}

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, TakesWhatTheCorpusHolds) {
  if (std::getenv("HVD_UPDATE_GOLDEN") != nullptr) write_samples(GetParam());
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(GetParam()))) {
    SCOPED_TRACE(entry.path().string());
    GetParam().take(read(entry.path()));
    ++inputs;
  }
  EXPECT_GE(inputs, GetParam().samples().size());
}

/// A corpus of an older format would only be refused.
TEST_P(Replay, TheCorpusHoldsTheSamplesOfToday) {
  const auto samples = GetParam().samples();
  const std::string_view name = GetParam().name;
  if (name == "handshake" || name == "store") GTEST_SKIP() << "they hold random numbers";
  for (size_t i = 0; i < samples.size(); ++i)
    EXPECT_EQ(read(sample_path(GetParam(), i)), samples[i]) << "sample " << i;
}

TEST_P(Replay, TakesEverySampleCutShortOrWithAnotherByte) {
  for (const ByteVector& sample : GetParam().samples()) {
    for (size_t place = 0; place < sample.size(); place += 1 + sample.size() / 64) {
      GetParam().take(ConstBytes(sample).first(place));
      ByteVector other = sample;
      other[place] ^= std::byte{0x81};
      GetParam().take(other);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace hvd::fuzz
