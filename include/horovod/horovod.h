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

typedef enum { HVD_ALLREDUCE = 0, HVD_ALLGATHER = 1, HVD_BROADCAST = 2, HVD_BARRIER = 5 } hvd_kind;

/* Text of this thread's last error; "" when there was none. Valid until the next call on this
 * thread. */
HVD_API const char* hvd_last_error(void);
HVD_API const char* hvd_version(void);
/* The configuration table as JSON: a list of objects, one a variable. Valid for ever. */
HVD_API const char* hvd_knobs(void);

/* Starts the runtime from the environment (see docs/knobs.md). Blocks until all ranks are there or
 * it has failed. Does nothing while one is running. */
HVD_API hvd_status hvd_init(void);
/* Ends the job on all ranks: what was agreed before completes everywhere. Does nothing when none is
 * running. */
HVD_API hvd_status hvd_shutdown(void);
HVD_API bool hvd_is_initialized(void);

typedef struct {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  bool homogeneous; /* as many ranks on every host */
  uint32_t generation;
} hvd_world;
HVD_API hvd_status hvd_get_world(hvd_world* world);

/* Contiguous, row-major, host memory. */
typedef struct {
  void* data;
  const int64_t* shape; /* [dimensions] */
  int32_t dimensions;
  hvd_dtype dtype;
} hvd_tensor;

/* One operation on one tensor, or on several as one group. */
typedef struct {
  hvd_kind kind;
  const char* name;         /* what ranks match by; with `count` > 1 the name of the group */
  int32_t process_set;      /* 0: all ranks */
  int32_t count;            /* tensors; 0 for a barrier */
  const hvd_tensor* inputs; /* [count] */
  void* const* outputs;     /* [count], as large as the inputs, may equal them; NULL for allgather,
                               whose outputs     the runtime allocates (hvd_take_output) */
  hvd_reduce_op op;
  double prescale, postscale;
  int32_t root;                 /* broadcast: global rank */
  void (*release)(void* owner); /* called once, from any thread, when the runtime no longer touches
                                   the memory */
  void* owner;
} hvd_request;

typedef int64_t hvd_handle;

/* Queues an operation. On an error nothing was queued and `release` was not called. */
HVD_API hvd_status hvd_submit(const hvd_request* request, hvd_handle* handle);
/* True when the operation has ended, well or not; also for an unknown handle. */
HVD_API bool hvd_poll(hvd_handle handle);
/* Blocks until the operation has ended and returns how. Does not free the handle. */
HVD_API hvd_status hvd_wait(hvd_handle handle);
/* Allgather, after a successful hvd_wait: hands over output `index`, once. The shape is valid until
 * hvd_free; the memory belongs to the caller, who ends it with hvd_free_memory(output->data). */
HVD_API hvd_status hvd_take_output(hvd_handle handle, int32_t index, hvd_tensor* output);
HVD_API void hvd_free_memory(void* memory);
/* Frees the handle. The operation itself goes on. */
HVD_API void hvd_free(hvd_handle handle);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* HOROVOD_HOROVOD_H_ */
