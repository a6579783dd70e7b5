/* Every function of the C interface, called from C99. The first argument names the case; the exit
 * code is 0 when all it expects holds on this rank. */
#include <horovod/horovod.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 8

#define EXPECT(holds)                                                                             \
  do {                                                                                            \
    if (!(holds)) {                                                                               \
      fprintf(stderr, "line %d: %s does not hold; \"%s\"\n", __LINE__, #holds, hvd_last_error()); \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

static int32_t start(void) {
  hvd_world world;
  EXPECT(hvd_init() == HVD_OK);
  EXPECT(hvd_init() == HVD_OK); /* does nothing */
  EXPECT(hvd_get_world(&world) == HVD_OK);
  EXPECT(world.size <= MAX_RANKS && world.rank >= 0 && world.rank < world.size);
  EXPECT(world.local_size == world.size && world.local_rank == world.rank);
  EXPECT(world.cross_size == 1 && world.cross_rank == 0 && world.homogeneous);
  EXPECT(world.generation == 1 && hvd_is_initialized());
  EXPECT(!hvd_uses_mpi()); /* nobody has asked for it */
  return world.rank;
}

static int32_t size_of_job(void) {
  hvd_world world;
  EXPECT(hvd_get_world(&world) == HVD_OK);
  return world.size;
}

/* In host memory. */
static hvd_tensor tensor_of(void* data, const int64_t* shape, int32_t dimensions, hvd_dtype dtype) {
  hvd_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.shape = shape;
  tensor.dimensions = dimensions;
  tensor.dtype = dtype;
  return tensor;
}

static hvd_request request_of(hvd_operation_kind kind, const char* name, const hvd_tensor* inputs,
                              void* const* outputs) {
  hvd_request request;
  memset(&request, 0, sizeof request);
  request.operation.kind = kind;
  request.name = name;
  request.count = inputs == NULL ? 0 : 1;
  request.inputs = inputs;
  request.outputs = outputs;
  request.operation.op = HVD_SUM;
  request.operation.prescale = request.operation.postscale = 1.0;
  return request;
}

/* Submits and waits; the handle is for the result, and to be freed. */
static hvd_handle done(const hvd_request* request) {
  hvd_handle handle = 0;
  EXPECT(hvd_submit(request, &handle) == HVD_OK);
  while (!hvd_poll_for(handle, 1000)) {
  }
  EXPECT(hvd_poll(handle));
  EXPECT(hvd_wait(handle) == HVD_OK);
  EXPECT(hvd_wait_on_stream(handle, NULL) == HVD_OK); /* nothing to do for host memory */
  return handle;
}

static void end_together(void) {
  const hvd_request barrier = request_of(HVD_BARRIER, "end", NULL, NULL);
  hvd_free(done(&barrier));
  EXPECT(hvd_shutdown_at_exit() == HVD_OK);
  EXPECT(!hvd_is_initialized());
}

static void before_init(void) {
  hvd_world world;
  hvd_handle handle;
  const hvd_request barrier = request_of(HVD_BARRIER, "too early", NULL, NULL);
  EXPECT(!hvd_is_initialized());
  EXPECT(strlen(hvd_version()) > 0);
  EXPECT(hvd_knobs()[0] == '[' && strstr(hvd_knobs(), "HOROVOD_FUSION_THRESHOLD") != NULL);
  EXPECT(strcmp(hvd_dtype_name(HVD_BFLOAT16), "bfloat16") == 0 && hvd_dtype_bytes(HVD_INT64) == 8);
  EXPECT(hvd_dtype_name(99) == NULL && hvd_dtype_bytes(-1) == 0);
  EXPECT(strcmp(hvd_last_error(), "") == 0);
  EXPECT(hvd_get_world(&world) == HVD_NOT_INITIALIZED && strstr(hvd_last_error(), "init"));
  EXPECT(hvd_submit(&barrier, &handle) == HVD_NOT_INITIALIZED);
  EXPECT(hvd_poll(12345) && hvd_poll_for(12345, 1000));
  EXPECT(hvd_wait(12345) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_wait_on_stream(12345, NULL) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_check_running() == HVD_NOT_INITIALIZED);
  hvd_free(12345);
  hvd_free_memory(NULL);
  EXPECT(hvd_shutdown() == HVD_OK);
  EXPECT(hvd_shutdown_at_exit() == HVD_OK);
}

static void outside_of_elastic_jobs(void) {
  bool yes = false;
  int64_t generation = 0;
  const char* variables = NULL;
  hvd_elastic_update update;
  EXPECT(!hvd_is_elastic());
  EXPECT(hvd_await_place(0.0, &yes) == HVD_OK && yes);
  EXPECT(hvd_ask_for_place() == HVD_INVALID_ARGUMENT && strstr(hvd_last_error(), "--min-np"));
  EXPECT(hvd_get_place(&generation, &variables) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_pending_update(&update, &yes) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_leave_job() == HVD_INVALID_ARGUMENT);
}

static void count_release(void* owner) { ++*(int*)owner; }

static void allreduce(void) {
  const int32_t rank = start(), size = size_of_job();
  float in[6], out[6];
  int64_t shape[2] = {2, 3};
  int released = 0;
  hvd_tensor tensor = tensor_of(in, shape, 2, HVD_FLOAT32);
  void* outputs[1] = {out};
  hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor, outputs);
  request.release = count_release;
  request.owner = &released;
  request.operation.postscale = 0.5;
  for (int i = 0; i < 6; ++i) in[i] = (float)(rank + i);
  tensor.device = (hvd_device){HVD_ROCM, 2};
  hvd_handle handle = 0;
  EXPECT(hvd_submit(&request, &handle) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(hvd_last_error(), "device 2 of ROCm"));
  tensor.device = (hvd_device){HVD_HOST, 0};
  const hvd_dtype half = HVD_FLOAT16;
  request.sent_as = &half;
  EXPECT(hvd_submit(&request, &handle) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(hvd_last_error(), "float32 tensors in device memory"));
  request.sent_as = NULL;
  hvd_free(done(&request));
  for (int i = 0; i < 6; ++i) EXPECT(out[i] == 0.5f * (float)(size * i + size * (size - 1) / 2));
  end_together();
  EXPECT(released == 1);
}

static void allgather(void) {
  const int32_t rank = start(), size = size_of_job();
  int32_t in[2 * MAX_RANKS];
  int64_t shape[2] = {rank + 1, 2};
  hvd_tensor tensor = tensor_of(in, shape, 2, HVD_INT32), output;
  const hvd_request request = request_of(HVD_ALLGATHER, "rows", &tensor, NULL);
  for (int i = 0; i < 2 * (rank + 1); ++i) in[i] = rank;
  const hvd_handle handle = done(&request);
  EXPECT(hvd_take_output(handle, 1, &output) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_take_output(handle, 0, &output) == HVD_OK);
  EXPECT(output.device.type == HVD_HOST && output.stream == NULL);
  EXPECT(output.dimensions == 2 && output.shape[1] == 2 && output.dtype == HVD_INT32);
  EXPECT(output.shape[0] == size * (size + 1) / 2);
  const int32_t* row = output.data;
  for (int from = 0; from < size; ++from)
    for (int i = 0; i <= from; ++i, row += 2) EXPECT(row[0] == from && row[1] == from);
  hvd_free(handle);
  hvd_free_memory(output.data); /* ours, whatever becomes of the handle */
  end_together();
}

/* How an operation ended, as its callback was told; the barrier behind it says that it was. */
static struct {
  int times;
  hvd_status status;
  int32_t first;
} told;

static void note(void* owner, const hvd_ending* ending) {
  EXPECT(owner == &told);
  ++told.times;
  told.status = ending->status;
  EXPECT((ending->text[0] == '\0') == (ending->status == HVD_OK));
  if (ending->output_count == 1) {
    told.first = *(const int32_t*)ending->outputs[0].data;
    hvd_free_memory(ending->outputs[0].data);
  }
}

static void note_queued(void* owner, const hvd_ending* ending) {
  (void)owner, (void)ending;
  EXPECT(0); /* only for device memory */
}

static void callbacks(void) {
  int32_t rank = start(), size = size_of_job(), in = rank + 7;
  int64_t one = 1, other = rank + 1;
  hvd_tensor tensor = tensor_of(&in, &one, 1, HVD_INT32);
  hvd_request request = request_of(HVD_ALLGATHER, "told", &tensor, NULL);
  hvd_handle handle = 0;
  EXPECT(hvd_submit(&request, NULL) == HVD_INVALID_ARGUMENT); /* nobody would know */
  request.ended = note;
  request.queued = note_queued;
  request.owner = &told;
  EXPECT(hvd_submit(&request, &handle) == HVD_OK);
  EXPECT(hvd_wait(handle) == HVD_OK); /* with a handle too, the callback comes first */
  EXPECT(told.times == 1 && told.status == HVD_OK && told.first == 7);
  hvd_free(handle);
  EXPECT(hvd_submit(&request, NULL) == HVD_OK); /* without one, nobody has to wait */
  request = request_of(HVD_BARRIER, "behind", NULL, NULL);
  hvd_free(done(&request));
  if (size > 1) {
    void* outputs[1] = {&in};
    int32_t few[MAX_RANKS + 1] = {0};
    tensor = tensor_of(few, &other, 1, HVD_INT32);
    outputs[0] = few;
    request = request_of(HVD_ALLREDUCE, "differs", &tensor, outputs);
    request.ended = note;
    request.owner = &told;
    EXPECT(hvd_submit(&request, &handle) == HVD_OK);
    EXPECT(hvd_wait(handle) == HVD_MISMATCH);
    EXPECT(told.times == 3 && told.status == HVD_MISMATCH);
    hvd_free(handle);
  }
  end_together();
}

static void broadcast(void) {
  const int32_t rank = start(), size = size_of_job();
  double value = rank;
  int64_t shape = 1;
  hvd_tensor tensor = tensor_of(&value, &shape, 0, HVD_FLOAT64);
  void* outputs[1] = {&value};
  hvd_request request = request_of(HVD_BROADCAST, "from the last", &tensor, outputs);
  request.operation.root = size - 1;
  hvd_free(done(&request));
  EXPECT(value == size - 1);
  end_together();
}

/* Rank r sends r + to elements to rank `to`. */
static void alltoall(void) {
  const int32_t rank = start(), size = size_of_job();
  int64_t in[2 * MAX_RANKS * MAX_RANKS], shape = 0;
  int32_t splits[MAX_RANKS];
  for (int to = 0; to < size; ++to) {
    splits[to] = rank + to;
    for (int i = 0; i < splits[to]; ++i) in[shape++] = 10 * rank + to;
  }
  hvd_tensor tensor = tensor_of(in, &shape, 1, HVD_INT64), output, received;
  hvd_request request = request_of(HVD_ALLTOALL, "deal", &tensor, NULL);
  request.splits = splits;
  request.split_count = size;
  const hvd_handle handle = done(&request);
  EXPECT(hvd_take_output(handle, 0, &output) == HVD_OK);
  EXPECT(hvd_take_output(handle, 1, &received) == HVD_OK);
  EXPECT(received.dtype == HVD_INT32 && received.dimensions == 1 && received.shape[0] == size);
  const int64_t* element = output.data;
  for (int from = 0; from < size; ++from) {
    EXPECT(((const int32_t*)received.data)[from] == from + rank);
    for (int i = 0; i < from + rank; ++i) EXPECT(*element++ == 10 * from + rank);
  }
  EXPECT(element - (const int64_t*)output.data == output.shape[0]);
  hvd_free_memory(output.data);
  hvd_free_memory(received.data);
  hvd_free(handle);
  end_together();
}

/* One row more than twice as many as ranks, so that rank 0 has one more. */
static void reducescatter(void) {
  const int32_t rank = start(), size = size_of_job();
  float in[2 * MAX_RANKS + 1], out[4] = {0};
  int64_t shape = 2 * size + 1;
  for (int i = 0; i < shape; ++i) in[i] = (float)i;
  hvd_tensor tensor = tensor_of(in, &shape, 1, HVD_FLOAT32);
  void* outputs[1] = {out};
  hvd_request request = request_of(HVD_REDUCESCATTER, "part", &tensor, outputs);
  request.operation.op = HVD_AVERAGE;
  hvd_free(done(&request));
  const bool longer = size > 1 ? rank == 0 : true;
  const int rows = longer ? 3 : 2, first = rank == 0 ? 0 : 2 * rank + 1;
  for (int i = 0; i < rows; ++i) EXPECT(out[i] == (float)(first + i));
  end_together();
}

static void join(void) {
  start();
  int32_t last = -1;
  const hvd_request request = request_of(HVD_JOIN, "join", NULL, NULL);
  const hvd_handle handle = done(&request);
  EXPECT(hvd_get_last_joined(handle, &last) == HVD_OK);
  EXPECT(last >= 0 && last < size_of_job());
  hvd_free(handle);
  end_together();
}

/* They are received in the order in which they are sent. */
static void two_of_one_name(int32_t rank) {
  int32_t data[2] = {rank == 0 ? 6 : 0, rank == 0 ? 7 : 0};
  const int64_t one = 1;
  hvd_handle handles[2];
  for (int i = 0; i < 2; ++i) {
    const hvd_tensor tensor = tensor_of(&data[i], &one, 1, HVD_INT32);
    void* outputs[1] = {&data[i]};
    hvd_request request = request_of(HVD_MESSAGE, "again", &tensor, outputs);
    request.operation.receiver = 1;
    EXPECT(hvd_submit(&request, &handles[i]) == HVD_OK);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT(hvd_wait(handles[i]) == HVD_OK);
    hvd_free(handles[i]);
  }
  EXPECT(data[0] == 6 && data[1] == 7);
}

/* Rank 0 sends to each other rank. */
static void message(void) {
  const int32_t rank = start(), size = size_of_job();
  int32_t data = rank == 0 ? 5 : -1;
  const int64_t one = 1;
  const hvd_tensor tensor = tensor_of(&data, &one, 1, HVD_INT32);
  void* outputs[1] = {&data};
  for (int to = 1; to < size; ++to) {
    hvd_request request = request_of(HVD_MESSAGE, "five", &tensor, rank == 0 ? NULL : outputs);
    request.operation.receiver = to;
    if (rank == 0 || rank == to) hvd_free(done(&request));
  }
  EXPECT(data == 5);
  if (size > 1 && rank < 2) two_of_one_name(rank);
  hvd_request request = request_of(HVD_MESSAGE, "to itself", &tensor, outputs);
  request.operation.root = request.operation.receiver = rank;
  hvd_handle handle = 0;
  EXPECT(hvd_submit(&request, &handle) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(hvd_last_error(), "cannot send to itself") != NULL);
  end_together();
}

static void expires(void) {
  const int32_t rank = start(), size = size_of_job();
  hvd_request request = request_of(HVD_BARRIER, "late", NULL, NULL);
  request.timeout_seconds = rank == 0 ? 0.05 : 0;
  if (size == 1) {
    hvd_free(done(&request));
    end_together();
    return;
  }
  hvd_handle handle = 0;
  if (rank + 1 < size) {
    EXPECT(hvd_submit(&request, &handle) == HVD_OK);
    EXPECT(hvd_wait(handle) == HVD_SHUT_DOWN);
    hvd_free(handle);
  } else {
    while (hvd_check_running() == HVD_OK) continue;
    EXPECT(hvd_check_running() == HVD_SHUT_DOWN);
  }
  char missing[64];
  snprintf(missing, sizeof missing, "not by rank %d", (int)size - 1);
  EXPECT(strstr(hvd_last_error(), "late has waited for 0.05 s, its timeout") != NULL);
  EXPECT(strstr(hvd_last_error(), missing) != NULL);
  EXPECT(hvd_shutdown() == HVD_OK);
}

static void mismatch(void) {
  const int32_t rank = start(), size = size_of_job();
  float data[2 * MAX_RANKS] = {0};
  int64_t shape = 1 + rank;
  hvd_tensor tensor = tensor_of(data, &shape, 1, HVD_FLOAT32);
  void* outputs[1] = {data};
  const hvd_request request = request_of(HVD_ALLREDUCE, "differs", &tensor, outputs);
  hvd_handle handle;
  EXPECT(hvd_submit(&request, &handle) == HVD_OK);
  EXPECT(hvd_wait(handle) == (size > 1 ? HVD_MISMATCH : HVD_OK));
  EXPECT(size == 1 || strstr(hvd_last_error(), "differs") != NULL);
  hvd_free(handle);
  end_together(); /* the job goes on */
}

static void several_at_once(void) {
  enum { count = 3 };
  const int32_t size = (start(), size_of_job());
  int32_t data[count] = {1, 2, 3};
  const int64_t one = 1;
  const char* names[count] = {"several.0", "several.1", "several.2"};
  hvd_tensor tensors[count];
  void* outputs[count];
  hvd_request requests[count];
  hvd_handle handles[count];
  for (int i = 0; i < count; ++i) {
    tensors[i] = tensor_of(&data[i], &one, 1, HVD_INT32);
    outputs[i] = &data[i];
    requests[i] = request_of(HVD_ALLREDUCE, names[i], &tensors[i], &outputs[i]);
  }
  EXPECT(hvd_submit_all(requests, count, handles) == HVD_OK);
  EXPECT(hvd_finish_all(handles, count) == HVD_OK);
  for (int i = 0; i < count; ++i) EXPECT(data[i] == (i + 1) * size);
  EXPECT(hvd_wait(handles[0]) == HVD_INVALID_ARGUMENT); /* it is freed */
  requests[2].name = "";                                /* one is wrong: none is queued */
  EXPECT(hvd_submit_all(requests, count, handles) == HVD_INVALID_ARGUMENT);
  requests[2].name = names[1]; /* twice: none is queued */
  EXPECT(hvd_submit_all(requests, count, handles) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(hvd_last_error(), names[1]) != NULL);
  EXPECT(data[0] == size);
  EXPECT(hvd_submit_all(requests, 0, handles) == HVD_OK);
  EXPECT(hvd_submit_all(requests, -1, handles) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_finish_all(handles, -1) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_finish_all(handles, 0) == HVD_OK);
  EXPECT(hvd_finish_all_on_stream(handles, -1, NULL) == HVD_INVALID_ARGUMENT);
  requests[2].name = names[2];
  EXPECT(hvd_submit_all(requests, count, handles) == HVD_OK);
  EXPECT(hvd_finish_all_on_stream(handles, count, NULL) == HVD_OK);
  EXPECT(hvd_check_running() == HVD_OK);
  end_together();
}

static void process_sets(void) {
  const int32_t zero = 0;
  const hvd_rank_list only_zero = {&zero, 1};
  hvd_init_options options;
  memset(&options, 0, sizeof options);
  options.dynamic_process_sets = true;
  EXPECT(hvd_init_with(&options) == HVD_OK);
  hvd_world world;
  EXPECT(hvd_get_world(&world) == HVD_OK);
  int32_t id = -1, size = -1, rank = -1, ranks[MAX_RANKS];
  if (world.size > 1) {
    EXPECT(hvd_add_process_set(only_zero, &id) == HVD_OK && id == 1);
    EXPECT(hvd_get_process_set(id, &size, &rank) == HVD_OK);
    EXPECT(size == 1 && rank == (world.rank == 0 ? 0 : -1));
    EXPECT(hvd_get_process_set_ranks(id, ranks, size) == HVD_OK && ranks[0] == 0);
    EXPECT(hvd_add_process_set(only_zero, &id) == HVD_INVALID_ARGUMENT);
    EXPECT(hvd_remove_process_set(1) == HVD_OK);
  }
  EXPECT(hvd_get_process_set(1, &size, &rank) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_get_process_set(0, &size, &rank) == HVD_OK);
  EXPECT(size == world.size && rank == world.rank);
  EXPECT(hvd_get_process_set_ranks(0, ranks, size - 1) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_get_process_set_ranks(0, ranks, size) == HVD_OK && ranks[size - 1] == size - 1);
  end_together();
}

/* Needs no job. */
static void sealed_messages(void) {
  const uint8_t key[HVD_KEY_BYTES] = {1, 2, 3};
  const char message[] = "a message";
  char sealed[sizeof message + HVD_SEAL_BYTES], opened[sizeof message];
  EXPECT(hvd_seal(key, 5, message, sizeof message, sealed) == HVD_OK);
  EXPECT(memcmp(sealed, message, sizeof message) != 0);
  EXPECT(hvd_unseal(key, 5, sealed, sizeof message, opened) == HVD_OK);
  EXPECT(memcmp(opened, message, sizeof message) == 0);
  EXPECT(hvd_unseal(key, 6, sealed, sizeof message, opened) == HVD_INVALID_ARGUMENT);
}

/* All ranks derive the same key: the sum of each byte is `size` times the byte. */
static void derived_keys(void) {
  uint8_t key[HVD_KEY_BYTES], other[HVD_KEY_BYTES];
  EXPECT(hvd_derive_key("a purpose", key) == HVD_NOT_INITIALIZED);
  start();
  const int32_t size = size_of_job();
  EXPECT(hvd_derive_key("a purpose", key) == HVD_OK);
  EXPECT(hvd_derive_key("a purpose", other) == HVD_OK);
  EXPECT(memcmp(key, other, HVD_KEY_BYTES) == 0);
  EXPECT(hvd_derive_key("another one", other) == HVD_OK);
  EXPECT(memcmp(key, other, HVD_KEY_BYTES) != 0);
  int32_t in[HVD_KEY_BYTES], out[HVD_KEY_BYTES];
  int64_t shape = HVD_KEY_BYTES;
  hvd_tensor tensor = tensor_of(in, &shape, 1, HVD_INT32);
  void* outputs[1] = {out};
  const hvd_request request = request_of(HVD_ALLREDUCE, "keys", &tensor, outputs);
  for (int i = 0; i < HVD_KEY_BYTES; ++i) in[i] = key[i];
  hvd_free(done(&request));
  for (int i = 0; i < HVD_KEY_BYTES; ++i) EXPECT(out[i] == size * key[i]);
  end_together();
}

/* Rank 0 is a job of its own, all others are another one. */
static void part_of_the_ranks(void) {
  const int32_t rank = atoi(getenv("HOROVOD_RANK")), size = atoi(getenv("HOROVOD_SIZE"));
  int32_t members[MAX_RANKS];
  const int32_t first = rank == 0 ? 0 : 1, count = rank == 0 ? 1 : size - 1;
  for (int32_t i = 0; i < count; ++i) members[i] = first + i;
  hvd_job job;
  memset(&job, 0, sizeof job);
  job.members = (hvd_rank_list){members, count};
  EXPECT(hvd_init_job(NULL, &job) == HVD_OK);
  hvd_world world;
  EXPECT(hvd_get_world(&world) == HVD_OK);
  EXPECT(world.rank == rank - first && world.size == count);
  end_together();
}

static void timeline(void) {
  start();
  const char* path = getenv("HOROVOD_TIMELINE");
  if (path == NULL) {
    EXPECT(hvd_start_timeline("trace.json", false) == HVD_INVALID_ARGUMENT);
  } else {
    EXPECT(hvd_start_timeline(path, true) == HVD_OK);
  }
  EXPECT(hvd_stop_timeline() == HVD_OK);
  end_together();
}

static uint64_t counted(const char* name) {
  hvd_counter counters[64];
  int32_t count = 64;
  EXPECT(hvd_counters(counters, &count) == HVD_OK);
  EXPECT(count > 0 && count <= 64);
  for (int32_t i = 0; i < count; ++i)
    if (strcmp(counters[i].name, name) == 0) return counters[i].value;
  fprintf(stderr, "there is no counter %s\n", name);
  exit(1);
}

static void count_operations(void) {
  int32_t number = -1, all;
  EXPECT(hvd_counters(NULL, &number) == HVD_NOT_INITIALIZED);
  const int32_t rank = start();
  EXPECT(hvd_counters(NULL, &all) == HVD_OK);
  EXPECT(counted("operations.allreduce") == 0 && counted("bytes.allreduce") == 0);
  for (int i = 0; i < 3; ++i) {
    float values[2] = {(float)rank, 1.0f};
    const int64_t two = 2;
    const hvd_tensor tensor = tensor_of(values, &two, 1, HVD_FLOAT32);
    void* outputs[1] = {values};
    const hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor, outputs);
    hvd_free(done(&request));
  }
  EXPECT(counted("operations.allreduce") == 3 && counted("bytes.allreduce") == 24);
  EXPECT(counted("cache_misses") == 2 && counted("cache_hits") == 1); /* cached in the second */
  EXPECT(counted("batched_tensors") == 3);
  hvd_counter first[2] = {{NULL, 0}, {NULL, 0}};
  number = 1;
  EXPECT(hvd_counters(first, &number) == HVD_OK);
  EXPECT(number == all && first[0].name != NULL && first[1].name == NULL);
  end_together();
}

static void group_calls(hvd_group* group) {
  const int32_t rank = hvd_group_rank(group), size = hvd_group_size(group);
  int32_t in[MAX_RANKS], out[MAX_RANKS];
  int64_t one = 1, all = size;
  hvd_tensor single = tensor_of(in, &one, 1, HVD_INT32), full = tensor_of(in, &all, 1, HVD_INT32);
  void* outputs[1] = {out};
  hvd_request request = request_of(HVD_ALLREDUCE, NULL, &full, outputs);
  for (int i = 0; i < size; ++i) in[i] = rank + i;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  for (int i = 0; i < size; ++i) EXPECT(out[i] == size * i + size * (size - 1) / 2);
  request.operation.kind = HVD_REDUCESCATTER;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  EXPECT(out[0] == size * rank + size * (size - 1) / 2);
  request.operation.kind = HVD_ALLTOALL;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  for (int i = 0; i < size; ++i) EXPECT(out[i] == i + rank);
  for (int i = 0; i < size; ++i) in[i] = 10 * rank + i;
  outputs[0] = in;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  for (int i = 0; i < size; ++i) EXPECT(in[i] == 10 * i + rank);
  outputs[0] = out;
  request.inputs = &single;
  in[0] = rank;
  request.operation.kind = HVD_ALLGATHER;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  for (int i = 0; i < size; ++i) EXPECT(out[i] == i);
  request.operation.kind = HVD_BROADCAST;
  request.operation.root = size - 1;
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  EXPECT(out[0] == size - 1);
  request.operation.root = size;
  EXPECT(hvd_group_run(group, &request) == HVD_INVALID_ARGUMENT);
  request.operation.root = size - 1;
  single.device = (hvd_device){HVD_CUDA, 1};
  EXPECT(hvd_group_run(group, &request) == HVD_INVALID_ARGUMENT);
  EXPECT(strstr(hvd_last_error(), "device 1 of CUDA"));
  request = request_of(HVD_BARRIER, NULL, NULL, NULL);
  EXPECT(hvd_group_run(group, &request) == HVD_OK);
  request = request_of(HVD_JOIN, NULL, NULL, NULL);
  EXPECT(hvd_group_run(group, &request) == HVD_INVALID_ARGUMENT);
}

static void write_stack(int number) {
  (void)number; /* a language with a stack of its own writes it */
}

static void dumps(void) {
  int32_t number = -1, descriptor = -1;
  EXPECT(hvd_prepare_dump(&number, &descriptor) == HVD_OK);
  EXPECT(number > 0 && descriptor >= 0);
  signal(number, write_stack);
  hvd_answer_dumps();
  raise(number);
  hvd_meet_before_init(true);
  start();
  hvd_meet_before_init(false);
  hvd_count_step();
  raise(number);
  end_together();
  EXPECT(hvd_prepare_dump(&number, &descriptor) == HVD_OK && number > 0);
}

static void groups(void) {
  const int32_t rank = start(), size = size_of_job();
  const hvd_rank_list everybody = {NULL, 0};
  const int32_t twice[2] = {rank, rank}, outside = size, own = rank;
  hvd_group *all = NULL, *alone = NULL, *named = NULL, *none = NULL;
  EXPECT(hvd_group_create((hvd_rank_list){twice, 2}, &none) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_group_create((hvd_rank_list){&outside, 1}, &none) == HVD_INVALID_ARGUMENT);
  EXPECT(hvd_group_create(everybody, &all) == HVD_OK);
  EXPECT(hvd_group_create((hvd_rank_list){&own, 1}, &alone) == HVD_OK);
  EXPECT(hvd_group_create_named(everybody, "again", &named) == HVD_OK);
  hvd_group_free(named);
  EXPECT(hvd_group_rank(all) == rank && hvd_group_size(all) == size);
  EXPECT(hvd_group_rank(alone) == 0 && hvd_group_size(alone) == 1);
  group_calls(all);
  group_calls(alone);
  end_together();
  group_calls(all); /* a group outlives the job that it was made in */
  hvd_group_free(all);
  hvd_group_free(alone);
  hvd_group_free(NULL);
  EXPECT(hvd_group_create(everybody, &none) == HVD_NOT_INITIALIZED);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {
      {"before_init", before_init},
      {"outside_of_elastic_jobs", outside_of_elastic_jobs},
      {"allreduce", allreduce},
      {"allgather", allgather},
      {"callbacks", callbacks},
      {"broadcast", broadcast},
      {"alltoall", alltoall},
      {"reducescatter", reducescatter},
      {"join", join},
      {"message", message},
      {"expires", expires},
      {"mismatch", mismatch},
      {"derived_keys", derived_keys},
      {"sealed_messages", sealed_messages},
      {"process_sets", process_sets},
      {"part_of_the_ranks", part_of_the_ranks},
      {"several_at_once", several_at_once},
      {"timeline", timeline},
      {"count_operations", count_operations},
      {"dumps", dumps},
      {"groups", groups},
  };
  for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  }
  fprintf(stderr, "no such case\n");
  return 2;
}
