// Blocking calls with Gloo of Debian. The variable BENCH_ALGORITHM is ring or bcube.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <memory>
#include <string>

#include "measure.h"
#include "rendezvous.h"

namespace bench {
namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Sum = void (*)(void*, const void*, const void*, size_t);

class Gloo : public Peer {
 public:
  Gloo(const Rendezvous& rendezvous, const std::string& interface, Algorithm algorithm)
      : rendezvous_(rendezvous), algorithm_(algorithm) {
    gloo::transport::tcp::attr where;
    where.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(rendezvous.store);
    const auto context =
        std::make_shared<gloo::rendezvous::Context>(rendezvous.rank, rendezvous.size);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  int rank() const override { return rendezvous_.rank; }
  int size() const override { return rendezvous_.size; }

  void run(const Call& call) override {
    if (call.type == Type::float32) return run_as<float>(call);
    if (call.type == Type::float16) return run_as<gloo::float16>(call);
    give_up("Gloo has no bfloat16");
  }
  void greatest(std::span<double> values) override {
    allreduce(values.data(), values.size(), static_cast<Sum>(&gloo::max<double>));
  }

 private:
  template <class T>
  void run_as(const Call& call) {
    T* const in = reinterpret_cast<T*>(call.in);
    T* const out = reinterpret_cast<T*>(call.out);
    if (call.kind == Kind::allreduce) {
      allreduce(out, call.count, static_cast<Sum>(&gloo::sum<T>));
    } else if (call.kind == Kind::broadcast) {
      gloo::BroadcastOptions options(context_);
      options.setOutput(out, call.count);
      options.setRoot(call.root);
      gloo::broadcast(options);
    } else if (call.kind == Kind::allgather) {
      gloo::AllgatherOptions options(context_);
      options.setInput(in, call.part);
      options.setOutput(out, call.count);
      gloo::allgather(options);
    } else if (call.kind == Kind::alltoall) {
      gloo::AlltoallOptions options(context_);
      options.setInput(in, call.count);
      options.setOutput(out, call.count);
      gloo::alltoall(options);
    } else {
      give_up("this Gloo has no function for reducescatter");
    }
  }

  template <class T>
  void allreduce(T* data, size_t count, Sum sum) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(sum);
    options.setAlgorithm(algorithm_);
    gloo::allreduce(options);
  }

  Rendezvous rendezvous_;
  Algorithm algorithm_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto options = bench::parse(argc, argv);
  const auto rendezvous = bench::rendezvous_from_environment();
  // Not bound to a core, since Gloo has a thread that receives, which would have to share the core.
  const bool bcube = bench::variable("BENCH_ALGORITHM", "ring") == "bcube";
  bench::Gloo gloo(rendezvous, bench::variable("BENCH_INTERFACE", "lo"),
                   bcube ? bench::Algorithm::BCUBE : bench::Algorithm::RING);
  return bench::measure(gloo, options);
}
