/* The C interface of the runtime. All bindings and adapters use it. C99.
 *
 * A process has at most one running job. Any thread may call any function. A function that returns
 * hvd_status sets the text of hvd_last_error() (thread-local) unless it returns HVD_OK. Functions
 * that need a running job return HVD_NOT_INITIALIZED without one, and in a forked child.
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
  HVD_INVALID_ARGUMENT = 1, /* misuse on this rank; nothing was sent */
  HVD_NOT_INITIALIZED = 2,  /* no job is running in this process */
  HVD_MISMATCH = 3,         /* ranks disagree about one operation; the job continues */
  HVD_SHUT_DOWN = 4,        /* a rank has shut the job down */
  HVD_PEER_LOST = 5,        /* a rank has terminated without shutting down */
  HVD_TIMED_OUT = 6,
  HVD_UNAUTHORIZED = 7, /* a peer does not have the key of the job */
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
  HVD_JOIN = 6,
  HVD_MESSAGE = 7 /* from one rank to another one */
} hvd_operation_kind;

/* Returns the text of the last error on this thread, "" if there was none. The text is valid until
 * the next call of any function on this thread. */
HVD_API const char* hvd_last_error(void);
/* Returns the version of the runtime. The text is static. */
HVD_API const char* hvd_version(void);
/* Returns the configuration table as JSON: a list with one object per variable. The text is valid
 * until the process exits. */
HVD_API const char* hvd_knobs(void);
/* Returns the name of an element type as in messages and in NumPy, such as "float32" or "bool".
 * NULL for an unknown number. The text is static. */
HVD_API const char* hvd_dtype_name(int32_t dtype);
/* Returns the bytes per element, 0 for an unknown number. */
HVD_API size_t hvd_dtype_bytes(int32_t dtype);

/* Starts the runtime from the environment (see docs/knobs.md). Blocks until all ranks are connected
 * or the start has failed. Does nothing while a job is running. Returns HVD_INVALID_ARGUMENT in a
 * forked child while its parent is a rank of the job, HVD_TIMED_OUT with the names of the missing
 * ranks, HVD_UNAUTHORIZED if the keys differ. */
HVD_API hvd_status hvd_init(void);

/* Global ranks of the job, in any order. The caller owns the memory. */
typedef struct {
  const int32_t* ranks; /* [count] */
  int32_t count;
} hvd_rank_list;

typedef struct {
  const hvd_rank_list* process_sets; /* [process_set_count], equal on all ranks; ids start at 1 */
  int32_t process_set_count;
  bool dynamic_process_sets; /* allows adding and removing sets later, as does
                                HOROVOD_DYNAMIC_PROCESS_SETS=1 */
  /* A libnccl.so.2 to load at the first tensor in CUDA memory, unless the process has loaded one
   * by then or HOROVOD_NCCL_LIBRARY names one; NULL: the one of the dynamic loader. */
  const char* nccl_library;
} hvd_init_options;
/* Like hvd_init, with process sets. Also returns HVD_INVALID_ARGUMENT, on every rank, if the sets
 * differ between ranks, or if a set has a duplicate rank, a rank outside the job, or the same
 * members as another set or the world. */
HVD_API hvd_status hvd_init_with(const hvd_init_options* options);

/* The job of this process, if it differs from the job that the environment describes.
 * Zero-initialize unused fields. */
typedef struct {
  hvd_rank_list members; /* the launcher's ranks that form the job; count 0: all of them */
  int32_t rank, size;    /* of this process; size 0: from the environment. Need `rendezvous` */
  /* Out-of-band broadcast of the root address, for jobs without a launcher. hvd_init_job calls it
   * once on every rank, on the calling thread, if `size` is set. `root_address`: on rank 0 a text
   * with its address and the key of the job; NULL on the other ranks. The function must store this
   * text on all ranks, NUL-terminated, in `received` [capacity bytes]. `name` is equal on all ranks
   * and differs between inits. Returns false on failure. */
  bool (*rendezvous)(void* context, const char* name, const char* root_address, char* received,
                     size_t capacity);
  void* context; /* passed to `rendezvous` */
} hvd_job;
/* Like hvd_init_with, for a job other than the one that the launcher started. Either argument may
 * be NULL. Also returns HVD_INVALID_ARGUMENT if `job` is inconsistent, HVD_INTERNAL if `rendezvous`
 * fails. */
HVD_API hvd_status hvd_init_job(const hvd_init_options* options, const hvd_job* job);
/* Ends the job on all ranks and waits for the progress thread. Operations that all ranks have
 * agreed on complete first. Other operations fail with HVD_SHUT_DOWN. Does nothing if no job is
 * running. Returns HVD_PEER_LOST, after the end, if a rank is lost meanwhile for which this rank
 * waits; in an elastic job it returns HVD_OK then. */
HVD_API hvd_status hvd_shutdown(void);
/* Like hvd_shutdown, for a process that is about to exit. Does not wait for an hvd_init in progress
 * on another thread. Ranks that wait for this rank in hvd_init see its connections close. A loss
 * meanwhile is logged. */
HVD_API hvd_status hvd_shutdown_at_exit(void);
/* Returns whether this process is part of a job. False in a forked child. */
HVD_API bool hvd_is_initialized(void);
/* Returns the error that has ended the job, as hvd_wait does, HVD_NOT_INITIALIZED if there is none,
 * and HVD_OK while it runs. The loss of another rank may be noticed later. Never blocks. */
HVD_API hvd_status hvd_check_running(void);

/* ---- Elastic jobs: horovodrun --min-np N. The launcher assigns the places of its workers (rank
 * and size) anew for each generation. ----
 *
 * After the error that ends a job, or after an announcement: hvd_shutdown, hvd_ask_for_place,
 * hvd_await_place, hvd_init. The first hvd_init of a process needs none of them. */

/* Returns whether this process belongs to an elastic job. */
HVD_API bool hvd_is_elastic(void);
/* Asks the launcher for a place in the next generation. Returns HVD_INVALID_ARGUMENT before
 * hvd_shutdown and outside of elastic jobs, HVD_PEER_LOST if the launcher is lost. */
HVD_API hvd_status hvd_ask_for_place(void);
/* Waits up to `seconds` for the place, and stores whether this process has one. Returns
 * HVD_SHUT_DOWN with the reason if the launcher does not want this worker any more, HVD_PEER_LOST
 * if the job ends or the launcher is lost: the process should end. */
HVD_API hvd_status hvd_await_place(double seconds, bool* placed);
/* Stores the generation of the place, -1 if this process has none yet, and its environment
 * variables, which hvd_init uses instead of those of the process: one line `NAME=value` each, ""
 * for the place from the start of the process. The text is valid until the next call on this
 * thread. */
HVD_API hvd_status hvd_get_place(int64_t* generation, const char** variables);

/* The next generation will have other workers. `timestamp`: seconds by the launcher's clock. */
typedef struct {
  bool added, removed;
  double timestamp;
} hvd_elastic_update;
/* Takes all announcements so far. `pending`: there were some; `update` is their union. Does not
 * block, except for the first connection to the launcher. */
HVD_API hvd_status hvd_pending_update(hvd_elastic_update* update, bool* pending);

/* Tells the launcher that this process leaves the job for good: the others begin their next
 * generation without it, and do not wait for its end. Call it when all ranks have what they need of
 * this one, such as after a commit. The process should then end. Returns HVD_INVALID_ARGUMENT
 * outside of elastic jobs, HVD_PEER_LOST if the launcher is lost. */
HVD_API hvd_status hvd_leave_job(void);

typedef struct {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  bool homogeneous;    /* every host has the same number of ranks */
  uint32_t generation; /* number of the job among the jobs of the same launch */
} hvd_world;
/* Stores the ranks and sizes of the job in `world`. */
HVD_API hvd_status hvd_get_world(hvd_world* world);
/* Returns whether MPI carries the tensors (HOROVOD_CPU_OPERATIONS=mpi); false if no job runs. */
HVD_API bool hvd_uses_mpi(void);
/* Derives a key for `purpose` from the key of the job and stores it in `key` [HVD_KEY_BYTES]. The
 * key is equal on all ranks, differs per purpose and is secret, unless HOROVOD_NO_SECRET is set. */
#define HVD_KEY_BYTES 32
HVD_API hvd_status hvd_derive_key(const char* purpose, uint8_t* key);
/* Encrypts and authenticates the `bytes` of a message (ChaCha20-Poly1305, RFC 8439) and stores the
 * result in `sealed` [bytes + HVD_SEAL_BYTES]. `key` [HVD_KEY_BYTES] must never be used for two
 * messages with the same `number`. Needs no job. */
#define HVD_SEAL_BYTES 16
HVD_API hvd_status hvd_seal(const uint8_t* key, uint64_t number, const void* message, size_t bytes,
                            void* sealed);
/* Stores the message of `bytes` that hvd_seal() was given. Returns HVD_INVALID_ARGUMENT if `sealed`
 * is not of this key, number and size; `message` then has no meaning. */
HVD_API hvd_status hvd_unseal(const uint8_t* key, uint64_t number, const void* sealed, size_t bytes,
                              void* message);

/* Process sets: subsets of the ranks, on which operations run. Id 0 is the world. */

/* Adds the set of `ranks` and stores its id, equal on all ranks. Collective over all ranks of the
 * job; blocks. Returns HVD_INVALID_ARGUMENT if sets are not dynamic, the set exists already, or a
 * rank is outside the job; HVD_MISMATCH if ranks request different changes. */
HVD_API hvd_status hvd_add_process_set(hvd_rank_list ranks, int32_t* id);
/* Removes a set. Collective over all ranks of the job; blocks. Operations on the set that the ranks
 * have not agreed on fail. The id is not reused in this job. Errors: as for adding, and
 * HVD_INVALID_ARGUMENT for an unknown id and for 0. */
HVD_API hvd_status hvd_remove_process_set(int32_t id);
/* Stores the size of the set and the rank of this process in it, -1 if it is not a member. Local.
 * Returns HVD_INVALID_ARGUMENT for an unknown id. */
HVD_API hvd_status hvd_get_process_set(int32_t id, int32_t* size, int32_t* rank);
/* Stores the global ranks of the set in `ranks` [capacity], ascending. Local. Returns
 * HVD_INVALID_ARGUMENT for an unknown id, or if the set has more than `capacity` ranks; another
 * thread may have changed the sets since hvd_get_process_set. */
HVD_API hvd_status hvd_get_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);

typedef enum {
  HVD_HOST = 0, /* memory that the CPU reads and writes */
  HVD_CUDA = 1,
  HVD_ROCM = 2
} hvd_device_type;

/* The location of a tensor. Zero-initialized: host memory. */
typedef struct {
  hvd_device_type type;
  int32_t index; /* number of the device within its type in this process; host: 0 */
} hvd_device;

/* A contiguous, row-major tensor. Zero-initialize unused fields.
 * This version supports host memory and CUDA. The first tensor in CUDA memory loads the driver and
 * NCCL. All such tensors of a process must be on one GPU. Other tensors are rejected with
 * HVD_INVALID_ARGUMENT and a text that names the device. */
typedef struct {
  void* data;           /* address on the device */
  const int64_t* shape; /* [dimensions], in elements */
  int32_t dimensions;
  hvd_dtype dtype;
  hvd_device device;
  /* Device memory: the stream (CUstream, hipStream_t) on which the caller uses the tensor. NULL is
   * the default stream of the device. The runtime reads the memory after all work that was queued
   * on the stream before the submission. Only the submission uses the stream, on the calling
   * thread. Host memory: NULL; the memory must be ready at the submission. */
  void* stream;
} hvd_tensor;

typedef int64_t hvd_handle;

/* The result of a completed operation. Valid only during the callback `ended` of its request. */
typedef struct {
  hvd_status status;
  const char* text;          /* of the error; "" on success */
  const hvd_tensor* outputs; /* [output_count], see hvd_take_output. The callback owns the memory
                                and releases it with hvd_free_memory(output.data) */
  int32_t output_count;      /* 0 on an error */
  int32_t last_joined;       /* join: the rank that joined last */
} hvd_ending;

/* Parameters of an operation. They must be equal on all ranks, as must the dtype and the device
 * type of the tensors. */
typedef struct {
  hvd_operation_kind kind;
  hvd_reduce_op op; /* allreduce: any; reducescatter: average or sum. An average of integers is the
                       sum divided by the number of ranks, truncated toward zero */
  double prescale, postscale; /* allreduce, reducescatter: factors before and after the reduction;
                                 1: none; NaN is an error */
  int32_t root;               /* broadcast: global rank, a member of the set; message: the sender */
  int32_t receiver; /* message: global rank, not the sender. Only these two ranks submit it */
} hvd_operation;

/* One operation on one tensor, or on a group of tensors. The runtime copies the structure, the
 * name, the shapes and the splits. */
typedef struct {
  hvd_operation operation;
  const char* name;         /* ranks match operations by name, and messages of one name between two
                               ranks in the order of submission; join: not used */
  int32_t process_set;      /* 0: all ranks; join, message: 0 */
  int32_t count;            /* number of tensors; barrier, join: 0; alltoall: 1 */
  const hvd_tensor* inputs; /* [count], all of one dtype */
  /* [count], on the device of the inputs.
   * Allreduce, broadcast: each as large as its input, which it may equal.
   * Message: on the receiver as for a broadcast; the sender's are not used, and may be NULL.
   * Reducescatter: the rows of this rank, dim0 / size, plus one on the first dim0 % size ranks.
   * Allgather, alltoall: NULL; host memory: the runtime allocates the outputs, see
   * hvd_take_output; device memory: `allocate` does.
   * Inputs and outputs may overlap. All inputs are read before the first output is stored, and
   * outputs are stored in order. An output that overlaps any memory except its own input, if equal,
   * costs temporary memory and a copy. If requests in flight overlap, it is not defined which one
   * reads the results of the other, but the order is the same on all ranks. */
  void* const* outputs;
  const int32_t* splits; /* alltoall: [split_count], rows of the input for each rank of the set in
                            order. Rows beyond their sum are not sent. NULL: equal parts. */
  int32_t split_count;
  void (*release)(void* owner); /* called once, on any thread, when the runtime no longer accesses
                                   the memory; may be NULL */
  void* owner;                  /* passed to `release` and `ended` */
  /* Called once when the operation has completed or failed and the runtime no longer accesses the
   * memory. Runs on any thread, usually the progress thread. It must not block, and may call only
   * hvd_submit and hvd_free_memory. May be NULL. */
  void (*ended)(void* owner, const hvd_ending* ending);
  /* Device memory: called once when all work of the operation is queued on the device, immediately
   * before hvd_wait returns; then hvd_wait_on_stream may be called. Takes over outputs in host
   * memory, as `ended` does. `ended` follows when the device is done. Not called if the operation
   * fails before, or if it completes when the device is done; then there is only `ended`. Runs as
   * `ended`, also before the submission returns. It must not block, and may call only
   * hvd_free_memory. May be NULL. */
  void (*queued)(void* owner, const hvd_ending* ending);
  /* Allgather, alltoall of device memory: allocates output `index` on the device of the inputs,
   * with their dtype and `shape` [dimensions], and stores `data` and `stream` in `output`. The
   * runtime writes the memory after all work that is queued on the stream then. It must stay valid
   * until `release`. Called once per output, when all ranks have agreed on the operation, on any
   * thread; must not call functions of this interface. Returns NULL, or on failure the reason, a
   * text that stays valid until `release`: it becomes part of the error that ends the job. */
  const char* (*allocate)(void* owner, int32_t index, const int64_t* shape, int32_t dimensions,
                          hvd_tensor* output);
  /* How long the operation waits for ranks that have not submitted it; 0: without limit. Then the
   * job ends with HVD_SHUT_DOWN on all ranks, and the text names these ranks. Join: not used. */
  double timeout_seconds;
  /* Allreduce of float32 in device memory: HVD_FLOAT16 or HVD_BFLOAT16, in which the ranks exchange
   * and reduce the elements. The runtime converts them where it packs and unpacks them. To other
   * ranks the tensors have this type. NULL: the type of the inputs. */
  const hvd_dtype* sent_as;
} hvd_request;

/* Submits an operation without waiting for it. Inputs and outputs must stay valid until it has
 * ended. On an error nothing was submitted, and no callback of the request is called. Returns
 * HVD_INVALID_ARGUMENT if the request is invalid, if an operation of this name is in flight on the
 * process set (not for messages), or if too many operations are in flight. Returns the error that
 * ended the job if it has ended. `handle` may be NULL if the request has `ended`. */
HVD_API hvd_status hvd_submit(const hvd_request* request, hvd_handle* handle);
/* Submits `count` operations, all or none, and stores their `handles` [count]. Each needs its own
 * name. Errors: as for hvd_submit. */
HVD_API hvd_status hvd_submit_all(const hvd_request* requests, int32_t count, hvd_handle* handles);
/* Returns whether hvd_wait would return without blocking: the operation has completed or failed,
 * the handle is unknown or, in a forked child, the operation is of the parent. Never blocks. */
HVD_API bool hvd_poll(hvd_handle handle);
/* As hvd_poll, but first makes progress, as hvd_wait does, without sleeping. Returns false after
 * `microseconds` without progress. For callers that have other work if ranks are late. */
HVD_API bool hvd_poll_for(hvd_handle handle, int64_t microseconds);
/* Blocks until the operation has completed and returns its status. An operation on device memory
 * completes when all its work is queued on the device: call hvd_wait_on_stream before work that
 * uses the result. With HOROVOD_ENABLE_ASYNC_COMPLETION=0 it completes when the device is done.
 * Does not free the handle. Returns HVD_INVALID_ARGUMENT for an unknown handle, HVD_MISMATCH if
 * ranks disagree about the operation, HVD_SHUT_DOWN or HVD_PEER_LOST if the job ended first. */
HVD_API hvd_status hvd_wait(hvd_handle handle);
/* Makes `stream`, of the device of a completed operation, wait for the result: work that is queued
 * on it later uses the memory after the operation. Does not block the host. Does nothing for host
 * memory. Call it for each stream that uses the result, on the thread that queues the work. Returns
 * HVD_INVALID_ARGUMENT for an unknown handle, an operation that has not completed, and a stream
 * that is being captured; the error that ended the job, if that has made the result invalid. */
HVD_API hvd_status hvd_wait_on_stream(hvd_handle handle, void* stream);
/* Waits for all of `handles` [count] and frees them, even if some fail. Returns the first error. */
HVD_API hvd_status hvd_finish_all(const hvd_handle* handles, int32_t count);
/* As hvd_finish_all, and calls hvd_wait_on_stream for those that have succeeded, once per batch.
 * `stream`: of the device of all operations. */
HVD_API hvd_status hvd_finish_all_on_stream(const hvd_handle* handles, int32_t count, void* stream);
/* Transfers output `index` of a completed allgather or alltoall to the caller, once. Alltoall has
 * two outputs: 0, the tensor; 1, the rows received from each rank of the set, int32 [size].
 * output->data is NULL if `allocate` has allocated the output.
 * The caller owns output->data and releases it with hvd_free_memory. output->shape is valid until
 * hvd_free. Returns HVD_INVALID_ARGUMENT if the operation is in flight or has no such output. */
HVD_API hvd_status hvd_take_output(hvd_handle handle, int32_t index, hvd_tensor* output);
/* Stores the rank that joined last, equal on all ranks, for a completed join. Returns
 * HVD_INVALID_ARGUMENT if the operation is in flight or is not a join. */
HVD_API hvd_status hvd_get_last_joined(hvd_handle handle, int32_t* rank);
/* Releases the memory of an output that the runtime allocated. Does nothing for NULL. */
HVD_API void hvd_free_memory(void* memory);
/* Frees the handle. An operation in flight continues. Does nothing for an unknown handle. */
HVD_API void hvd_free(hvd_handle handle);

/* A group for blocking calls without negotiation: all its ranks make the same calls in the same
 * order, as in MPI. It has its own staging memory and connections, so its calls do not interfere
 * with submitted operations. One thread at a time may use a group. */
typedef struct hvd_group hvd_group;
/* Creates a group of `ranks`; count 0: all ranks of the job. Collective over these ranks; blocks.
 * Ranks within the group are numbered in ascending order. The caller frees the group with
 * hvd_group_free. The group may outlive the job. A forked child cannot use it. Returns
 * HVD_INVALID_ARGUMENT if a rank is duplicate or outside the job, or if this rank is missing;
 * HVD_TIMED_OUT if a rank has not joined within HOROVOD_START_TIMEOUT. After a timeout no other
 * group of the same ranks can be created in this job. */
HVD_API hvd_status hvd_group_create(hvd_rank_list ranks, hvd_group** group);
/* Like hvd_group_create. Ranks that create groups of the same ranks in a different order, for
 * example in several threads, pass a `name` by which they find each other. Groups of the same ranks
 * and name are matched by the order in which they are created. */
HVD_API hvd_status hvd_group_create_named(hvd_rank_list ranks, const char* name, hvd_group** group);
/* Returns the rank of this process in the group. */
HVD_API int32_t hvd_group_rank(const hvd_group* group);
/* Returns the number of ranks in the group. */
HVD_API int32_t hvd_group_size(const hvd_group* group);
/* Runs one operation and blocks until its result is available. Supports allreduce, allgather,
 * broadcast, alltoall in equal parts, reducescatter and barrier. Ignores `name`, `process_set`,
 * `release`, `owner` and `ended`. `root` is a rank of the group. The caller provides all outputs:
 * allgather [size * rows of the input, ...], alltoall as large as the input. Shapes, dtype, op,
 * scale factors and root must be equal on all ranks; this is not checked. Returns
 * HVD_INVALID_ARGUMENT if the request is invalid on this rank. After any other error, such as
 * HVD_PEER_LOST, the group can only be freed. */
HVD_API hvd_status hvd_group_run(hvd_group* group, const hvd_request* request);
/* Frees the group. Collective over its ranks: blocks until no rank needs this rank any more. If a
 * call has failed, it waits for at most one second. Does nothing for NULL and in a forked child. */
HVD_API void hvd_group_free(hvd_group* group);

/* Writes a trace of this rank (Chrome trace JSON) until hvd_stop_timeline or the end of the job.
 * Rank 0 writes `path`. Other ranks write a file beside it with the rank in its name. Another call
 * switches to a new file. Returns HVD_INVALID_ARGUMENT if HOROVOD_TIMELINE was not set at init or
 * the file cannot be created. */
HVD_API hvd_status hvd_start_timeline(const char* path, bool mark_cycles);
/* Completes the trace. Does nothing if there is none. */
HVD_API hvd_status hvd_stop_timeline(void);

/* A counter of this rank since hvd_init. Counters are always on. */
typedef struct {
  const char* name; /* for example "operations.allreduce", see docs/counters.md; always valid */
  uint64_t value;   /* does not decrease while the job runs */
} hvd_counter;

/* Stores up to `*count` counters in `counters`, then the number of all counters in `*count`.
 * `counters` may be NULL to query the number. Later versions may have more counters in a different
 * order, so find a counter by its name. The values are read one by one while the job runs. Does not
 * block. */
HVD_API hvd_status hvd_counters(hvd_counter* counters, int32_t* count);

/* For `horovodrun --dump`, which shows where the main thread of each rank is. Stores the signal by
 * which it asks, and a descriptor. A handler of this signal, set between this call and hvd_init,
 * writes the stack of the main thread to the descriptor. The runtime calls it on the main thread,
 * and shows at most 1 MiB. The signal is 0 if the process cannot be asked: HOROVOD_DUMP_SIGNAL is
 * 0, or another handler has the signal. Does not block. */
HVD_API hvd_status hvd_prepare_dump(int32_t* signal, int32_t* descriptor);
/* The process answers `horovodrun --dump` from now on, and not only from hvd_init on. Call it after
 * hvd_prepare_dump, when the handler is set. Does not block. */
HVD_API void hvd_answer_dumps(void);
/* For ranks that wait for each other before they call hvd_init, as in a store of their framework.
 * From now on `horovodrun --dump` shows this process as one in hvd_init, if `meets` is true, or
 * else as one whose hvd_init has failed. Call it after hvd_prepare_dump. It does nothing while a
 * job runs. Does not block. */
HVD_API void hvd_meet_before_init(bool meets);
/* Counts a step of the training, for `horovodrun --dump`. */
HVD_API void hvd_count_step(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* HOROVOD_HOROVOD_H_ */
