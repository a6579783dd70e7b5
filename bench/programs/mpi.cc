// Blocking calls of MPI. Compiled once per MPI implementation.
#include <mpi.h>

#include <string>

#include "measure.h"
#include "rendezvous.h"

namespace bench {
namespace {

MPI_Datatype datatype_of(Type type) {
  if (type == Type::float32) return MPI_FLOAT;
#ifdef MPIX_C_FLOAT16
  if (type == Type::float16) return MPIX_C_FLOAT16;
#endif
#ifdef MPIX_BFLOAT16
  if (type == Type::bfloat16) return MPIX_BFLOAT16;
#endif
  give_up("this MPI has no such type");
}

class Mpi : public Peer {
 public:
  Mpi(int argc, char** argv, Type type) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    type_ = datatype_of(type);
    int bytes = 0;
    MPI_Type_size(type_, &bytes);
    if (bytes != static_cast<int>(size_of(type))) give_up("this MPI has no such type");
  }
  ~Mpi() override { MPI_Finalize(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void run(const Call& call) override {
    const int count = static_cast<int>(call.count), part = static_cast<int>(call.part);
    switch (call.kind) {
      case Kind::allreduce:
        MPI_Allreduce(MPI_IN_PLACE, call.out, count, type_, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Kind::allgather:
        MPI_Allgather(call.in, part, type_, call.out, part, type_, MPI_COMM_WORLD);
        break;
      case Kind::broadcast:
        MPI_Bcast(call.out, count, type_, call.root, MPI_COMM_WORLD);
        break;
      case Kind::alltoall:
        MPI_Alltoall(call.in, part, type_, call.out, part, type_, MPI_COMM_WORLD);
        break;
      case Kind::reducescatter:
        MPI_Reduce_scatter_block(call.in, call.out, part, type_, MPI_SUM, MPI_COMM_WORLD);
        break;
    }
  }
  void greatest(std::span<double> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0, size_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Binds this process to a core if BENCH_PIN is set. Launchers cannot do it on oversubscribed
/// cores, and if hosts are namespaces of one machine, they would use the same core for each host.
/// Called before MPI_Init, so that threads of the library are bound too; so it reads the variables
/// of the launcher.
void pin_if_asked() {
  if (variable("BENCH_PIN", "") != "1") return;
  const std::string rank = variable("OMPI_COMM_WORLD_RANK", variable("PMI_RANK", "").c_str());
  const std::string size = variable("OMPI_COMM_WORLD_SIZE", variable("PMI_SIZE", "").c_str());
  if (rank.empty() || size.empty()) give_up("the launcher sets no variables with rank and size");
  pin(std::stoi(rank), std::stoi(size));
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const auto options = bench::parse(argc, argv);
  bench::pin_if_asked();
  bench::Mpi mpi(argc, argv, options.type);
  return bench::measure(mpi, options);
}
