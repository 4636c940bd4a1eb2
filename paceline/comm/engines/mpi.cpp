// mpi: ranks that mpirun or srun started. Open MPI or MPICH, called directly and without blocking, carries what crosses hosts.
#if PACELINE_WITH_MPI
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>

#include <fmt/format.h>

#include "paceline/comm/engines/pieces.h"
#include "paceline/comm/engines/two_level.h"

namespace paceline::comm {
namespace {

/// MPI as this process has it: started once, ended with the process, called by one thread at a time, whichever communicator it works for.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }
  ~Library() {
    if (ours_ && !given_up_) MPI_Finalize();
  }

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// MPI_Finalize waits for all ranks: whoever knows that one of them will not come leaves without it, and mpirun ends the others.
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }

 private:
  Library() {
    int initialized = 0, level = 0;
    MPI_Initialized(&initialized);
    if (initialized) {
      MPI_Query_thread(&level);
    } else {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
      ours_ = true;
    }
    if (level < MPI_THREAD_SERIALIZED)
      throw ConfigError(
          "comm.engine=mpi: this MPI serves the main thread alone; initialise it with MPI_THREAD_SERIALIZED, or use another MPI");
  }

  std::mutex mutex_;
  bool ours_ = false, given_up_ = false;
};

std::string message_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

/// Of calls that concern all ranks.
void check(int error) {
  if (error != MPI_SUCCESS) throw Error("mpi: " + message_of(error));
}

/// An own communicator, so that nobody else's messages are mistaken for ours.
class Comm {
 public:
  /// Collective among the ranks of `from`. Who gives the same colour gets the same communicator.
  Comm(MPI_Comm from, int color, int key) {
    const auto lock = Library::get().lock();
    check(MPI_Comm_split(from, color, key, &comm_));
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    void* value = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &found);
    largest_tag_ = found ? *static_cast<int*>(value) : kLeastTags;
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() {
    if (std::uncaught_exceptions() > 0) Library::get().give_up();
    if (Library::get().given_up()) return;
    const auto lock = Library::get().lock();
    MPI_Comm_free(&comm_);
  }

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// The lower half of MPI's tags is for users. Of the collectives one is under way at a time, so theirs may come again.
  int tag_for(Tag tag) const {
    const int half = largest_tag_ / 2;
    if (tag >> 32) return half + static_cast<int>(tag % static_cast<Tag>(half));
    if (tag < static_cast<Tag>(half)) return static_cast<int>(tag);
    throw ConfigError(fmt::format("tag {} is larger than this MPI can carry; use tags up to {}", tag, half - 1));
  }

 private:
  static constexpr int kLeastTags = 32767;  // of any MPI
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0, largest_tag_ = 0;
};

class MpiRequest final : public Transport::Request {
 public:
  MpiRequest(int peer, bool receives) : peer_(peer), receives_(receives) {}
  ~MpiRequest() override {
    if (request_ == MPI_REQUEST_NULL) return;
    Library::get().give_up();
    const auto lock = Library::get().lock();
    if (receives_) MPI_Cancel(&request_);  // a send may be given back as it is
    MPI_Request_free(&request_);
  }

  MPI_Request* get() { return &request_; }
  void check(int error) const {
    if (error == MPI_SUCCESS) return;
    throw PeerError(peer_, receives_ ? "receive" : "send", 0, fmt::format("rank {} can not be reached: {}", peer_, message_of(error)));
  }
  bool test() override {
    const auto lock = Library::get().lock();
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE));
    return done != 0;
  }

 private:
  MPI_Request request_ = MPI_REQUEST_NULL;
  int peer_;
  bool receives_;
};

class MpiWire final : public Wire {
 public:
  explicit MpiWire(const Comm& comm) : comm_(comm) {}

  std::size_t window() const override { return 8; }
  std::unique_ptr<Transport::Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override {
    auto request = std::make_unique<MpiRequest>(peer, false);
    const auto lock = Library::get().lock();
    request->check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, comm_.tag_for(tag), comm_.get(), request->get()));
    return request;
  }
  std::unique_ptr<Transport::Request> receive(int peer, Tag tag, void* data, std::int64_t room) override {
    auto request = std::make_unique<MpiRequest>(peer, true);
    const auto lock = Library::get().lock();
    request->check(MPI_Irecv(data, static_cast<int>(room), MPI_BYTE, peer, comm_.tag_for(tag), comm_.get(), request->get()));
    return request;
  }

 private:
  const Comm& comm_;
};

class MpiNetwork final : public Network {
 public:
  explicit MpiNetwork(std::shared_ptr<Comm> comm) : comm_(std::move(comm)), wire_(*comm_), transport_(wire_, comm_->rank()) {}

  Transport& transport() override { return transport_; }
  Nanoseconds patience() const override { return std::chrono::microseconds(50); }  // MPI moves messages only while it is called
  std::string gone(int) override { return {}; }  // MPI does not tell; whoever started the ranks ends them all
  std::unique_ptr<Network> split(const std::vector<int>& members, Communicator& via, const shared::Group&) override {
    via.run(barrier());  // with a deadline, which the split itself does not have
    const auto place = std::find(members.begin(), members.end(), comm_->rank()) - members.begin();
    return std::make_unique<MpiNetwork>(std::make_shared<Comm>(comm_->get(), members.front(), static_cast<int>(place)));
  }

 private:
  std::shared_ptr<Comm> comm_;
  MpiWire wire_;
  PieceTransport transport_;
};

shared::Exchange exchange_over(const std::shared_ptr<Comm>& comm) {
  return [comm](const std::string& own) {
    const auto lock = Library::get().lock();
    const int length = static_cast<int>(own.size());
    std::vector<int> lengths(static_cast<std::size_t>(comm->size())), offsets(lengths.size());
    check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm->get()));
    std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
    std::string text(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
    check(MPI_Allgatherv(own.data(), length, MPI_CHAR, text.data(), lengths.data(), offsets.data(), MPI_CHAR, comm->get()));
    std::vector<std::string> all;
    all.reserve(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i)
      all.push_back(text.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
    return all;
  };
}

/// Ranks that another launcher counted, or another MPI's mpirun, are alone in the eyes of this MPI.
void check_agreement(const World& world) {
  const auto lock = Library::get().lock();
  int rank = 0, size = 0, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == world.rank && size == world.size) return;
  if (const int threads = world.size / size; threads > 1 && threads * size == world.size && world.rank / threads == rank)
    throw ConfigError(
        fmt::format("comm.engine=mpi carries one rank a process, but this world has {} ranks in {} processes; use "
                    "comm.engine={}, or start {} processes",
                    world.size, size, world.one_host() ? "shm" : "gloo", world.size));
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Get_library_version(version, &length);
  const std::string name(version, static_cast<std::size_t>(length));
  throw ConfigError(fmt::format(
      "comm.engine=mpi: rank {} of {} (says {}) is rank {} of {} for MPI; start it with the mpirun of {}, or use another engine",
      world.rank, world.size, world.source, rank, size, name.substr(0, name.find_first_of(",\n"))));
}

}  // namespace

std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>&) {
  check_agreement(world);
  const auto comm = std::make_shared<Comm>(MPI_COMM_WORLD, 0, world.rank);
  return two_level("mpi", config, world, exchange_over(comm),
                   [&](const Places&, const shared::Group&) { return std::make_unique<MpiNetwork>(comm); });
}

}  // namespace paceline::comm
#endif
