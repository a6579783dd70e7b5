// For tests: why an environment is rejected.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/bootstrap/identity.h"

namespace hvd::test {

/// Returns the message of identity_from(), or "no error". Expects Code::invalid_argument.
inline std::string error_of(const Environment& environment) {
  try {
    identity_from(environment);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

}  // namespace hvd::test
