// mpi: ranks that mpirun or srun started. Open MPI or MPICH, called directly and without blocking, carries what crosses hosts.
#if PACELINE_WITH_MPI
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>

#include <fmt/format.h>

#include "paceline/base/entropy.h"
#include "paceline/base/log.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/engines/piece_transport.h"
#include "paceline/comm/engines/two_level.h"

namespace paceline::comm {
namespace {

/// This process's MPI: started once, finalized at exit, and called by one thread at a time, whichever communicator that serves.
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
  /// MPI_Finalize waits for all ranks. A rank that knows of one that will never arrive exits without it, and mpirun ends the others.
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
          "comm.engine=mpi: this MPI may only be called by the main thread; initialise it with MPI_THREAD_SERIALIZED, or use another MPI");
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

/// Checks the result of a call that concerns all ranks.
void check(int error) {
  if (error != MPI_SUCCESS) throw Error("mpi: " + message_of(error));
}

/// A communicator of our own, so that no other library's messages are mistaken for ours.
class Comm {
 public:
  /// Collective among the ranks of `from`. Ranks that give the same colour get the same communicator.
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

  /// The lower half of MPI's tags is for users. Only one collective is in flight at a time, so its tags may be reused.
  int tag_for(Tag tag) const {
    const int half = largest_tag_ / 2;
    if (tag >> 32) return half + static_cast<int>(tag % static_cast<Tag>(half));
    if (tag < static_cast<Tag>(half)) return static_cast<int>(tag);
    throw ConfigError(fmt::format("tag {} is larger than this MPI supports; use tags up to {}", tag, half - 1));
  }

 private:
  static constexpr int kLeastTags = 32767;  // guaranteed by every MPI
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
    if (receives_) MPI_Cancel(&request_);  // a send can simply be freed
    MPI_Request_free(&request_);
  }

  MPI_Request* get() { return &request_; }
  void check(int error) const {
    if (error == MPI_SUCCESS) return;
    throw PeerError(peer_, receives_ ? "receive" : "send", 0, fmt::format("cannot be reached: {}", message_of(error)));
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
  /// `seats`: by rank, its number in `memory` if it is on this machine, otherwise −1.
  MpiNetwork(std::shared_ptr<Comm> comm, std::shared_ptr<shared::HostMemory> memory, std::vector<int> seats)
      : comm_(std::move(comm)), memory_(std::move(memory)), seats_(std::move(seats)), wire_(*comm_), transport_(wire_, comm_->rank()) {}

  Transport& transport() override { return transport_; }
  Nanoseconds patience() const override { return std::chrono::microseconds(50); }  // MPI only makes progress while it is called
  /// MPI does not say; the launcher usually ends all ranks. A process of this machine that ended has failed, since MPI_Finalize waits for
  /// all ranks.
  std::string gone(int peer) override {
    const int seat = seats_[static_cast<std::size_t>(peer)];
    return seat < 0 ? "" : memory_->gone(seat);
  }
  std::unique_ptr<Network> split(const std::vector<int>& members, Communicator& via, const shared::Group&) override {
    via.run(barrier());  // has a deadline, unlike the split itself
    const auto place = std::find(members.begin(), members.end(), comm_->rank()) - members.begin();
    std::vector<int> seats;
    seats.reserve(members.size());
    for (int member : members) seats.push_back(seats_[static_cast<std::size_t>(member)]);
    return std::make_unique<MpiNetwork>(std::make_shared<Comm>(comm_->get(), members.front(), static_cast<int>(place)), memory_,
                                        std::move(seats));
  }

 private:
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<shared::HostMemory> memory_;
  std::vector<int> seats_;
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

/// "Open MPI v4.1.4"
std::string library_name() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string name(version, static_cast<std::size_t>(length));
  return name.substr(0, name.find_first_of(",\n"));
}

/// To this MPI, ranks started by another launcher, or by another MPI's mpirun, look like jobs of one rank each.
void check_agreement(const World& world) {
  const auto lock = Library::get().lock();
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == world.rank && size == world.size) return;
  const char* other = world.one_host() ? "shm" : "gloo";
  if (const int processes = discover().size; processes < world.size)
    throw ConfigError(
        fmt::format("comm.engine=mpi carries one rank per process, but this world has {} ranks in {} processes; use "
                    "comm.engine={}, or start {} processes",
                    world.size, processes, other, world.size));
  throw ConfigError(fmt::format(
      "comm.engine=mpi: rank {} of {} (says {}) is rank {} of {} for MPI; start it with the mpirun of {}, or use comm.engine={}",
      world.rank, world.size, world.source, rank, size, library_name(), other));
}

/// Rank 0 sends it to all others.
std::string told_by_rank_0(const std::string& own) {
  const auto lock = Library::get().lock();
  int length = static_cast<int>(own.size());
  check(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD));
  std::string text = own;
  text.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(text.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD));
  return text;
}

/// Empty if there is no such name.
std::string address_to_the_world() {
  try {
    return own_address("192.0.2.1", true);  // reserved for documentation: only the route to it matters
  } catch (const ConfigError&) {
    return {};
  }
}

bool agree(bool own) {
  const auto lock = Library::get().lock();
  int mine = own, all = 0;
  check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
  return all != 0;
}

}  // namespace

std::string mpirun(int ranks) { return fmt::format("mpirun (of {}) -np {}", library_name(), ranks); }

/// MPI itself needs no store; without one, an error only says less. So a store that cannot be reached is a warning.
std::shared_ptr<Store> meet_mpi(const World& world, Nanoseconds deadline) {
  check_agreement(world);
  World here = world;
  here.job = told_by_rank_0(hex(random_bytes(kKeyBytes)));  // MPI vouches for its ranks
  here.secret = true;
  const std::string address = told_by_rank_0(address_to_the_world());
  if (world.address.empty()) {
    here.address = address;
    here.port = port_for(here.job);
    here.more_ports = 7;
  }
  std::shared_ptr<Store> store;
  std::string problem;
  try {
    store = connect_store(here, std::min<Nanoseconds>(deadline, std::chrono::seconds(5)));
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (agree(store != nullptr)) return store;
  if (world.rank == 0) log::warning("errors cannot name the rank where a failure began, because there is no store: {}", problem);
  return nullptr;
}

std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>&) {
  const auto comm = std::make_shared<Comm>(MPI_COMM_WORLD, 0, world.rank);
  return two_level("mpi", config, world, exchange_over(comm), [&](const Places& places, const shared::Group& host) {
    std::vector<int> seats(places.machines.size(), -1);
    int next = 0;
    for (std::size_t peer = 0; peer < seats.size(); ++peer)
      if (places.machines[peer] == places.machines[static_cast<std::size_t>(world.rank)]) seats[peer] = next++;
    return std::make_unique<MpiNetwork>(comm, host.shared_host(), std::move(seats));
  });
}

}  // namespace paceline::comm
#endif
