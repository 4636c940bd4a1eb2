// nccl: GPU memory, one GPU per rank. NCCL has algorithms of its own and its own order of additions, which is fixed for a given machine and
// number of ranks. Operations are put on a stream that belongs to the communicator, and are waited for with a deadline. Host memory travels
// by way of the GPU; that is only a few numbers besides the gradients, such as sums of losses.
#if PACELINE_WITH_NCCL

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "paceline/comm/engines/all.h"
#include "paceline/comm/engines/common.h"
#include "paceline/comm/engines/nccl_calls.h"
#include "paceline/comm/judge.h"
#include "paceline/comm/split.h"
#include "paceline/comm/validate.h"

namespace paceline::comm {
namespace {

using namespace nccl;
using Kind = Operation::Kind;

/// The rank that is missing; −1: NCCL does not say which.
int other_of(int rank, int size) { return size == 2 ? 1 - rank : -1; }

std::string did_not_come(int suspect, Nanoseconds deadline) {
  return fmt::format("{} did not come within {:.3g} s", suspect < 0 ? "a rank" : fmt::format("rank {}", suspect), seconds(deadline));
}

/// The result of `make`, which may wait for other ranks without end. So it runs in a thread that is left behind if they never arrive;
/// everything that the thread uses must be its own. (NCCL's non-blocking communicators do time out, but until 2.28 they start a thread for
/// each collective.)
ncclComm_t made_in_time(Nanoseconds deadline, int suspect, const std::string& what, std::function<ncclResult_t(ncclComm_t*)> make) {
  struct Made {
    ncclResult_t result = ncclSuccess;
    ncclComm_t communicator = nullptr;
  };
  int device = 0;
  require(cudaGetDevice(&device));
  std::packaged_task<Made()> task([device, make = std::move(make)] {
    const OnDevice on(device);
    Made made;
    made.result = make(&made.communicator);
    return made;
  });
  std::future<Made> future = task.get_future();
  std::thread thread(std::move(task));
  if (future.wait_for(deadline) != std::future_status::ready) {
    thread.detach();
    throw PeerError(suspect, what, 0,
                    fmt::format("NCCL's {} took longer than {:.3g} s although all ranks had called it: {} was lost since, or "
                                "comm.deadline_s is too short for it",
                                what, seconds(deadline), suspect < 0 ? "one" : fmt::format("rank {}", suspect)));
  }
  thread.join();
  const Made made = future.get();
  require(made.result);
  return made.communicator;
}

/// Host memory on its way through the GPU. It is copied on a separate stream: a copy waits for the earlier work of its stream, and the
/// channel's stream may be waiting for a rank that never arrives.
class Staged {
 public:
  Staged(const Buffer& host, cudaStream_t copies) : host_(host), copies_(copies) {
    void* memory = nullptr;
    require(cudaMallocAsync(&memory, std::max<std::size_t>(bytes(), 1), copies));
    memory_ = Memory(memory, [copies](void* own) { cudaFreeAsync(own, copies); });
    copy(memory, host.data, cudaMemcpyHostToDevice);
  }

  Buffer on_gpu() const { return {memory_.get(), host_.count, host_.dtype, nullptr}; }
  void bring_back() const { copy(host_.data, memory_.get(), cudaMemcpyDeviceToHost); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(host_.bytes()); }
  void copy(void* to, const void* from, cudaMemcpyKind way) const {
    require(cudaMemcpyAsync(to, from, bytes(), way, copies_));
    require(cudaStreamSynchronize(copies_));
  }

  Buffer host_;
  cudaStream_t copies_;
  Memory memory_;
};

/// An NCCL communicator with its streams, shared by all its splits and works.
struct Channel {
  explicit Channel(ncclComm_t made) : communicator(made) {
    require(cudaGetDevice(&device));
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    require(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  }
  ~Channel() {
    broken ? ncclCommAbort(communicator) : ncclCommDestroy(communicator);
    given_up.clear();
    cudaStreamDestroy(stream);
    cudaStreamDestroy(copies);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void give_up(std::vector<Staged>& staged) {
    const std::lock_guard lock(mutex);
    std::ranges::move(staged, std::back_inserter(given_up));
  }

  ncclComm_t communicator;
  int device = 0;
  cudaStream_t stream = nullptr, copies = nullptr;
  bool broken = false;
  std::mutex mutex;
  std::vector<Staged> given_up;  // NCCL may still write to these
};

class StreamWork final : public Work::State {
 public:
  /// `suspect`: the rank to name if it is not done in time; −1: NCCL does not say which.
  StreamWork(std::shared_ptr<Channel> channel, std::shared_ptr<const Judge> judge, const Call& call, std::vector<Staged> staged,
             int suspect)
      : channel_(std::move(channel)),
        judge_(std::move(judge)),
        call_(call),
        staged_(std::move(staged)),
        suspect_(suspect),
        began_(SteadyClock().now()) {
    require(cudaEventRecord(done_.get(), channel_->stream));
  }
  ~StreamWork() override {
    if (!staged_.empty() && !done()) channel_->give_up(staged_);
  }
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

  bool done() override { return cudaEventQuery(done_.get()) != cudaErrorNotReady; }
  void wait() override {
    try {
      for (; !done(); std::this_thread::yield()) check();
    } catch (...) {
      channel_->broken = true;
      judge_->tell_launcher(std::current_exception());
      throw;
    }
    require(cudaEventQuery(done_.get()));
    if (!staged_.empty()) {
      if (call_.operation.kind != Kind::send) staged_.front().bring_back();
      return;
    }
    // What the caller puts on its stream from now on runs afterwards.
    if (void* const stream = call_.operation.buffer.stream) require(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done_.get()));
  }
  void abandon() override {
    if (!done()) channel_->broken = true;  // it ends with the channel, which is aborted
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw PeerError(judge_->name(suspect_), std::string(name_of(call_.operation.kind)), call_.sequence,
                    fmt::format("{} in {} (sequence {})", why, describe(call_.operation), call_.sequence));
  }
  /// Throws if it can never be done.
  void check() const {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(channel_->communicator, &state);
    if (state != ncclSuccess && state != ncclInProgress) fail(ncclGetErrorString(state));
    if (SteadyClock().now() - began_ > call_.operation.deadline) fail(did_not_come(judge_->name(suspect_), call_.operation.deadline));
    judge_->check_loss(call_, suspect_);
  }

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<const Judge> judge_;
  Call call_;
  std::vector<Staged> staged_;  // for its buffer and its input
  int suspect_;
  Nanoseconds began_;
  Event done_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Channel> channel, Judge judge, int rank, int size, int per_host, const CommConfig& config)
      : channel_(std::move(channel)),
        judge_(std::make_shared<const Judge>(std::move(judge))),
        rank_(rank),
        size_(size),
        per_host_(per_host),
        config_(config) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Topology topology() const override { return {.per_host = per_host_, .hosts = (size_ + per_host_ - 1) / per_host_}; }
  std::string engine() const override { return "nccl"; }
  int name_in_run(int rank) const override { return judge_->name(rank); }

  Work start(const Operation& operation) override {
    Operation op = operation;
    if (!op.is_collective() && op.tag != 0)
      throw ConfigError(fmt::format("{}: the nccl engine matches messages by their order, not by tags; use tag 0", describe(op)));
    if (!op.algorithm.empty() && op.algorithm != "auto")
      throw ConfigError(fmt::format("{}: the nccl engine has its own algorithms, not {}; use auto", describe(op), op.algorithm));
    validate(op, rank_, size_);
    if (op.deadline.count() == 0) op.deadline = config_.deadline();
    const OnDevice on(channel_->device);
    std::vector<Staged> staged;
    if (op.buffer.data && !op.buffer.on_gpu) {
      for (Buffer* part : {&op.buffer, &op.input})
        if (part->data) *part = staged.emplace_back(*part, channel_->copies).on_gpu();
    } else {  // the work that fills the buffer is already on the caller's stream
      const Event filled;
      require(cudaEventRecord(filled.get(), static_cast<cudaStream_t>(op.buffer.stream)));
      require(cudaStreamWaitEvent(channel_->stream, filled.get()));
    }
    enqueue(op);
    const Call call{.operation = op, .sequence = ++sequence_, .rank = rank_, .ranks = size_};
    return Work(std::make_shared<StreamWork>(channel_, judge_, call, std::move(staged), suspect(op)));
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const OnDevice on(channel_->device);
    const std::vector<int> members =
        members_of(*this, color, key);  // usually detects missing ranks before NCCL is involved, so that nothing is left behind
    channel_->broken = true;            // until the split has succeeded
    ncclComm_t made =
        made_in_time(config_.deadline(), other_of(rank_, size_), "split", [channel = channel_, color, key](ncclComm_t* communicator) {
          return ncclCommSplit(channel->communicator, color, key, communicator, nullptr);
        });
    channel_->broken = false;
    int rank = 0, size = 1;
    require(ncclCommUserRank(made, &rank));
    require(ncclCommCount(made, &size));
    return std::make_unique<NcclCommunicator>(std::make_shared<Channel>(made), judge_->of_group(members, rank), rank, size, 1, config_);
  }

  Memory allocate(std::int64_t bytes) override {
    const OnDevice on(channel_->device);
    void* memory = nullptr;
    require(cudaMalloc(&memory, static_cast<std::size_t>(bytes > 0 ? bytes : 1)));
    require(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)));
    return {memory, [](void* own) { cudaFree(own); }};
  }

 private:
  int suspect(const Operation& op) const { return op.is_collective() ? other_of(rank_, size_) : op.peer; }

  void enqueue(const Operation& op) {
    const auto type = type_of(op.buffer.dtype);
    const auto how = op_of(op.op);
    const auto count = static_cast<std::size_t>(op.buffer.count);
    const auto part = [&](int index) { return op.buffer.slice(schedule::part(op.buffer.count, size_, index)); };
    auto* const comm = channel_->communicator;
    auto* const stream = channel_->stream;
    void* const data = op.buffer.data;
    switch (op.kind) {
      case Kind::allreduce: return require(ncclAllReduce(data, data, count, type, how, comm, stream));
      case Kind::broadcast: return require(ncclBroadcast(data, data, count, type, op.root, comm, stream));
      case Kind::reduce: return require(ncclReduce(data, data, count, type, how, op.root, comm, stream));
      case Kind::send: return require(ncclSend(data, count, type, op.peer, comm, stream));
      case Kind::receive: return require(ncclRecv(data, count, type, op.peer, comm, stream));
      case Kind::reduce_scatter:
      case Kind::all_gather: {  // parts may differ in size: one operation per part, all grouped
        Group group;
        for (int index = 0; index < size_; ++index) {
          const Buffer piece = part(index);
          const auto elements = static_cast<std::size_t>(piece.count);
          if (elements == 0) continue;
          require(op.kind == Kind::all_gather ? ncclBroadcast(piece.data, piece.data, elements, type, index, comm, stream)
                                              : ncclReduce(piece.data, piece.data, elements, type, how, index, comm, stream));
        }
        return group.end();
      }
      case Kind::all_to_all: {
        const std::size_t each = count / static_cast<std::size_t>(size_), bytes = each * static_cast<std::size_t>(size_of(op.buffer.dtype));
        Group group;
        for (int peer = 0; peer < size_; ++peer) {
          require(ncclSend(static_cast<const std::byte*>(op.input.data) + static_cast<std::size_t>(peer) * bytes, each, type, peer, comm,
                           stream));
          require(ncclRecv(static_cast<std::byte*>(data) + static_cast<std::size_t>(peer) * bytes, each, type, peer, comm, stream));
        }
        return group.end();
      }
      case Kind::barrier:
        if (!token_) token_ = allocate(sizeof(float));
        return require(ncclAllReduce(token_.get(), token_.get(), 1, ncclFloat32, ncclSum, comm, stream));
    }
  }

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<const Judge> judge_;
  int rank_, size_, per_host_;
  CommConfig config_;
  Memory token_;  // what a barrier reduces
  std::int64_t sequence_ = 0;
};

void refuse_what_nccl_has_not(const CommConfig& config) {
  const auto refuse = [](const std::string& key, const char* why) {
    throw ConfigError(fmt::format("{} does not work with comm.engine=nccl, {}; leave it out", key, why));
  };
  if (config.check) refuse("comm.check=true", "because ranks compare their calls by an algorithm that it does not have");
  if (config.algorithm != "auto") refuse("comm.algorithm=" + config.algorithm, "which has its own algorithms");
  if (config.per_host != 0) refuse("comm.per_host", "which detects by itself which ranks share a host");
  if (config.shapes()) refuse("comm.link_*", "whose messages cannot be delayed");
}

}  // namespace

std::unique_ptr<Communicator> connect_nccl(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store) {
  refuse_what_nccl_has_not(config);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < world.local_size)
    throw ConfigError(fmt::format(
        "comm.engine=nccl needs one GPU per rank, but this host has {} for {} ranks; {}", devices, world.local_size,
        world.one_host() ? "processes share a GPU with comm.engine=shm, threads with paceline train --workers N"
                         : "start at most as many ranks per host as it has GPUs, because ranks of several hosts cannot share one"));
  require(cudaSetDevice(world.local_rank));
  ncclUniqueId id;
  if (world.rank == 0) require(ncclGetUniqueId(&id));
  if (store) {  // a world of one has no other ranks
    // Every rank publishes something, although only rank 0 has anything to say: this way a missing rank is detected here, by name.
    const std::string own = world.rank == 0 ? std::string(id.internal, sizeof(id.internal)) : "here";
    const std::string told = exchange_through(store, world, "nccl", config.connect_deadline(world))(own).front();
    ensure(told.size() == sizeof(id.internal), "rank 0 tells NCCL's address");
    std::memcpy(id.internal, told.data(), sizeof(id.internal));
  }
  ncclComm_t communicator =
      made_in_time(config.deadline(), other_of(world.rank, world.size), "connect",
                   [id, size = world.size, rank = world.rank](ncclComm_t* made) { return ncclCommInitRank(made, size, id, rank); });
  return std::make_unique<NcclCommunicator>(std::make_shared<Channel>(communicator), Judge(store, world.rank, world.size), world.rank,
                                            world.size, world.local_size, config);
}

}  // namespace paceline::comm

#endif
