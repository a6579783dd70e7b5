// Implements the table of plugin.h for the MPI whose mpi.h it is compiled with. It is not linked to
// MPI: plugin_loader.h has loaded the library with global symbols. The state is per process, like
// MPI.
#include "core/backend/mpi/plugin.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/base/dtype.h"

namespace {

using hvd::DType;
using hvd::ReduceOp;
using hvd::mpi::Facts;
using hvd::mpi::Handle;

constexpr size_t kDTypes = static_cast<size_t>(hvd::kLastDType) + 1;
constexpr size_t kOps = static_cast<size_t>(hvd::kLastReduceOp) + 1;
constexpr int kCreationTag = 7;  // for MPI_Comm_create_group; not used by messages

struct State {
  bool prepared = false;
  bool abandoned = false;
  pid_t owner = 0;  ///< the process that began MPI; 0: the program did
  hvd::mpi::Reduce reduce = nullptr;
  std::array<MPI_Datatype, kDTypes> types{};
  std::array<std::array<MPI_Op, kOps>, kDTypes> ops{};  ///< [dtype][op]
};
State state;

static_assert(sizeof(MPI_Comm) <= sizeof(Handle) && sizeof(MPI_Request) <= sizeof(Handle));

template <class Native>
Handle handle_of(Native native) {
  Handle handle = 0;
  std::memcpy(&handle, &native, sizeof native);
  return handle;
}
template <class Native>
Native native_of(Handle handle) {
  Native native;
  std::memcpy(&native, &handle, sizeof native);
  return native;
}

/// Runs a sequence of calls up to the first error.
class Row {
 public:
  template <class Call>
  Row& then(Call call) {
    if (error_ == MPI_SUCCESS) error_ = call();
    return *this;
  }
  int error() const { return error_; }

 private:
  int error_ = MPI_SUCCESS;
};

// ---- types and operations
// --------------------------------------------------------------------------

template <DType dtype, ReduceOp op>
void reduce_by_kernel(void* other, void* target, int* count, MPI_Datatype*) {
  state.reduce(target, other, static_cast<size_t>(*count), static_cast<int>(dtype),
               static_cast<int>(op));
}

template <DType dtype, ReduceOp op>
int make_op() {
  constexpr int kCommutes = 1;
  return MPI_Op_create(reduce_by_kernel<dtype, op>, kCommutes,
                       &state.ops[static_cast<size_t>(dtype)][static_cast<size_t>(op)]);
}

/// Makes a type that MPI does not have or reduces by other rules.
template <DType dtype>
int make_type(int bytes) {
  MPI_Datatype& type = state.types[static_cast<size_t>(dtype)];
  return Row()
      .then([&] { return MPI_Type_contiguous(bytes, MPI_BYTE, &type); })
      .then([&] { return MPI_Type_commit(&type); })
      .then(make_op<dtype, ReduceOp::sum>)
      .then(make_op<dtype, ReduceOp::min>)
      .then(make_op<dtype, ReduceOp::max>)
      .then(make_op<dtype, ReduceOp::product>)
      .error();
}

/// MPICH warns about types that are not freed before MPI_Finalize.
void forget_type(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product})
    MPI_Op_free(&state.ops[index][static_cast<size_t>(op)]);
  MPI_Type_free(&state.types[index]);
}

void take_type(DType dtype, MPI_Datatype native) {
  const auto index = static_cast<size_t>(dtype);
  state.types[index] = native;
  state.ops[index][static_cast<size_t>(ReduceOp::sum)] = MPI_SUM;
  state.ops[index][static_cast<size_t>(ReduceOp::min)] = MPI_MIN;
  state.ops[index][static_cast<size_t>(ReduceOp::max)] = MPI_MAX;
  state.ops[index][static_cast<size_t>(ReduceOp::product)] = MPI_PROD;
}

int prepare() {
  take_type(DType::uint8, MPI_UINT8_T);
  take_type(DType::int8, MPI_INT8_T);
  take_type(DType::uint16, MPI_UINT16_T);
  take_type(DType::int16, MPI_INT16_T);
  take_type(DType::int32, MPI_INT32_T);
  take_type(DType::int64, MPI_INT64_T);
  take_type(DType::float32, MPI_FLOAT);
  take_type(DType::float64, MPI_DOUBLE);
  return Row()
      .then([] { return make_type<DType::float16>(2); })
      .then([] { return make_type<DType::bfloat16>(2); })
      .then([] { return make_type<DType::boolean>(1); })
      .error();
}

// ---- begin and end
// ---------------------------------------------------------------------------------

const char* library() {
  static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  text[std::strcspn(text.data(), ",\n")] = 0;  // keep name and version
  return text.data();
}

/// Finalizes MPI, except in a forked child and after abandon(), when it would wait forever.
void end_with_process() {
  int ended = 0;
  if (state.abandoned || state.owner != getpid()) return;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  if (state.prepared)
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::boolean}) forget_type(dtype);
  MPI_Finalize();
}

int begin() {
  int running = 0, level = 0;
  if (const int error = MPI_Initialized(&running); error != MPI_SUCCESS || running != 0)
    return error;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  if (error != MPI_SUCCESS) return error;
  state.owner = getpid();
  std::atexit(end_with_process);
  return MPI_SUCCESS;
}

int start(hvd::mpi::Reduce reduce, Facts* facts) {
  state.reduce = reduce;
  int level = 0;
  const int error = Row()
                        .then(begin)
                        .then([&] { return MPI_Query_thread(&level); })
                        .then([&] { return MPI_Comm_rank(MPI_COMM_WORLD, &facts->rank); })
                        .then([&] { return MPI_Comm_size(MPI_COMM_WORLD, &facts->size); })
                        .then([&] { return state.prepared ? MPI_SUCCESS : prepare(); })
                        .error();
  state.prepared |= error == MPI_SUCCESS;
  facts->any_thread = level == MPI_THREAD_MULTIPLE;
  facts->begun_here = state.owner != 0;
  return error;
}

void abandon() { state.abandoned = true; }
int is_abandoned() { return state.abandoned; }

void describe(int error, char* text, size_t capacity) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> whole{};
  int length = 0;
  if (MPI_Error_string(error, whole.data(), &length) != MPI_SUCCESS)
    std::strcpy(whole.data(), "unknown error");
  std::strncpy(text, whole.data(), capacity - 1);
  text[capacity - 1] = 0;
}

// ---- communicators
// ---------------------------------------------------------------------------------

int make_communicator(const int* ranks, int count, Handle* made) {
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  const int error =
      Row()
          .then([&] { return MPI_Comm_group(MPI_COMM_WORLD, &world); })
          .then([&] { return MPI_Group_incl(world, count, ranks, &members); })
          .then([&] {
            return MPI_Comm_create_group(MPI_COMM_WORLD, members, kCreationTag, &communicator);
          })
          .then([&] { return MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN); })
          .error();
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
  *made = handle_of(communicator);
  return error;
}

int free_communicator(Handle handle) {
  auto communicator = native_of<MPI_Comm>(handle);
  return MPI_Comm_free(&communicator);
}

// ---- operations
// ------------------------------------------------------------------------------------

MPI_Datatype type_of(int dtype) { return state.types[static_cast<size_t>(dtype)]; }
MPI_Op op_of(int dtype, int op) {
  return state.ops[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
}

/// Starts a request by `call`.
template <class Call>
int begin_request(Handle* request, Call call) {
  MPI_Request begun = MPI_REQUEST_NULL;
  const int error = call(&begun);
  *request = handle_of(begun);
  return error;
}

int allreduce(Handle communicator, const void* input, void* output, int count, int dtype, int op,
              Handle* request) {
  return begin_request(request, [&](MPI_Request* begun) {
    return MPI_Iallreduce(input, output, count, type_of(dtype), op_of(dtype, op),
                          native_of<MPI_Comm>(communicator), begun);
  });
}

int reduce_scatter(Handle communicator, const void* input, void* output, const int* counts,
                   int dtype, int op, Handle* request) {
  return begin_request(request, [&](MPI_Request* begun) {
    return MPI_Ireduce_scatter(input, output, counts, type_of(dtype), op_of(dtype, op),
                               native_of<MPI_Comm>(communicator), begun);
  });
}

int broadcast(Handle communicator, void* data, int bytes, int root, Handle* request) {
  return begin_request(request, [&](MPI_Request* begun) {
    return MPI_Ibcast(data, bytes, MPI_BYTE, root, native_of<MPI_Comm>(communicator), begun);
  });
}

int allgather(Handle communicator, const void* input, int bytes, void* output, const int* counts,
              const int* displacements, Handle* request) {
  return begin_request(request, [&](MPI_Request* begun) {
    return MPI_Iallgatherv(input, bytes, MPI_BYTE, output, counts, displacements, MPI_BYTE,
                           native_of<MPI_Comm>(communicator), begun);
  });
}

int alltoall(Handle communicator, const void* input, const int* send_counts,
             const int* send_displacements, void* output, const int* receive_counts,
             const int* receive_displacements, Handle* request) {
  return begin_request(request, [&](MPI_Request* begun) {
    return MPI_Ialltoallv(input, send_counts, send_displacements, MPI_BYTE, output, receive_counts,
                          receive_displacements, MPI_BYTE, native_of<MPI_Comm>(communicator),
                          begun);
  });
}

int test(Handle* request, int* done) {
  auto tested = native_of<MPI_Request>(*request);
  const int error = MPI_Test(&tested, done, MPI_STATUS_IGNORE);
  *request = handle_of(tested);
  return error;
}

constexpr hvd::mpi::Table kTable{
    .version = hvd::mpi::kTableVersion,
    .library = library,
    .start = start,
    .abandon = abandon,
    .is_abandoned = is_abandoned,
    .describe = describe,
    .make_communicator = make_communicator,
    .free_communicator = free_communicator,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .allgather = allgather,
    .alltoall = alltoall,
    .test = test,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const hvd::mpi::Table* hvd_mpi_table() {
  return &kTable;
}
