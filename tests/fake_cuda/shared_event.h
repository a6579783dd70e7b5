// Events that other processes open: two numbers in shared memory. Recording an event begins a
// number; reaching it on the stream finishes it.
#pragma once

#include "tests/fake_cuda/state.h"

namespace fake {

void make_shared_part(EventHandle event);
/// Aborts if the former recording is pending on another stream: two numbers could not tell the two
/// apart.
void begin_shared_record(EventHandle event, StreamHandle stream);
/// The number of the last recording; 0: none, or not shared.
uint64_t shared_number(EventHandle event);
/// `shared` may be nullptr.
void finish_shared_record(hvd::device::Shared* shared, uint64_t number);
bool shared_done(EventHandle event);
/// Makes the stream wait for an imported event. Does nothing for one of this process.
void enqueue_shared_wait(StreamHandle stream, EventHandle event);

}  // namespace fake
