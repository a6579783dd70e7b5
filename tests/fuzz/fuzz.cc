// The program for libFuzzer: `fuzz --target=NAME [libFuzzer's options] FOLDER...`.
#include <fmt/core.h>

#include <cstdlib>

#include "tests/fuzz/target.h"

namespace {

const hvd::fuzz::Target* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kOption)) {
      target = hvd::fuzz::find_target(argument.substr(kOption.size()));
    }
  }
  if (target == nullptr) {
    fmt::print(stderr, "--target= must be one of:\n");
    for (const auto& each : hvd::fuzz::targets()) fmt::print(stderr, "  {}\n", each.name);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->take(hvd::ConstBytes(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
