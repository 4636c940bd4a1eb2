#include "paceline/comm/operation.h"

#include <fmt/format.h>

namespace paceline::comm {
namespace {

using Kind = Operation::Kind;

Operation make(Kind kind, const Buffer& buffer, const Options& options) {
  Operation operation;
  operation.kind = kind;
  operation.buffer = buffer;
  operation.op = options.op;
  operation.root = options.root;
  operation.algorithm = options.algorithm;
  operation.deadline = options.deadline;
  return operation;
}

}  // namespace

std::string_view name_of(Kind kind) {
  if (kind == Kind::send) return "send";
  if (kind == Kind::receive) return "receive";
  return schedule::name_of(static_cast<schedule::Collective>(kind));
}

std::string describe(const Operation& operation) {
  std::string text(name_of(operation.kind));
  if (operation.kind == Kind::barrier) return text;
  text += fmt::format(" of {} {}", operation.buffer.count, name_of(operation.buffer.dtype));
  if (operation.reduces()) text += fmt::format(" ({})", name_of(operation.op));
  if (operation.kind == Kind::broadcast) text += fmt::format(" from rank {}", operation.root);
  if (operation.kind == Kind::reduce) text += fmt::format(" to rank {}", operation.root);
  if (operation.kind == Kind::send) text += fmt::format(" to rank {}, tag {}", operation.peer, operation.tag);
  if (operation.kind == Kind::receive) text += fmt::format(" from rank {}, tag {}", operation.peer, operation.tag);
  return text;
}

Operation allreduce(Buffer buffer, const Options& options) { return make(Kind::allreduce, buffer, options); }
Operation reduce_scatter(Buffer buffer, const Options& options) { return make(Kind::reduce_scatter, buffer, options); }
Operation all_gather(Buffer buffer, const Options& options) { return make(Kind::all_gather, buffer, options); }
Operation broadcast(Buffer buffer, const Options& options) { return make(Kind::broadcast, buffer, options); }
Operation reduce(Buffer buffer, const Options& options) { return make(Kind::reduce, buffer, options); }
Operation barrier(const Options& options) { return make(Kind::barrier, {}, options); }

Operation all_to_all(Buffer input, Buffer output, const Options& options) {
  Operation operation = make(Kind::all_to_all, output, options);
  operation.input = input;
  return operation;
}

Operation send(Buffer buffer, int peer, int tag, const Options& options) {
  Operation operation = make(Kind::send, buffer, options);
  operation.peer = peer, operation.tag = tag;
  return operation;
}

Operation receive(Buffer buffer, int peer, int tag, const Options& options) {
  Operation operation = make(Kind::receive, buffer, options);
  operation.peer = peer, operation.tag = tag;
  return operation;
}

}  // namespace paceline::comm
