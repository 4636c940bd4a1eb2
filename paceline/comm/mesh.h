// The ranks of a communicator as a grid with named axes, data × pipeline × tensor, and a communicator for each axis:
//
//   Mesh mesh(*comm, {.pipeline = 2, .tensor = 4});       // data takes the rest
//   mesh.data().run(allreduce(gradients));                 // among the ranks that hold the same stage and the same slice of it
//
// Code that works along an axis asks its communicator for rank and size; only Mesh knows how ranks are numbered. An axis of size one is a
// communicator of one.
//
// Neighbours on the tensor axis are neighbours among the ranks of a host, because tensor parallelism exchanges activations in every layer
// and waits for them. Data comes next: it moves every gradient once per step. Pipeline stages lie farthest apart: only the activations at
// a stage's border cross, between two ranks, while other micro-batches compute.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::comm {

enum class Axis : std::uint8_t { data, pipeline, tensor };
inline constexpr Axis kAxes[] = {Axis::data, Axis::pipeline, Axis::tensor};
std::string_view name_of(Axis axis);

/// How many ranks lie along each axis. 0 means the rest: one axis may have it, and data, whose default it is, is 1 if another has it.
struct MeshSizes {
  int data = 0, pipeline = 1, tensor = 1;
  bool operator==(const MeshSizes&) const = default;
};
/// The sizes with the remaining one filled in. ConfigError if their product is not the number of ranks.
MeshSizes resolved(MeshSizes sizes, int ranks);
/// Parses "data=2,tensor=4", in any order; axes that are left out have their default size in MeshSizes. ConfigError for anything else.
MeshSizes parse_mesh(std::string_view text);

/// A rank's index along each axis.
struct MeshPlace {
  int data = 0, pipeline = 0, tensor = 0;
  bool operator==(const MeshPlace&) const = default;
};

class Mesh {
 public:
  /// Collective, unless all ranks lie along the data axis: then it costs nothing, and data() is `everyone` itself, which outlives the mesh.
  /// Throws ConfigError if the product of the sizes is not the number of ranks, or the sizes differ from rank to rank.
  explicit Mesh(Communicator& everyone, const MeshSizes& sizes = {});

  Communicator& everyone() const { return *everyone_; }
  Communicator& data() const { return axis(Axis::data); }
  Communicator& pipeline() const { return axis(Axis::pipeline); }
  Communicator& tensor() const { return axis(Axis::tensor); }
  Communicator& axis(Axis axis) const { return *axes_[static_cast<std::size_t>(axis)]; }

  const MeshSizes& sizes() const { return sizes_; }
  /// The place of a rank of everyone(), and the rank at a place.
  MeshPlace place_of(int rank) const;
  int rank_at(const MeshPlace& place) const;

  /// Whether ranks that share layers are threads of one process, or there is only one.
  bool tensor_in_one_process() const;

  /// A diagram of the mesh: one line for the sizes, then one for each group of the tensor axis with its ranks and hosts.
  std::string describe() const;

 private:
  struct Group {
    std::vector<int> ranks;
    std::set<int> hosts;
  };
  Group tensor_group(int pipeline, int data) const;
  bool tensor_crosses_hosts() const;
  void agree() const;
  void connect(Axis axis, int size, int color, int key);

  Communicator* everyone_;
  MeshSizes sizes_;
  std::vector<int> hosts_;  // by rank
  std::vector<int> order_;  // ranks by position, host by host; empty: position = rank
  Communicator* axes_[std::size(kAxes)] = {};
  std::unique_ptr<Communicator> owned_[std::size(kAxes)];
};

}  // namespace paceline::comm
