#include "paceline/tensor/pieces.h"

#include <ATen/ATen.h>

#include "paceline/tensor/pieces_cuda.h"
#include "paceline/tensor/recorded.h"

namespace paceline::tensor {
namespace {

#if PACELINE_WITH_CUDA
bool fits_kernel(const Piece& piece) {
  const bool known = piece.values.scalar_type() == at::kBFloat16 || piece.values.scalar_type() == at::kFloat;
  return piece.place.is_cuda() && known && piece.place.scalar_type() == at::kFloat && piece.values.strides() == piece.place.strides() &&
         piece.values.is_non_overlapping_and_dense();
}
#endif

void deliver_one(const Piece& piece, bool add) {
  if (add) piece.place.add_(piece.values);
  else piece.place.copy_(piece.values);
}

}  // namespace

void deliver_pieces(std::span<const Piece> pieces, bool add) {
#if PACELINE_WITH_CUDA
  PieceTable table;
  const auto launch = [&] {
    if (table.count > 0) launch_pieces(table, add, current_stream(pieces.front().place.device()));
    table.count = 0;
  };
  for (const Piece& piece : pieces) {
    if (!fits_kernel(piece)) {
      deliver_one(piece, add);
      continue;
    }
    table.piece[table.count++] = {piece.values.data_ptr(), piece.place.data_ptr<float>(), static_cast<int>(piece.place.numel()),
                                  piece.values.scalar_type() == at::kBFloat16};
    if (table.count == PieceTable::kMost) launch();
  }
  launch();
#else
  for (const Piece& piece : pieces) deliver_one(piece, add);
#endif
}

}  // namespace paceline::tensor
