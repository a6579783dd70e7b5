// A job of one rank with real threads.
#include "core/capi/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace hvd {
namespace {

/// Submits one operation and ignores its result.
using Submit = void (*)(Context& context, const char* name);

/// An allreduce in place of this thread's own tensor.
hvd_request allreduce(const char* name) {
  static constexpr int64_t kElements = 4;
  thread_local std::array<float, kElements> tensor{};
  thread_local const hvd_tensor input{tensor.data(), &kElements,    1,
                                      HVD_FLOAT32,   {HVD_HOST, 0}, nullptr};
  thread_local void* const output = tensor.data();
  hvd_request request{};
  request.operation.kind = HVD_ALLREDUCE;
  request.name = name;
  request.count = 1;
  request.inputs = &input;
  request.outputs = &output;
  request.operation.op = HVD_SUM;
  request.operation.prescale = request.operation.postscale = 1.0;
  return request;
}

void submit_one(Context& context, const char* name) { context.submit(allreduce(name), true); }

void submit_bundle(Context& context, const char* name) {
  const hvd_request request = allreduce(name);
  context.submit(std::span(&request, 1));
}

void submit_barrier(Context& context, const char* name) {
  hvd_request request{};
  request.operation.kind = HVD_BARRIER;
  request.name = name;
  context.submit(request, true);
}

void submit_join(Context& context, const char* name) {
  hvd_request request{};
  request.operation.kind = HVD_JOIN;
  request.name = name;
  context.submit(request, true);
}

/// Adds a set that exists already, which all ranks reject.
void add_the_world(Context& context, const char*) {
  try {
    context.add_process_set({0});
  } catch (const Error& error) {
    if (!std::string(error.what()).ends_with("it has all ranks")) throw;
  }
}

Error submit_until_refused(Context& context, Submit submit, const std::string& name) {
  try {
    for (int i = 0;; ++i) submit(context, (name + "." + std::to_string(i)).c_str());
  } catch (const Error& error) {
    return error;
  }
}

class WhileTheJobEnds : public testing::TestWithParam<Submit> {};

TEST_P(WhileTheJobEnds, ASubmissionIsRefusedWithTheEnding) {
  for (uint32_t round = 1; round <= 40; ++round) {
    Context context({}, round, {.dynamic_process_sets = true});
    std::array<std::optional<Error>, 3> errors;
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < errors.size(); ++thread) {
      threads.emplace_back([&, thread] {
        errors[thread] =
            submit_until_refused(context, GetParam(), "thread" + std::to_string(thread));
      });
    }
    context.shutdown();
    for (std::thread& thread : threads) thread.join();
    for (const auto& error : errors) {
      ASSERT_EQ(error->code(), Code::shut_down) << error->what();
      // The operation, also if it was submitted after the end.
      ASSERT_THAT(error->what(), testing::HasSubstr(": rank 0 has shut the job down: "));
    }
  }
}

std::string name_of_submit(const testing::TestParamInfo<Submit>& info) {
  constexpr std::array kNames = {"Allreduce", "Bundle", "Barrier", "Join", "AddProcessSet"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Any, WhileTheJobEnds,
                         testing::Values(submit_one, submit_bundle, submit_barrier, submit_join,
                                         add_the_world),
                         name_of_submit);

TEST(Context, ANameInFlightIsRefusedWhereItIsSubmittedAndNothingOfABundleIsQueued) {
  Context context({}, 1, {});
  const auto refused = [&](auto submit) {
    try {
      submit();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  // A job of one rank may complete the first operation before the second is submitted.
  std::string text;
  for (int i = 0; i < 1000 && text.empty(); ++i) {
    const std::string name = "x" + std::to_string(i);
    const auto first = context.submit(allreduce(name.c_str()), true);
    const std::string other = "y" + std::to_string(i);
    const std::array bundle{allreduce(other.c_str()), allreduce(name.c_str())};
    text = refused([&] { context.submit(std::span(bundle)); });
    context.wait(*first);
    if (!text.empty()) context.wait(*context.submit(allreduce(other.c_str()), true));
    context.wait(*context.submit(allreduce(name.c_str()), true));
  }
  EXPECT_THAT(text, testing::HasSubstr("allreduce \"x"));
  EXPECT_THAT(text, testing::HasSubstr("still in flight on rank 0"));
}

TEST(Context, AGroupOfAJobThatHasEndedIsRefusedWithTheEnding) {
  Context context({}, 1, {});
  context.shutdown();
  try {
    context.make_group({}, "");
    ADD_FAILURE() << "there is a group";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::shut_down);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 0 has shut the job down"));
  }
}

}  // namespace
}  // namespace hvd
