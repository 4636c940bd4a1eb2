#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <string>

#include "paceline/base/error.h"
#include "paceline/tensor/pieces_cuda.h"

namespace paceline::tensor {
namespace {

constexpr int kThreads = 256;
// The pieces of a launch fill a GPU together. So each gets only enough blocks for thousands of threads to read a large piece; a small piece
// leaves most of its blocks without work.
constexpr int kBlocksAPiece = 64;

// blockIdx.y is the piece; the blocks of x share its values. Small pieces leave most of their blocks without work, which costs next to
// nothing; large ones go round the loop.
__global__ void copy_pieces(const __grid_constant__ PieceTable table, bool add) {
  const auto& piece = table.piece[blockIdx.y];
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < piece.count; i += gridDim.x * kThreads) {
    const float value =
        piece.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(piece.values)[i]) : static_cast<const float*>(piece.values)[i];
    piece.place[i] = add ? piece.place[i] + value : value;
  }
}

}  // namespace

void launch_pieces(const PieceTable& table, bool add, void* stream) {
  copy_pieces<<<dim3(kBlocksAPiece, table.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(table, add);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw Error(std::string("copying gradients on the GPU failed: ") + cudaGetErrorString(status));
}

}  // namespace paceline::tensor
