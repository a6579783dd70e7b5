// Blocking calls of oneCCL on host memory.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>
#include <thread>

#include "measure.h"
#include "rendezvous.h"

namespace bench {
namespace {

/// Returns the store of rank 0, whose address is passed in a file.
ccl::shared_ptr_class<ccl::kvs> meet(const Rendezvous& rendezvous) {
  const std::string path = rendezvous.store + "/oneccl", draft = path + ".new";
  if (rendezvous.rank == 0) {
    const auto store = ccl::create_main_kvs();
    const auto address = store->get_address();
    std::ofstream(draft, std::ios::binary).write(address.data(), address.size());
    std::filesystem::rename(draft, path);
    return store;
  }
  while (!std::filesystem::exists(path)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ccl::kvs::address_type address;
  std::ifstream(path, std::ios::binary).read(address.data(), address.size());
  return ccl::create_kvs(address);
}

/// Returns an attribute that makes the library cache the plan of a call, by kind, count and root.
template <class Attribute>
Attribute kept(const Call& call) {
  auto attribute = ccl::create_operation_attr<Attribute>();
  attribute.template set<ccl::operation_attr_id::to_cache>(true);
  const std::string match = std::to_string(static_cast<int>(call.kind)) + "/" +
                            std::to_string(call.count) + "/" + std::to_string(call.root);
  attribute.template set<ccl::operation_attr_id::match_id>(ccl::string_class(match));
  return attribute;
}

ccl::datatype datatype_of(Type type) {
  if (type == Type::float32) return ccl::datatype::float32;
  return type == Type::float16 ? ccl::datatype::float16 : ccl::datatype::bfloat16;
}

class OneCcl : public Peer {
 public:
  explicit OneCcl(const Rendezvous& rendezvous)
      : rendezvous_(rendezvous),
        world_(ccl::create_communicator(rendezvous.size, rendezvous.rank, meet(rendezvous))) {}
  int rank() const override { return rendezvous_.rank; }
  int size() const override { return rendezvous_.size; }

  void run(const Call& call) override {
    prepare(call);
    const auto type = datatype_of(call.type);
    const auto sum = ccl::reduction::sum;
    switch (call.kind) {
      case Kind::allreduce:
        ccl::allreduce(call.in, call.out, call.count, type, sum, world_, allreduce_).wait();
        break;
      case Kind::allgather:
        ccl::allgather(call.in, call.out, call.part, type, world_, allgather_).wait();
        break;
      case Kind::broadcast:
        ccl::broadcast(call.out, call.count, type, call.root, world_, broadcast_).wait();
        break;
      case Kind::alltoall:
        ccl::alltoall(call.in, call.out, call.part, type, world_, alltoall_).wait();
        break;
      case Kind::reducescatter:
        ccl::reduce_scatter(call.in, call.out, call.part, type, sum, world_, reducescatter_).wait();
        break;
    }
  }
  void greatest(std::span<double> values) override {
    ccl::allreduce(values.data(), values.data(), values.size(), ccl::datatype::float64,
                   ccl::reduction::max, world_)
        .wait();
  }

 private:
  /// Makes attributes only if the call has changed, since that takes longer than a latency-bound
  /// call.
  void prepare(const Call& call) {
    if (call.count == last_.count && call.root == last_.root && call.kind == last_.kind) return;
    last_ = call;
    if (call.kind == Kind::allreduce) allreduce_ = kept<ccl::allreduce_attr>(call);
    if (call.kind == Kind::allgather) allgather_ = kept<ccl::allgather_attr>(call);
    if (call.kind == Kind::broadcast) broadcast_ = kept<ccl::broadcast_attr>(call);
    if (call.kind == Kind::alltoall) alltoall_ = kept<ccl::alltoall_attr>(call);
    if (call.kind == Kind::reducescatter) reducescatter_ = kept<ccl::reduce_scatter_attr>(call);
  }

  Rendezvous rendezvous_;
  ccl::communicator world_;
  Call last_;
  ccl::allreduce_attr allreduce_ = ccl::create_operation_attr<ccl::allreduce_attr>();
  ccl::allgather_attr allgather_ = ccl::create_operation_attr<ccl::allgather_attr>();
  ccl::broadcast_attr broadcast_ = ccl::create_operation_attr<ccl::broadcast_attr>();
  ccl::alltoall_attr alltoall_ = ccl::create_operation_attr<ccl::alltoall_attr>();
  ccl::reduce_scatter_attr reducescatter_ = ccl::create_operation_attr<ccl::reduce_scatter_attr>();
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto options = bench::parse(argc, argv);
  const auto rendezvous = bench::rendezvous_from_environment();
  bench::pin(rendezvous.rank, rendezvous.size);
  ccl::init();
  bench::OneCcl oneccl(rendezvous);
  return bench::measure(oneccl, options);
}
