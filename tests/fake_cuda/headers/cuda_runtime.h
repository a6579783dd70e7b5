// For headers_check.cc: what nccl.h needs of the runtime API, whose own header needs a whole
// toolkit.
#pragma once

#include <cuda.h>

#define __CUDA_BF16_TYPES_EXIST__
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
