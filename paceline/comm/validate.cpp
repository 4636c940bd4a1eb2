#include "paceline/comm/validate.h"

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

using Kind = Operation::Kind;

bool overlap(const Buffer& a, const Buffer& b) {
  const auto first = [](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data); };
  const auto end = [&](const Buffer& buffer) { return first(buffer) + static_cast<std::uintptr_t>(buffer.bytes()); };
  return first(a) < end(b) && first(b) < end(a);
}

}  // namespace

void validate(const Operation& op, int rank, int size) {
  const auto refuse = [&](const std::string& why) { throw ConfigError(fmt::format("{}: {}", describe(op), why)); };
  const auto check_rank = [&](int named, const char* what) {
    if (named < 0 || named >= size) refuse(fmt::format("{} {} is not among the ranks 0 to {}", what, named, size - 1));
  };
  if (op.buffer.count < 0) refuse("the number of elements is negative");
  if (op.kind == Kind::broadcast || op.kind == Kind::reduce) check_rank(op.root, "root");
  if (!op.is_collective()) {
    check_rank(op.peer, "peer");
    if (op.peer == rank) refuse("a rank cannot send to itself");
    if (op.tag < 0) refuse("the tag is negative");
  }
  if (op.kind != Kind::all_to_all) return;
  if (op.input.count != op.buffer.count || op.input.dtype != op.buffer.dtype) refuse("input and output differ in size or type");
  if (op.input.on_gpu != op.buffer.on_gpu) refuse("input and output are on different devices; move one of them");
  if (op.buffer.count % size != 0) refuse(fmt::format("{} elements cannot be divided into {} equal parts", op.buffer.count, size));
  if (overlap(op.input, op.buffer)) refuse("input and output overlap, so data that is not sent yet would be overwritten; use two buffers");
}

}  // namespace paceline::comm
