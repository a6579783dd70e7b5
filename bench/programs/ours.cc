// Blocking calls of this project: hvd_group_run on a group of all ranks.
#include <horovod/horovod.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "measure.h"

namespace bench {
namespace {

void check(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", hvd_last_error());
  std::exit(1);
}

hvd_operation_kind kind_of(Kind kind) {
  constexpr std::array kinds{HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL,
                             HVD_REDUCESCATTER};
  return kinds[static_cast<size_t>(kind)];
}

hvd_dtype dtype_of(Type type) {
  constexpr std::array dtypes{HVD_FLOAT32, HVD_FLOAT16, HVD_BFLOAT16};
  return dtypes[static_cast<size_t>(type)];
}

/// Returns a tensor with one dimension.
hvd_tensor on_host(void* data, const int64_t* shape, hvd_dtype dtype) {
  return {data, shape, 1, dtype, {HVD_HOST, 0}, nullptr};
}

class Ours : public Peer {
 public:
  Ours() {
    check(hvd_init());
    check(hvd_group_create({nullptr, 0}, &group_));
  }
  ~Ours() override {
    hvd_group_free(group_);
    hvd_shutdown();
  }
  int rank() const override { return hvd_group_rank(group_); }
  int size() const override { return hvd_group_size(group_); }

  void run(const Call& call) override {
    const auto shape = static_cast<int64_t>(call.kind == Kind::allgather ? call.part : call.count);
    submit(kind_of(call.kind), on_host(call.in, &shape, dtype_of(call.type)), call.out, HVD_SUM,
           call.root);
  }
  void greatest(std::span<double> values) override {
    const auto shape = static_cast<int64_t>(values.size());
    submit(HVD_ALLREDUCE, on_host(values.data(), &shape, HVD_FLOAT64), values.data(), HVD_MAX, 0);
  }

 private:
  void submit(hvd_operation_kind kind, const hvd_tensor& input, void* output, hvd_reduce_op op,
              int root) {
    hvd_request request{};
    request.operation.kind = kind;
    request.count = 1;
    request.inputs = &input;
    request.outputs = &output;
    request.operation.op = op;
    request.operation.prescale = request.operation.postscale = 1;
    request.operation.root = root;
    check(hvd_group_run(group_, &request));
  }

  hvd_group* group_ = nullptr;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto options = bench::parse(argc, argv);
  const char* rank = std::getenv("HOROVOD_RANK");  // hosts may be namespaces of one machine
  const char* size = std::getenv("HOROVOD_SIZE");
  if (rank != nullptr && size != nullptr) bench::pin(std::atoi(rank), std::atoi(size));
  bench::Ours ours;
  return bench::measure(ours, options);
}
