// The error of an operation, as MXNet's engine takes it: a dmlc::Error, which is a
// std::runtime_error of libstdc++. This library may be built with libc++, so the object is laid out
// by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "adapters/mxnet/c_api.h"

namespace hvd::mxnet {

/// Owned by the thread that passes error() to the engine, which copies it. A value that is not
/// moved.
class Failure {
 public:
  explicit Failure(const std::string& text)
      : memory_(new char[sizeof(Head) + text.size() + 1]), object_{nullptr, nullptr} {
    const Head head{text.size(), text.size(), kNotShared};
    std::memcpy(memory_.get(), &head, sizeof(head));
    object_.text = memory_.get() + sizeof(head);
    std::memcpy(object_.text, text.c_str(), text.size() + 1);
  }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  const Error* error() const { return reinterpret_cast<const Error*>(&object_); }

 private:
  /// In front of the characters of a reference-counted string.
  struct Head {
    uint64_t length, capacity;
    int32_t references;
  };
  /// The string has one owner, and is copied with its characters.
  static constexpr int32_t kNotShared = -1;

  struct Object {
    void* virtual_functions;  ///< not used by a copy
    char* text;
  };

  std::unique_ptr<char[]> memory_;
  Object object_;
};

}  // namespace hvd::mxnet
