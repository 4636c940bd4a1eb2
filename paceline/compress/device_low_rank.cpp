#include "paceline/compress/device_code.h"

#if PACELINE_WITH_CUDA

#include <algorithm>
#include <vector>

#include "paceline/compress/device_low_rank_kernels.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/factor_layout.h"

namespace paceline::compress {
namespace {

/// An array in GPU memory.
template <class T>
class ArrayOnGpu {
 public:
  explicit ArrayOnGpu(const std::vector<T>& values) : size_(std::ssize(values)), memory_(gpu::allocate(bytes(), values.data())) {}
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }

 private:
  std::int64_t size_;
  std::shared_ptr<void> memory_;
};

/// The draws with which fill_random() replaces a factor's dependent columns.
void add_tries(std::vector<gpu::Chance>& tries, std::int64_t rank, std::uint64_t seed) {
  for (std::int64_t r = 0; r < rank; ++r)
    for (std::int64_t attempt = 0; attempt < gpu::kTries; ++attempt) {
      const Draws draws(CodingContext{.seed = seed_of_try(seed, r, attempt)});
      tries.push_back({draws.start(), draws.key()});
    }
}

void add_tiles(std::vector<gpu::Tile>& tiles, std::int64_t matrix, std::int64_t length, std::int64_t tile) {
  for (std::int64_t begin = 0; begin < length; begin += tile) tiles.push_back({matrix, begin});
}

class LowRankTablesOnGpu {
 public:
  explicit LowRankTablesOnGpu(const FactorLayout& layout) : LowRankTablesOnGpu(Lists(layout)) {}

  gpu::LowRankTables tables() const {
    return {.matrices = matrices_.data(),
            .rows = rows_.data(),
            .columns = columns_.data(),
            .values = values_.data(),
            .runs = runs_.data(),
            .tries = tries_.data(),
            .matrix_count = matrices_.size(),
            .row_tiles = rows_.size(),
            .column_tiles = columns_.size(),
            .value_tiles = values_.size(),
            .run_count = runs_.size()};
  }

 private:
  struct Lists {
    explicit Lists(const FactorLayout& layout) {
      for (const auto& [offset, shape, p, q, seed] : layout.matrices) {
        const std::int64_t index = std::ssize(matrices), p_tries = std::ssize(tries), q_tries = p_tries + shape.rank * gpu::kTries;
        matrices.push_back({offset, shape.rows, shape.columns, shape.rank, p, q, p_tries, q_tries});
        add_tries(tries, shape.rank, layout.matrices[static_cast<std::size_t>(index)].seed_of_p());
        add_tries(tries, shape.rank, layout.matrices[static_cast<std::size_t>(index)].seed_of_q());
        add_tiles(rows, index, shape.rows, gpu::kTileRows);
        add_tiles(columns, index, shape.columns, gpu::kTileColumns);
        add_tiles(values, index, shape.rows * shape.columns, gpu::kTileValues);
      }
      std::int64_t sent = 0;
      for (const auto& run : layout.dense) {
        add_runs(run, sent);
        sent += run.count;
      }
      for (const auto& gap : layout.gaps) add_runs(gap, -1);
    }

    void add_runs(const FactorLayout::Run& run, std::int64_t sent) {
      for (std::int64_t begin = 0; begin < run.count; begin += gpu::kTileValues)
        runs.push_back({run.offset + begin, std::min(gpu::kTileValues, run.count - begin), sent < 0 ? sent : sent + begin});
    }

    std::vector<gpu::MatrixOnGpu> matrices;
    std::vector<gpu::Tile> rows, columns, values;
    std::vector<gpu::RunOnGpu> runs;
    std::vector<gpu::Chance> tries;
  };

  explicit LowRankTablesOnGpu(const Lists& lists)
      : matrices_(lists.matrices),
        rows_(lists.rows),
        columns_(lists.columns),
        values_(lists.values),
        runs_(lists.runs),
        tries_(lists.tries) {}

  ArrayOnGpu<gpu::MatrixOnGpu> matrices_;
  ArrayOnGpu<gpu::Tile> rows_, columns_, values_;
  ArrayOnGpu<gpu::RunOnGpu> runs_;
  ArrayOnGpu<gpu::Chance> tries_;
};

/// powersgd.cpp with kernels.
class PowerSgdOnGpu final : public Linear {
 public:
  PowerSgdOnGpu(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed)
      : layout_(config, layout, seed),
        tables_(layout_),
        first_round_(std::vector<float>(static_cast<std::size_t>(layout_.dense_count + layout_.p_count))),
        q_(layout_.first_q()),
        own_q_(std::vector<float>(static_cast<std::size_t>(layout_.q_count))) {}

  int rounds() const override { return 2; }

  Round round(int index, const float* values, void* stream) override {
    const gpu::LowRankTables tables = tables_.tables();
    if (index == 0) {
      gpu::gather_runs(tables, values, first_round_.data(), stream);
      gpu::orthonormalise(tables, gpu::Factor::q, q_.data(), stream);
      gpu::multiply(tables, values, q_.data(), p(), stream);
      return {first_round_.data(), first_round_.size(), Round::Type::f32};
    }
    gpu::orthonormalise(tables, gpu::Factor::p, p(), stream);
    gpu::multiply_transposed(tables, values, p(), q_.data(), stream);
    gpu::copy(own_q_.data(), q_.data(), q_.bytes(), stream);
    return {q_.data(), q_.size(), Round::Type::f32};
  }

  void finish(float* values, float* mean, void* stream) override {
    const gpu::LowRankTables tables = tables_.tables();
    gpu::scatter_runs(tables, first_round_.data(), values, mean, stream);
    gpu::reconstruct(tables, p(), q_.data(), own_q_.data(), mean, values, stream);
  }

  std::vector<float> state(void* stream) const override {
    std::vector<float> state(static_cast<std::size_t>(q_.size()));
    gpu::copy(state.data(), q_.data(), q_.bytes(), stream);
    gpu::wait(stream);
    return state;
  }
  void set_state(std::span<const float> state, void* stream) override {
    gpu::copy(q_.data(), state.data(), q_.bytes(), stream);
    gpu::wait(stream);
  }

 private:
  float* p() const { return first_round_.data() + layout_.dense_count; }

  FactorLayout layout_;
  LowRankTablesOnGpu tables_;
  ArrayOnGpu<float> first_round_;  // dense values, then P of every matrix
  ArrayOnGpu<float> q_, own_q_;
};

}  // namespace

std::unique_ptr<Linear> powersgd_on_gpu(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed) {
  return std::make_unique<PowerSgdOnGpu>(config, layout, seed);
}

}  // namespace paceline::compress

#endif
