#include "adapters/tensorflow/gpu_stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <string>

namespace hvd::tf {
namespace {

using Word = uintptr_t;

Word word_of(const void* address) { return reinterpret_cast<Word>(address); }

/// What the compiler writes for a class: offset, type, functions.
using Table = std::array<Word, 3>;
Word functions_of(const Table& table) { return word_of(&table[2]); }

struct Object {
  Word functions = 0;
  Word implementation = 0;  ///< at the offset of rows whose streams have one
  Word value = 0;           ///< what its function returns
};

Word value_of(Word object) { return reinterpret_cast<const Object*>(object)->value; }

/// The objects of a kernel on a GPU, laid out as a row says.
class Kernel {
 public:
  explicit Kernel(const StreamRow& row) : row_(row) {
    if (row.implementation != kItself)
      stream_ = {.implementation = word_of(&implementation_), .value = word_of(&native_)};
    set(parameters_, 0, kStep);
    set(parameters_, row.device_context, word_of(&device_));
    set(context_, row.parameters, word_of(parameters_.data()));
  }
  Kernel(const Kernel&) = delete;

  FoundStream find() const { return find_stream(row_, symbols_, context_.data(), step_); }
  const void* native() const { return &native_; }

  std::string problem() const {
    const FoundStream found = find();
    EXPECT_EQ(found.stream, nullptr);
    return found.problem == nullptr ? "" : found.problem;
  }

  using Memory = std::array<std::byte, 512>;
  static void set(Memory& memory, size_t offset, Word word) {
    std::memcpy(memory.data() + offset, &word, sizeof(word));
  }

  static constexpr int64_t kStep = 1234567;
  const StreamRow& row_;
  int64_t step_ = kStep;
  Memory context_{}, parameters_{};
  const Table device_table_{}, stream_table_{};
  int native_ = 0;
  Object implementation_{.functions = functions_of(stream_table_)};
  Object stream_{.functions = functions_of(stream_table_), .value = word_of(&native_)};
  Object device_{.functions = functions_of(device_table_), .value = word_of(&stream_)};
  StreamSymbols symbols_{&device_table_, &stream_table_, value_of, value_of};
};

class Rows : public testing::TestWithParam<const char*> {
 protected:
  Rows() : kernel_(*stream_row_of(GetParam())) {}
  Kernel kernel_;
};
INSTANTIATE_TEST_SUITE_P(Versions, Rows,
                         testing::Values("2.15.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0",
                                         "2.21.0"));

TEST_P(Rows, FindTheStream) {
  const FoundStream found = kernel_.find();
  EXPECT_EQ(found.problem, nullptr) << found.problem;
  EXPECT_EQ(found.stream, kernel_.native());
}

TEST_P(Rows, RefuseAnotherStep) {
  ++kernel_.step_;
  EXPECT_EQ(kernel_.problem(), "the parameters of the kernel are not where they are expected");
}

TEST_P(Rows, RefuseAnotherClassOfDevice) {
  const Table other{};
  kernel_.device_.functions = functions_of(other);
  EXPECT_EQ(kernel_.problem(), "the context of the device is not where it is expected");
}

TEST_P(Rows, RefuseTheDeviceOfAKernelInHostMemory) {
  Kernel::set(kernel_.parameters_, kernel_.row_.device_context, 0);
  EXPECT_EQ(kernel_.problem(), "the context of the device is not where it is expected");
}

TEST_P(Rows, RefuseAnotherClassOfStream) {
  const Table other{};
  kernel_.stream_.functions = kernel_.implementation_.functions = functions_of(other);
  EXPECT_EQ(kernel_.problem(), "the stream of the device is not of the expected class");
  kernel_.device_.value = 0;
  EXPECT_EQ(kernel_.problem(), "the stream of the device is not of the expected class");
}

TEST_P(Rows, RefuseAStreamWithoutAHandle) {
  kernel_.stream_.value = 0;
  EXPECT_EQ(kernel_.problem(), "the stream of the device has no handle");
}

TEST_P(Rows, DoNotCrashOnMemoryThatCannotBeRead) {
  constexpr size_t kBytes = 4096;
  void* const closed = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(closed, MAP_FAILED);
  const StreamRow& row = kernel_.row_;
  for (const Word bad : {word_of(closed), Word{8}, ~Word{0} - 1000}) {
    Kernel kernel(row);
    EXPECT_STREQ(find_stream(row, kernel.symbols_, reinterpret_cast<const void*>(bad), 0).problem,
                 "the context of the kernel cannot be read");
    kernel.device_.value = bad;
    EXPECT_EQ(kernel.problem(), "the stream of the device is not of the expected class");
    Kernel::set(kernel.parameters_, row.device_context, bad);
    EXPECT_EQ(kernel.problem(), "the context of the device is not where it is expected");
    Kernel::set(kernel.context_, row.parameters, bad);
    EXPECT_EQ(kernel.problem(), "the parameters of the kernel are not where they are expected");
  }
  ::munmap(closed, kBytes);
}

TEST(StreamRows, AreFoundByMajorAndMinorVersion) {
  EXPECT_EQ(stream_row_of("2.21.7"), stream_row_of("2.21.0"));
  EXPECT_EQ(stream_row_of("2.21.0-rc1"), stream_row_of("2.21.0"));
  EXPECT_EQ(stream_row_of("2.21"), stream_row_of("2.21.0"));
}

TEST(StreamRows, DoNotExistForOtherVersions) {
  for (const char* const version :
       {"", "2", "2.", "2.2", "2.210.0", "2.99.0", "3.21.0", "2.21x", "x.21.0", "1.15.5", "2.-21"})
    EXPECT_EQ(stream_row_of(version), nullptr) << version;
}

}  // namespace
}  // namespace hvd::tf
