#include "core/transport/store_messages.h"

#include "core/transport/store.h"

namespace hvd {

ByteVector to_bytes(const StoreRequest& request) {
  Writer out;
  out.put(request.number);
  out.put(request.operation);
  out.put_text(request.key);
  out.put_bytes(request.value);
  return out.take();
}

ByteVector to_bytes(const StoreReply& reply) {
  Writer out;
  out.put(reply.number);
  out.put(reply.status);
  out.put_bytes(reply.value);
  return out.take();
}

StoreRequest read_store_request(ConstBytes bytes) {
  Reader in(bytes);
  StoreRequest request;
  request.number = in.get<uint32_t>();
  request.operation = in.get_enum(StoreOperation::peek);
  request.key = in.get_text(kMaxStoreKeyBytes);
  request.value = in.rest();
  return request;
}

StoreReply read_store_reply(ConstBytes bytes) {
  Reader in(bytes);
  StoreReply reply;
  reply.number = in.get<uint32_t>();
  reply.status = in.get_enum(StoreStatus::refused);
  reply.value = in.rest();
  return reply;
}

}  // namespace hvd
