// Ranks that exchange something in the middle of recorded work. Built with CUDA only.
#include <gtest/gtest.h>

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>

#include "../comm/ranks.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::tensor {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

Company company_of(comm::Communicator& comm) {
  return {.rank = comm.rank(), .size = comm.size(), .tell = [&comm](std::int64_t word) {
            std::vector<std::int64_t> words(static_cast<std::size_t>(comm.size()));
            words[static_cast<std::size_t>(comm.rank())] = word;
            comm.run(comm::all_gather(words));
            return words;
          }};
}

/// x ← Σ over ranks (x / 4 + rank), again and again.
class Rank {
 public:
  explicit Rank(comm::Communicator& comm)
      : comm_(comm), stream_(kGpu), x_(at::full({100'000}, 1.0, at::TensorOptions(kGpu))), recorded_(kGpu, true, company_of(comm)) {}

  void run() {
    recorded_.run([&] {
      ++calls_;
      const at::Tensor moved = x_.mul(0.25).add_(comm_.rank());  // memory that comes and goes in the run
      comm_.run(comm::allreduce(moved));
      x_.copy_(moved);
    });
  }
  void forget() { recorded_.forget(); }
  int calls() const { return calls_; }
  /// The value that all elements have; NaN if they differ.
  double value() const { return x_.min().equal(x_.max()) ? x_[0].item<double>() : std::nan(""); }

 private:
  comm::Communicator& comm_;
  OwnStream stream_;
  at::Tensor x_;
  Recorded recorded_;
  int calls_ = 0;
};

double after(int runs, int ranks) {
  double x = 1;
  for (int run = 0; run < runs; ++run) x = x * ranks / 4 + ranks * (ranks - 1) / 2;
  return x;
}

TEST(RecordedOnGpu, RanksThatMeetRecordOneGraph) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU here";
  for (const int size : {2, 4}) {
    std::vector<int> calls(static_cast<std::size_t>(size));
    const auto problems = comm::play(size, {}, [&](comm::Communicator& comm) {
      Rank rank(comm);
      for (int i = 0; i < 12; ++i) rank.run();
      calls[static_cast<std::size_t>(comm.rank())] = rank.calls();
      EXPECT_DOUBLE_EQ(rank.value(), after(12, size)) << size << " ranks";
    });
    for (const std::string& problem : problems) EXPECT_EQ(problem, "");
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(size), 4)) << "three plain runs, and the one that is recorded";
  }
}

TEST(RecordedOnGpu, WhatOneForgetsAllForget) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU here";
  std::vector<int> calls(2);
  const auto problems = comm::play(2, {}, [&](comm::Communicator& comm) {
    Rank rank(comm);
    for (int i = 0; i < 16; ++i) {
      if (comm.rank() == 1 && (i == 1 || i == 8)) rank.forget();  // in the plain runs, and when it is recorded
      rank.run();
    }
    calls[static_cast<std::size_t>(comm.rank())] = rank.calls();
    EXPECT_DOUBLE_EQ(rank.value(), after(16, 2));
  });
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
  EXPECT_EQ(calls, (std::vector<int>{9, 9}));  // one, then twice three and one
}

TEST(RecordedOnGpu, ARankThatLeavesEndsTheOthers) {
  if (!cuda_available()) GTEST_SKIP() << "no GPU here";
  const auto problems = comm::play(2, {}, [&](comm::Communicator& comm) {
    Rank rank(comm);
    for (int i = 0; i < 8; ++i) {
      if (comm.rank() == 1 && i == 6) throw std::runtime_error("left");
      rank.run();
    }
  });
  EXPECT_EQ(problems[1], "left");
  EXPECT_NE(problems[0].find("rank 1"), std::string::npos) << problems[0];
}

}  // namespace
}  // namespace paceline::tensor

#endif
