// Collectives on memory of a GPU: ranks that are threads and share one, and NCCL with one rank. Built with CUDA only.
#include <gtest/gtest.h>

#if PACELINE_WITH_CUDA

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <future>
#include <optional>

#include "paceline/comm/gpu.h"
#include "ranks.h"

namespace paceline::comm {
namespace {

/// A buffer on the GPU with values of the host.
class OnGpu {
 public:
  explicit OnGpu(const std::vector<float>& values) : count_(static_cast<std::int64_t>(values.size())) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data_, values.size() * 4), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(data_, values.data(), values.size() * 4, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  }
  ~OnGpu() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Buffer buffer() const { return {data_, count_, DType::f32, static_cast<void*>(stream_)}; }
  std::vector<float> values() const {
    std::vector<float> host(static_cast<std::size_t>(count_));
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, host.size() * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }

 private:
  std::int64_t count_;
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

std::vector<float> ramp(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<std::size_t>(rank) * 31 + i * 7) % 101) * 0.37f;
  return values;
}

TEST(Gpu, WorkersThatShareItGetTheSameBitsAsOnTheCpu) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  for (const int size : {1, 2, 3, 5})
    for (const std::int64_t count : {1, 1000, 300001}) {
      std::vector<std::vector<float>> on_gpu(static_cast<std::size_t>(size)), on_cpu(static_cast<std::size_t>(size));
      const auto problems = play(size, {}, [&](Communicator& comm) {
        const std::vector<float> own = ramp(comm.rank(), count);
        const OnGpu memory(own);
        std::vector<float> host = own;
        const Options mean{.op = ReduceOp::mean, .root = 0, .algorithm = {}, .deadline = {}};
        comm.run(allreduce(memory.buffer(), mean));
        comm.run(allreduce(host, mean));
        on_gpu[static_cast<std::size_t>(comm.rank())] = memory.values();
        on_cpu[static_cast<std::size_t>(comm.rank())] = host;
      });
      for (const auto& problem : problems) EXPECT_EQ(problem, "");
      EXPECT_EQ(on_gpu, on_cpu) << size << " ranks, " << count << " elements";
    }
}

TEST(Gpu, ANanIsTheLeastAndTheGreatest) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const auto problems = play(3, {}, [&](Communicator& comm) {
      std::vector<float> own = {static_cast<float>(comm.rank()), comm.rank() == 1 ? NAN : 1, comm.rank() == 2 ? -0.0f : 0.0f};
      const OnGpu memory(own);
      const Options options{.op = op, .root = 0, .algorithm = {}, .deadline = {}};
      comm.run(allreduce(memory.buffer(), options));
      comm.run(allreduce(own, options));
      EXPECT_EQ(memory.values()[0], own[0]);
      EXPECT_TRUE(std::isnan(memory.values()[1]));
      EXPECT_FALSE(std::signbit(memory.values()[2]));
    });
    for (const auto& problem : problems) EXPECT_EQ(problem, "");
  }
}

TEST(Gpu, OtherCollectivesWorkThereToo) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  const auto problems = play(3, {}, [](Communicator& comm) {
    const int rank = comm.rank();
    const OnGpu sent(ramp(2, 999)), scattered(ramp(rank, 999)), gathered(ramp(rank, 999));
    const OnGpu told(ramp(rank, 999));
    comm.run(broadcast(told.buffer(), {.op = ReduceOp::sum, .root = 2, .algorithm = {}, .deadline = {}}));
    EXPECT_EQ(told.values(), sent.values());
    comm.run(reduce_scatter(scattered.buffer()));
    comm.run(all_gather(scattered.buffer()));
    const OnGpu sum(ramp(rank, 999));
    comm.start(allreduce(sum.buffer())).wait();
    EXPECT_EQ(scattered.values(), sum.values());
  });
  for (const auto& problem : problems) EXPECT_EQ(problem, "");
}

/// Keeps a stream busy until it is let go, five seconds at most.
class Hold {
 public:
  explicit Hold(const Buffer& buffer) {
    const auto wait = [](void* held) { static_cast<Hold*>(held)->free_.get_future().wait_for(std::chrono::seconds(5)); };
    EXPECT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(buffer.stream), wait, this), cudaSuccess);
  }
  void let_go() { free_.set_value(); }

 private:
  std::promise<void> free_;
};

// What fills rank 0's buffer is not done when the collective is called: both hosts go on, and both streams wait.
TEST(Gpu, StreamsWaitForCollectivesAndHostsDoNot) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  for (const bool started : {false, true}) {
    std::barrier called(2);
    const auto problems = play(2, {}, [&](Communicator& comm) {
      const OnGpu memory(ramp(comm.rank(), 5000)), filled(ramp(7, 5000));
      filled.values();  // there
      std::optional<Hold> hold;
      if (comm.rank() == 0) hold.emplace(memory.buffer());
      const auto stream = static_cast<cudaStream_t>(memory.buffer().stream);
      EXPECT_EQ(cudaMemcpyAsync(memory.buffer().data, filled.buffer().data, 5000 * 4, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
      if (started) comm.start(allreduce(memory.buffer())).wait();
      else comm.run(allreduce(memory.buffer()));
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "rank " << comm.rank();
      called.arrive_and_wait();
      if (hold) hold->let_go();
      std::vector<float> twice = ramp(7, 5000);
      for (float& value : twice) value *= 2;
      EXPECT_EQ(memory.values(), twice);
    });
    for (const auto& problem : problems) EXPECT_EQ(problem, "");
  }
}

/// Ranks that are threads, each as a process would be: they reach one another's windows alone.
std::vector<std::string> play_shm(int size, const std::function<void(Communicator&)>& rank) {
  const auto store = memory_store();
  std::vector<std::string> problems(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i)
    threads.emplace_back([&, i] {
      try {
        World world;
        world.rank = world.local_rank = i, world.size = world.local_size = size;
        rank(*engine_of("shm").connect({}, world, store));
      } catch (const std::exception& problem) {
        problems[static_cast<std::size_t>(i)] = problem.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return problems;
}

TEST(Gpu, ABufferGoesThroughSeveralWindows) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  const std::int64_t count = 40'000'000;  // 160 MB
  std::vector<std::vector<float>> threads(3), processes(3);
  const auto into = [&](std::vector<std::vector<float>>& results) {
    return [&](Communicator& comm) {
      const OnGpu memory(ramp(comm.rank(), count));
      comm.run(allreduce(memory.buffer()));
      results[static_cast<std::size_t>(comm.rank())] = memory.values();
    };
  };
  for (const auto& problem : play(3, {}, into(threads))) EXPECT_EQ(problem, "");
  for (const auto& problem : play_shm(3, into(processes))) EXPECT_EQ(problem, "");
  EXPECT_TRUE(processes == threads);
}

// Both ways at once, several under way, small and large: as the stages of a pipeline send.
TEST(Gpu, MessagesGoFromMemoryToMemory) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  const auto problems = play(3, {}, [](Communicator& comm) {
    const int to = (comm.rank() + 1) % 3, from = (comm.rank() + 2) % 3;
    for (const std::int64_t count : {0, 1, 1000, 3000001}) {
      const OnGpu own(ramp(comm.rank(), count)), other(ramp(comm.rank() + 3, count));
      const OnGpu first(std::vector<float>(static_cast<std::size_t>(count))), second(std::vector<float>(static_cast<std::size_t>(count)));
      const Work sent[] = {comm.start(send(own.buffer(), to, 7)), comm.start(send(other.buffer(), to, 7))};
      comm.run(receive(first.buffer(), from, 7));
      comm.start(receive(second.buffer(), from, 7)).wait();
      for (const Work& work : sent) work.wait();
      EXPECT_EQ(first.values(), ramp(from, count));
      EXPECT_EQ(second.values(), ramp(from + 3, count));
    }
  });
  for (const auto& problem : problems) EXPECT_EQ(problem, "");
}

TEST(Gpu, AMessageOfAnotherSizeIsRefused) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  const auto problems = play(2, {}, [](Communicator& comm) {
    const OnGpu memory(ramp(0, comm.rank() == 0 ? 10 : 11));
    if (comm.rank() == 0) comm.run(send(memory.buffer(), 1, 0));
    else comm.run(receive(memory.buffer(), 0, 0));
  });
  EXPECT_NE(problems[1].find("rank 0 sent 40 bytes"), std::string::npos) << problems[1];
}

// Rank 0 comes, gives up and is gone with its marks before rank 1 comes.
TEST(Gpu, ARankThatGaveUpAfterItCameIsNamed) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  auto group = local_group(2, {});
  const OnGpu first(ramp(0, 5000)), second(ramp(1, 5000));
  const Work work = group[0]->start(allreduce(first.buffer()));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < until) work.done();  // its helper comes to the meeting
  work.abandon();
  group[0].reset();
  try {
    group[1]->run(allreduce(second.buffer()));
    FAIL() << "nobody noticed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 0) << error.what();
  }
}

// Rank 1 stays, with rank 0's window open, and goes on to use it.
TEST(Gpu, AWindowStaysWhileAnotherRankHasItOpen) {
  if (!gpu::available()) GTEST_SKIP() << "no GPU here";
  std::barrier met(2), left(2);
  const auto problems = play_shm(2, [&](Communicator& comm) {
    auto pair = comm.split(0, comm.rank());
    const OnGpu memory(ramp(comm.rank(), 1000));
    pair->run(allreduce(memory.buffer()));
    met.arrive_and_wait();
    if (comm.rank() == 0) pair.reset();
    left.arrive_and_wait();
    if (comm.rank() == 1) pair.reset();
    pair = comm.split(0, comm.rank());
    pair->run(allreduce(memory.buffer()));
    EXPECT_EQ(memory.values()[0], 2 * (ramp(0, 1)[0] + ramp(1, 1)[0]));
  });
  for (const auto& problem : problems) EXPECT_EQ(problem, "");
}

bool has_nccl() {
  return gpu::available() && std::ranges::any_of(engines(), [](const auto& row) { return row.key == "nccl"; });
}

TEST(Nccl, CarriesOneRank) {
  if (!has_nccl()) GTEST_SKIP() << "no GPU here, or no NCCL in this build";
  CommConfig config;
  config.engine = "nccl";
  const auto comm = connect(config, World{});
  EXPECT_EQ(comm->engine(), "nccl");
  const std::vector<float> own = ramp(0, 5000);
  const OnGpu memory(own), output(std::vector<float>(5000));
  for (const auto& operation :
       {allreduce(memory.buffer(), {.op = ReduceOp::mean, .root = 0, .algorithm = {}, .deadline = {}}), broadcast(memory.buffer()),
        reduce(memory.buffer()), reduce_scatter(memory.buffer()), all_gather(memory.buffer()), barrier()})
    comm->run(operation);
  EXPECT_EQ(memory.values(), own);
  comm->start(all_to_all(memory.buffer(), output.buffer())).wait();
  EXPECT_THROW(comm->start(all_to_all(memory.buffer(), memory.buffer())), ConfigError);
  EXPECT_EQ(output.values(), own);
  std::vector<std::int64_t> host = {1, 2, 3}, received(3);  // goes by way of the GPU
  comm->run(allreduce(host));
  comm->run(all_gather(host));
  const Work first = comm->start(broadcast(host)), second = comm->start(all_to_all(host, received));
  second.wait();
  first.wait();
  EXPECT_EQ(host, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(received, host);
  EXPECT_THROW(comm->run(allreduce(memory.buffer(), {.op = ReduceOp::sum, .root = 0, .algorithm = "ring", .deadline = {}})), ConfigError);
  EXPECT_THROW(comm->run(send(memory.buffer(), 0, 1)), ConfigError);  // it has no tags
  EXPECT_EQ(comm->split(0, 0)->size(), 1);
  for (const auto change : {+[](CommConfig& c) { c.check = true; }, +[](CommConfig& c) { c.algorithm = "ring"; },
                            +[](CommConfig& c) { c.per_host = 2; }, +[](CommConfig& c) { c.link_jitter_us = 5; }}) {
    CommConfig refused = config;
    change(refused);
    EXPECT_THROW(connect(refused, World{}), ConfigError);
  }
}

// Rank 1 was there, and is gone before NCCL meets it.
TEST(Nccl, WaitsForARankNoLongerThanTheDeadline) {
  if (!has_nccl()) GTEST_SKIP() << "no GPU here, or no NCCL in this build";
  CommConfig config;
  config.deadline_s = 0.5;
  World world;
  world.size = 2;
  const auto store = memory_store();
  store->set("exchange/nccl/0/1", "here");
  try {
    engine_of("nccl").connect(config, world, store);
    FAIL() << "nobody noticed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_STREQ(error.what(),
                 "NCCL's connect took longer than 0.5 s although all ranks had called it: rank 1 was lost since, or "
                 "comm.deadline_s is too short for it");
  }
}

}  // namespace
}  // namespace paceline::comm

#endif
