#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_session.h"

namespace paceline::ps {

void Session::serve(ConcurrentServer& concurrent, const ArenaLayout& layout, const ServiceOptions& options) {
  desk_ = std::make_shared<Desk>(concurrent, layout, options, worker_);
  Loan loan(desk_);  // its answers lie in the desk's buffers
  for (grpc::ByteBuffer request; stream_.Read(&request);) {
    const std::string head = bytes_of(request);
    loan.wait();  // a worker that sends a request has its last answer: the buffers are free
    receive_payload(stream_, desk_->room_for(head));
    const Desk::Reply reply = desk_->answer(head);
    send(stream_, reply.head, reply.payload, loan);
  }
}

}  // namespace paceline::ps

#endif
