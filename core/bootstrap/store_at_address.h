// Connects to the Store that rank 0 serves at an address which all ranks know
// (RendezvousMethod::address). Successive generations of a job use the same address. So rank 0
// publishes the name of its job in the Store, and the others wait for the Store with that name.
#pragma once

#include <memory>
#include <string>

#include "core/bootstrap/start_deadline.h"
#include "core/transport/store_client.h"

namespace hvd {

/// `name`: rendezvous_name() of the job. Rank 0 publishes it. `options`: without when_absent.
/// Blocks; rank 0 may start to serve later, and may still serve the Store of an earlier generation.
/// Throws Error{timed_out} naming the job that is served instead, and Error{unauthorized} after 1 s
/// for another key.
std::unique_ptr<Store> connect_at_address(const std::string& name, const Address& server,
                                          const JobKey& key, const StoreClient::Options& options,
                                          const StartDeadline& deadline);

}  // namespace hvd
