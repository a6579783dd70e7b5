// Linear regression on several processes: each rank has its own part of the data, all ranks have
// the same weights, and every step uses the gradient averaged over all ranks.
//
//   horovodrun -np 4 build/examples/linear_regression
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <horovod/horovod.hpp>
#include <random>
#include <vector>

namespace {

constexpr std::size_t kFeatures = 4;
constexpr std::size_t kSamples = 4096;  // of all ranks together
constexpr int kEpochs = 30;
constexpr float kLearningRate = 0.3f;
constexpr unsigned kSeed = 42;

/// The last weight belongs to a feature that is always 1: the intercept.
using Weights = std::array<float, kFeatures + 1>;
constexpr Weights kTrue{2.0f, -3.5f, 0.5f, 1.25f, 4.0f};

struct Sample {
  Weights features;
  float target = 0;
};

float predict(const Weights& weights, const Weights& features) {
  float sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * features[i];
  return sum;
}

/// Draws all samples on every rank, so that they are the same for any number of ranks, and returns
/// this rank's part.
std::vector<Sample> samples_of(std::size_t rank, std::size_t size) {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> feature(-1, 1);
  std::normal_distribution<float> noise(0, 0.01f);
  std::vector<Sample> kept;
  for (std::size_t index = 0; index < kSamples; ++index) {
    Sample sample;
    std::generate_n(sample.features.begin(), kFeatures, [&] { return feature(random); });
    sample.features.back() = 1;
    sample.target = predict(kTrue, sample.features) + noise(random);
    if (index % size == rank) kept.push_back(sample);
  }
  return kept;
}

/// Gradient and loss on the samples of one rank.
struct Found {
  Weights gradient{};
  float loss = 0;  ///< mean of the squared errors
};

Found look_at(const std::vector<Sample>& samples, const Weights& weights) {
  Found found;
  const float share = 1.0f / static_cast<float>(samples.size());
  for (const Sample& sample : samples) {
    const float error = predict(weights, sample.features) - sample.target;
    found.loss += error * error * share;
    for (std::size_t i = 0; i < weights.size(); ++i)
      found.gradient[i] += 2 * error * sample.features[i] * share;
  }
  return found;
}

/// Returns whether the weights are equal on all ranks, bit by bit.
bool are_equal_everywhere(hvd::Context& job, Weights weights) {
  Weights least = weights;
  job.allreduce("least", least, hvd::min);
  job.allreduce("greatest", weights, hvd::max);
  return least == weights;
}

bool are_right(const Weights& weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::abs(weights[i] - kTrue[i]) > 0.01f) return false;
  }
  return true;
}

}  // namespace

int main() {
  hvd::Context job;
  const bool speaks = job.rank() == 0;
  const auto samples =
      samples_of(static_cast<std::size_t>(job.rank()), static_cast<std::size_t>(job.size()));
  Weights weights{};
  weights.fill(static_cast<float>(job.rank()));  // different values,
  job.broadcast("weights", weights, 0);          // replaced by those of rank 0

  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    Found found = look_at(samples, weights);
    auto gradient = job.allreduce_async("gradient", found.gradient, hvd::average);
    auto loss = job.allreduce_async("loss", std::span(&found.loss, 1), hvd::average);
    gradient.wait();
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] -= kLearningRate * found.gradient[i];
    loss.wait();
    if (speaks) std::printf("epoch %2d: loss %.6f\n", epoch, found.loss);
  }

  const bool equal = are_equal_everywhere(job, weights);
  if (speaks) {
    std::printf("weights:");
    for (const float weight : weights) std::printf(" %.3f", weight);
    std::printf(", %s on all %d ranks\n", equal ? "equal" : "different", job.size());
  }
  return equal && are_right(weights) ? 0 : 1;
}
