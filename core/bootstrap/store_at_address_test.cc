#include "core/bootstrap/store_at_address.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "core/base/error.h"
#include "core/bootstrap/store_host.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

/// Rank 0 of the job `name`.
class Root {
 public:
  Root(const std::string& name, const JobKey& key, uint16_t port = 0)
      : host_(key, "127.0.0.1", port) {
    host_.open(std::nullopt);
    store_ = connect_at_address(name, address(), key, {.rank = 0}, StartDeadline(20s));
    host_.all_connected();  // or its end waits for the other rank
  }
  Address address() const { return {"127.0.0.1", host_.port()}; }
  Store& store() { return *store_; }

 private:
  StoreHost host_;
  std::unique_ptr<Store> store_;
};

Error error_of(const std::string& name, const Address& server, const JobKey& key) {
  try {
    connect_at_address(name, server, key, {.rank = 1}, StartDeadline(1s));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::ok, "");
}

/// Rank 0 is slow to see the end of generation 1, and still serves its Store.
TEST(StoreAtAddress, OfAnEarlierGenerationIsNotUsed) {
  const JobKey key = make_job_key();
  auto root = std::make_unique<Root>("horovod-1-all", key);
  const Address address = root->address();
  auto other = std::async(std::launch::async, [&] {
    const auto store =
        connect_at_address("horovod-2-all", address, key, {.rank = 1}, StartDeadline(20s));
    return std::string(as_text(store->get("k", 10s)));
  });
  EXPECT_EQ(other.wait_for(200ms), std::future_status::timeout);  // time to connect
  root->store().set("k", as_bytes("of generation 1"));
  root.reset();
  root = std::make_unique<Root>("horovod-2-all", key, address.port);
  root->store().set("k", as_bytes("of generation 2"));
  EXPECT_EQ(other.get(), "of generation 2");
}

TEST(StoreAtAddress, OfAnotherGenerationIsNamedAtTheDeadline) {
  const JobKey key = make_job_key();
  const Root root("horovod-3-all", key);
  const Error error = error_of("horovod-2-all", root.address(), key);
  EXPECT_EQ(error.code(), Code::timed_out);
  EXPECT_EQ(error.what(),
            "waited for the job horovod-2-all at " + to_text(root.address()) +
                " (the number counts the calls of init), but rank 0 served only horovod-3-all "
                "there within 1 s (HOROVOD_START_TIMEOUT)");
}

TEST(StoreAtAddress, WithAnotherKeyIsRefused) {
  const Root root("horovod-1-all", make_job_key());
  try {
    connect_at_address("horovod-1-all", root.address(), make_job_key(), {.rank = 1},
                       StartDeadline(20s));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
  }
}

}  // namespace
}  // namespace hvd
