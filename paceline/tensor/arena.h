// The arena: all parameters of a model in one flat buffer, all gradients in another; the module's tensors are views into them.
//
// Allreduce buckets, ZeRO shards, parameter-server pulls, checkpoints and fused optimizers are then all "an operation on a range", without
// copies to gather tensors. The creator of an arena may say where its memory comes from: a communication engine provides memory that other
// ranks can read.
//
// Invariants: entries lie in ascending order, each begins at a multiple of kAlignment elements, and the padding between them is zero in
// the parameters and in the gradients, so that a sum or an update over a whole range is correct without knowing the entries.
//
// Every entry belongs to a unit of its model, and every role that values of the arena play (parameter, gradient, master copy, moment of an
// optimizer) has a dtype and owners: a range belongs to one rank, or to all. So parameters of 16 bits may have gradients in fp32; in an
// adopted module they have the parameters' dtype, as autograd demands. All parameters and gradients have addresses here, but a rank
// releases what it does not hold at the moment, and no memory is behind those addresses (backing.h). Masters and moments are allocated by
// allocate(), for what the rank holds. Private entries, which differ on every rank of the data axis, belong to all: each rank holds its
// own.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/tensor/backing.h"
#include "paceline/tensor/owners.h"
#include "paceline/tensor/slice.h"

namespace torch::nn {
class Module;
}

namespace paceline::tensor {

struct Spec {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;                // false for norms and biases
  std::optional<Slice> slice = {};  // of a tensor that ranks share; nothing: the whole
};

struct Entry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, count = 0;  // in elements
  bool decay = true;
  std::size_t unit = 0;             // of the model
  std::optional<Slice> slice = {};  // of a tensor that ranks share, `shape` being what is held here; nothing: the whole

  /// If a tensor is cut, it is cut into rows, along its first dimension, since those are contiguous in every layout.
  std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t row() const { return rows() > 0 ? count / rows() : 0; }  // elements

  /// No other data-parallel worker has these elements: its gradient is complete without an exchange, and only its norm needs the others.
  bool is_private() const { return slice && slice->across == Across::data; }

  std::vector<std::int64_t> whole() const;  ///< the shape of the tensor that it is a slice of, or its own
};

/// A tensor of the whole model: an entry here, or one that other ranks hold, as a pipeline's other stages do.
struct Listed {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::optional<std::size_t> entry;
};

/// Zeroed memory for `elements` values.
using Allocate = std::function<at::Tensor(std::int64_t elements, const at::TensorOptions& options)>;

/// Pages of this process, large ones if the system has them; on a GPU, pages that can be released.
at::Tensor allocate_pages(std::int64_t elements, const at::TensorOptions& options);

/// Called when a backward pass has added to the gradient of an entry.
using GradientAdded = std::function<void(std::size_t index)>;

struct Adopted;  // keeps a user's module in the arena

class Arena {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements: a cache line of floats

  struct Options {
    at::TensorOptions tensor;                            // device, and dtype of the parameters
    std::optional<c10::ScalarType> gradient_dtype = {};  // nothing: that of the parameters
    bool channels_last = false;                          // 4-D entries are laid out {out, h, w, in}
    bool gradients = true;                               // false for statistics
    Allocate allocate = allocate_pages;
  };

  Arena(const std::vector<Spec>& specs, const Options& options);

  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t length() const { return length_; }  // elements, padding included
  std::int64_t count() const;                      // elements, without padding

  const at::Tensor& parameters() const { return parameters_; }  // [length]
  const at::Tensor& gradients() const { return gradients_; }    // [length]
  /// Views of one entry, in its shape.
  at::Tensor parameter(std::size_t index) const { return view(parameters_, index); }
  at::Tensor gradient(std::size_t index) const { return view(gradients_, index); }
  /// gradient(index) for a parameter's .grad: the same memory, but not a view for autograd, because LibTorch's optimizers cannot zero
  /// views.
  at::Tensor gradient_leaf(std::size_t index) const;
  /// The same view into another flat buffer of this length: optimizer state, a copy in another precision.
  at::Tensor view(const at::Tensor& flat, std::size_t index) const;

  /// The view() of some of an entry's rows, [rows, …], which are all that `flat` holds.
  at::Tensor view_rows(const at::Tensor& flat, std::size_t index) const;

  /// The dimensions of an entry in memory order; the last one is contiguous.
  std::vector<std::int64_t> memory_order(std::size_t index) const;

  /// All tensors of the model in their order: the entries, and those of other ranks between them if they were set.
  std::vector<Listed> listing() const;
  void set_listing(std::vector<Listed> listing) { listing_ = std::move(listing); }

  /// Entries [first, last) belong to a unit of the model. Until a model says so, all belong to unit 0.
  void set_unit(std::size_t unit, std::size_t first, std::size_t last);

  c10::ScalarType dtype(Role role) const { return roles_[static_cast<std::size_t>(role)].dtype; }
  const Owners& owners(Role role) const { return roles_[static_cast<std::size_t>(role)].owners; }
  /// Sets the owners of all elements. Does not move memory that was allocated before: its holder must do that.
  void set_owners(Role role, Owners owners);
  /// The layout of what `rank` holds of a role, in separate memory.
  Shard shard(Role role, int rank) const { return Shard(owners(role), rank, kAlignment); }
  /// Zeroed memory for that, [shard.length()], in the role's dtype: on the arena's device, or in host memory with fast copies to and
  /// from the device.
  enum class Place { device, host };
  at::Tensor allocate(Role role, const Shard& shard, Place place = Place::device) const;

  /// Commits memory for elements [begin, end) of the parameters or gradients, with arbitrary content; or releases it.
  void commit(Role role, std::int64_t begin, std::int64_t end) { backing(role).commit(begin, end); }
  void release(Role role, std::int64_t begin, std::int64_t end) { backing(role).release(begin, end); }
  /// The same for another flat buffer of this length, counted as that role.
  std::shared_ptr<Backing> back(Role role, const at::Tensor& flat) const { return std::make_shared<Backing>(flat, role, ledger_); }
  /// The memory in use: parameters, gradients, and what allocate() returned.
  Ledger& ledger() const { return *ledger_; }
  /// Memory of allocate() in host memory, if the arena is on a device, is counted here instead.
  Ledger& host_ledger() const { return *host_ledger_; }
  /// The elements of entries [first, last) with the padding after them.
  OwnedRange range_of(std::size_t first, std::size_t last) const;
  /// The private entries, or all others, in as few ranges as possible; of entries [first, last).
  std::vector<OwnedRange> ranges(bool are_private, std::size_t first, std::size_t last) const;
  std::vector<OwnedRange> ranges(bool are_private) const { return ranges(are_private, 0, entries_.size()); }
  bool has_private() const;

  /// take_back() and restore_gradients() of an adopted module. ConfigError if another arena has adopted it since.
  void take_back() const;

 private:
  friend Arena adopt(torch::nn::Module& module, Allocate allocate, GradientAdded added,
                     const std::function<bool(const std::string&)>& takes);

  struct Held {
    c10::ScalarType dtype = c10::kFloat;
    Owners owners;
    std::shared_ptr<Backing> backing = {};  // of the parameters and the gradients
  };
  Backing& backing(Role role) const { return *roles_[static_cast<std::size_t>(role)].backing; }

  std::vector<Entry> entries_;
  std::vector<Listed> listing_;  // empty: the entries
  std::int64_t length_ = 0;
  bool channels_last_ = false;
  std::array<Held, kRoles> roles_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>(), host_ledger_ = std::make_shared<Ledger>();
  at::Tensor parameters_, gradients_;
  std::shared_ptr<const Adopted> adopted_;  // null if it did not adopt a module
};

/// If torch::load() or set_data() has moved parameters (one per entry) to other memory, copies them back to their places. ConfigError if
/// one now has another type, shape or device.
void take_back(const Arena& arena, std::span<const at::Tensor> parameters);

/// Points the .grad of parameters (one per entry) to their places in the arena: gradients elsewhere are copied there, missing ones become
/// zeros, and parameters that are now frozen have none. (zero_grad() of LibTorch 2 drops gradients, and autograd then creates new ones.)
void restore_gradients(const Arena& arena, std::span<const at::Tensor> parameters);

/// Moves the parameters of a user's module into an arena. The user keeps the same tensors with the same values, but they and their
/// gradients are stored in the arena: if zero_grad() dropped a gradient and autograd creates a new one, it is moved back in the same
/// backward pass, and so are parameters that were loaded into other memory. A module that is adopted again leaves its previous arena.
/// Frozen parameters stay outside for good: unfreeze them first. A parameter that is frozen later has no gradient any more, but momentum
/// and decay still change it. Parameters of fewer than two dims (norms, biases) are marked as not decaying. `takes`: whether a parameter is
/// adopted, by name; empty: all are.
Arena adopt(torch::nn::Module& module, Allocate allocate = allocate_pages, GradientAdded added = nullptr,
            const std::function<bool(const std::string&)>& takes = nullptr);

}  // namespace paceline::tensor
