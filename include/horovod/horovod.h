/* The C interface of the runtime: what every binding and adapter is built on. C99.
 *
 * One process has at most one running job. All functions may be called from any thread. Those that
 * return hvd_status set the text of hvd_last_error() (thread-local) when it is not HVD_OK.
 */
#ifndef HOROVOD_HOROVOD_H_
#define HOROVOD_HOROVOD_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

typedef enum {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* misuse on this rank alone; nothing was sent */
  HVD_NOT_INITIALIZED = 2,
  HVD_MISMATCH = 3,  /* ranks disagree about one operation; the job goes on */
  HVD_SHUT_DOWN = 4, /* a rank asked for the end of the job */
  HVD_PEER_LOST = 5, /* a rank went away without a goodbye */
  HVD_TIMED_OUT = 6,
  HVD_UNAUTHORIZED = 7,
  HVD_INTERNAL = 8
} hvd_status;

typedef enum {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10
} hvd_dtype;

typedef enum {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

typedef enum {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4,
  HVD_BARRIER = 5,
  HVD_JOIN = 6
} hvd_kind;

/* Text of this thread's last error; "" when there was none. Valid until the next call on this
 * thread. */
HVD_API const char* hvd_last_error(void);
HVD_API const char* hvd_version(void);
/* The configuration table as JSON: a list of objects, one a variable. Valid for ever. */
HVD_API const char* hvd_knobs(void);

/* Starts the runtime from the environment (see docs/knobs.md). Blocks until all ranks are there or
 * it has failed. Does nothing while one is running. */
HVD_API hvd_status hvd_init(void);

/* Some of the ranks of the job, global ranks in any order. */
typedef struct {
  const int32_t* ranks; /* [count] */
  int32_t count;
} hvd_rank_list;

typedef struct {
  const hvd_rank_list*
      process_sets; /* [process_set_count], the same on all ranks; get ids from 1 */
  int32_t process_set_count;
  bool dynamic_process_sets; /* sets may be added and removed later; also by
                                HOROVOD_DYNAMIC_PROCESS_SETS=1 */
} hvd_init_options;
/* hvd_init with process sets. Also HVD_INVALID_ARGUMENT on every rank when the sets differ between
 * ranks, or one of them has a rank twice or outside the job, or equals another set or the world. */
HVD_API hvd_status hvd_init_with(const hvd_init_options* options);

/* Which job this process is in, where the environment does not say it, or not all. Zero what is not
 * needed. */
typedef struct {
  hvd_rank_list members; /* the launcher's ranks that are the job; count 0: all of them */
  int32_t rank, size;    /* of this process; size 0: as the environment says. Needs `introduce` */
  /* How the ranks find each other where the launcher does not help: called once, on every rank of
   * the job, brings `word` of rank 0 (NULL on the others; it has the job's key) to all of them, and
   * puts it into `room` [capacity] with a 0 at its end. `name` is the same on all of them and new
   * at every init. False when that failed. Called only where it is needed. */
  bool (*introduce)(void* context, const char* name, const char* word, char* room, size_t capacity);
  void* context;
} hvd_job;
/* hvd_init_with for a job that is not just what the launcher started. Either may be NULL. */
HVD_API hvd_status hvd_init_job(const hvd_init_options* options, const hvd_job* job);
/* Ends the job on all ranks: what was agreed before completes everywhere. Does nothing when none is
 * running. */
HVD_API hvd_status hvd_shutdown(void);
/* hvd_shutdown for a process that is about to exit. Does not wait for an hvd_init that is under way
 * on another thread; the ranks that wait for this one there see its connections close. */
HVD_API hvd_status hvd_shutdown_at_exit(void);
HVD_API bool hvd_is_initialized(void);

typedef struct {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  bool homogeneous; /* as many ranks on every host */
  uint32_t generation;
} hvd_world;
HVD_API hvd_status hvd_get_world(hvd_world* world);
/* Whether MPI moves the tensors (HOROVOD_CPU_OPERATIONS=mpi). False when no job runs. */
HVD_API bool hvd_uses_mpi(void);
/* A key of HVD_KEY_BYTES for `purpose`, derived from the job's key: equal on all ranks, unknown to
 * everybody else, and different for each purpose. With HOROVOD_NO_SECRET anybody can derive it. */
#define HVD_KEY_BYTES 32
HVD_API hvd_status hvd_derive_key(const char* purpose, uint8_t* key);

/* Process sets: groups of ranks that operations run on. Id 0 is the world. Adding and removing is
 * collective over all ranks of the job and blocks; the id of a set that was removed is not used
 * again in the same job.
 * HVD_INVALID_ARGUMENT: not dynamic, a duplicate, a rank outside the job. HVD_MISMATCH: ranks
 * disagree. Operations of a removed set that were not agreed yet fail. */
HVD_API hvd_status hvd_add_process_set(hvd_rank_list ranks, int32_t* id);
HVD_API hvd_status hvd_remove_process_set(int32_t id);
/* On every rank, member or not. `rank`: this process' rank in the set, -1 for none. */
HVD_API hvd_status hvd_get_process_set(int32_t id, int32_t* size, int32_t* rank);
/* `ranks` [capacity]: global ranks, ascending. HVD_INVALID_ARGUMENT when there are more than
 * `capacity`, which may be when another thread has changed the sets meanwhile. */
HVD_API hvd_status hvd_get_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);

/* Contiguous, row-major, host memory. */
typedef struct {
  void* data;
  const int64_t* shape; /* [dimensions] */
  int32_t dimensions;
  hvd_dtype dtype;
} hvd_tensor;

typedef int64_t hvd_handle;

/* What an operation that has ended left. Valid only while `ended` of its request runs. */
typedef struct {
  hvd_status status;
  const char* text;          /* of the error; "" when there was none */
  const hvd_tensor* outputs; /* [output_count] as of hvd_take_output; the memory belongs to whoever
                                is told, who ends it with hvd_free_memory(output.data) */
  int32_t output_count;      /* 0 on an error */
  int32_t last_joined;       /* join: the rank that joined last */
} hvd_ending;

/* One operation on one tensor, or on several as one group. */
typedef struct {
  hvd_kind kind;
  const char* name;         /* what ranks match by; with `count` > 1 the name of the group */
  int32_t process_set;      /* 0: all ranks; join: 0 */
  int32_t count;            /* tensors; 0 for barrier and join, 1 for alltoall */
  const hvd_tensor* inputs; /* [count] */
  /* [count]. Allreduce and broadcast: as large as the inputs, may equal them. Reducescatter: this
   * rank's rows, dim0 / size of them and one more for the first dim0 % size ranks of the set.
   * Allgather and alltoall: NULL, the runtime allocates (hvd_take_output).
   * Memory of inputs and outputs may overlap. Every input is read as it was before the request, and
   * then the outputs are stored in their order, so that the last one decides. An output that
   * overlaps anything but an equal input of its own costs memory and a copy. Of requests that
   * overlap and are in flight at once, it is not defined which sees results of the other, but it is
   * the same on all ranks. */
  void* const* outputs;
  hvd_reduce_op op; /* allreduce: any; reducescatter: average or sum. Averages of integers are
                       sums that are divided exactly, truncating toward zero */
  double prescale, postscale;
  int32_t root;          /* broadcast: global rank, a member of the set */
  const int32_t* splits; /* alltoall: [split_count] rows of the input for each rank of the set, in
                            order; what their sum leaves is not sent. NULL: equal parts. */
  int32_t split_count;
  void (*release)(void* owner); /* called once, from any thread, when the runtime no longer touches
                                   the memory */
  void* owner;
  /* Called once, with `owner`, when the operation has ended, well or not, and the runtime no longer
   * touches the memory; from any thread, usually the runtime's own: it must neither block nor call
   * anything but hvd_submit and hvd_free_memory. NULL: nobody is told. */
  void (*ended)(void* owner, const hvd_ending* ending);
} hvd_request;

/* Queues an operation. On an error nothing was queued, and neither `release` nor `ended` was
 * called. `handle` may be NULL for a request with `ended`, which nobody will wait for then. */
HVD_API hvd_status hvd_submit(const hvd_request* request, hvd_handle* handle);
/* Queues several at once, all or none of them; each is an operation of its own. On an error no
   `release` was called. */
HVD_API hvd_status hvd_submit_all(const hvd_request* requests, int32_t count, hvd_handle* handles);
/* True when the operation has ended, well or not; also for an unknown handle, and in a forked child
 * for an operation of its parent: hvd_wait returns at once. */
HVD_API bool hvd_poll(hvd_handle handle);
/* Blocks until the operation has ended and returns how. Does not free the handle. */
HVD_API hvd_status hvd_wait(hvd_handle handle);
/* Waits for all of them and frees them, whatever comes; returns the first error. */
HVD_API hvd_status hvd_finish_all(const hvd_handle* handles, int32_t count);
/* Allgather and alltoall, after a successful hvd_wait: hands over output `index`, once. Alltoall
 * has two: 0, the tensor; 1, the rows received from each rank of the set, int32. The shape is valid
 * until hvd_free; the memory belongs to the caller, who ends it with hvd_free_memory(output->data).
 */
HVD_API hvd_status hvd_take_output(hvd_handle handle, int32_t index, hvd_tensor* output);
/* Join, after a successful hvd_wait: the rank that joined last, the same on all ranks. */
HVD_API hvd_status hvd_get_last_joined(hvd_handle handle, int32_t* rank);
HVD_API void hvd_free_memory(void* memory);
/* Frees the handle. The operation itself goes on. */
HVD_API void hvd_free(hvd_handle handle);

/* A group for blocking calls that need no agreement, because all its ranks make the same calls in
 * the same order, as in MPI. It has staging memory and connections of its own, so that it does not
 * meet the operations above. One thread at a time. */
typedef struct hvd_group hvd_group;
/* Collective over `ranks`, which are those of the group; a count of 0 stands for all ranks of the
 * job. Within the group they are numbered in ascending order. HVD_TIMED_OUT when one has not come
 * within HOROVOD_START_TIMEOUT; then the ranks no longer agree on how many groups of these ranks
 * there were, and another one cannot be made in this job. After an error of a call the group can
 * only be freed; it may outlive the job. Of no use in a forked child. */
HVD_API hvd_status hvd_group_create(hvd_rank_list ranks, hvd_group** group);
HVD_API int32_t hvd_group_rank(const hvd_group* group);
HVD_API int32_t hvd_group_size(const hvd_group* group);
/* Runs one operation and returns when its result is here. Of the request, `name`, `process_set`,
 * `release` and `owner` are not used; `root` is a rank of the group; allreduce, allgather,
 * broadcast, alltoall (equal parts), reducescatter and barrier. Outputs are the caller's: for
 * allgather size times the input, for alltoall as large as the input. Shapes, dtype, op, scaling
 * and root must be equal on all ranks; nobody checks. */
HVD_API hvd_status hvd_group_run(hvd_group* group, const hvd_request* request);
/* Collective, like the creation: returns when no rank of the group needs this one any more. After
 * an error of a call it waits at most a second for the others. */
HVD_API void hvd_group_free(hvd_group* group);

/* Writes what happens on this rank as a trace (Chrome's JSON) until hvd_stop_timeline or the end.
 * Rank 0 writes `path`, the others a file beside it whose name has the rank. Starting again changes
 * the file. HVD_INVALID_ARGUMENT unless HOROVOD_TIMELINE was set at init, or when the file cannot
 * be made. */
HVD_API hvd_status hvd_start_timeline(const char* path, bool mark_cycles);
HVD_API hvd_status hvd_stop_timeline(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* HOROVOD_HOROVOD_H_ */
