#include "paceline/comm/mesh.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/log.h"
#include "paceline/base/mesh_refusal.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/nearest_mesh.h"
#include "paceline/comm/solo.h"

namespace paceline::comm {
namespace {

int& size_on(MeshSizes& sizes, Axis axis) {
  return axis == Axis::data ? sizes.data : axis == Axis::pipeline ? sizes.pipeline : sizes.tensor;
}

/// The same hosts, numbered in the order of their first ranks.
std::vector<int> numbered(std::vector<int> hosts) {
  std::map<int, int> numbers;
  for (int& host : hosts) host = numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second;
  return hosts;
}

/// Ranks ordered host by host; empty if they already are.
std::vector<int> host_by_host(const std::vector<int>& hosts) {
  if (std::ranges::is_sorted(hosts)) return {};
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; });
  return order;
}

}  // namespace

MeshSizes resolved(MeshSizes sizes, int ranks) {
  const MeshSizes given = std::exchange(sizes, with_one_rest(sizes));
  const auto problem = [&](const std::string& why) { return fmt::format("a mesh of {} over {} ranks: {}", mesh_text(given), ranks, why); };
  const auto nearest = [&] { return mesh_text(nearest_mesh(given, ranks, [](const MeshSizes&) { return true; }).value()); };
  if (ranks < 1) throw ConfigError(problem("the number of ranks must be at least 1"));
  int* const all[] = {&sizes.data, &sizes.pipeline, &sizes.tensor};
  int* rest = nullptr;
  std::int64_t product = 1;
  for (int* const size : all) {
    if (*size < 0) throw ConfigError(problem("a size must be at least 1, or 0 for the remaining ranks"));
    if (*size == 0 && rest) throw MeshRefusal(problem("only one axis may be 0 (the remaining ranks); use "), nearest());
    if (*size == 0) rest = size;
    else product *= *size;
  }
  if (product > ranks || ranks % product != 0 || (!rest && product != ranks))
    throw MeshRefusal(problem(fmt::format("{} is {}; use ", rest ? "the product of the other axes" : "their product", product)),
                      fmt::format("{}, or {} ranks", nearest(), product));
  if (rest) *rest = static_cast<int>(ranks / product);
  return sizes;
}

MeshSizes parse_mesh(std::string_view text) {
  MeshSizes sizes;
  const auto refuse = [&](std::string_view part) {
    throw ConfigError(fmt::format(
        "'{}' in the mesh '{}' is not an axis with its size; write data=2,pipeline=2,tensor=2 (0: the remaining ranks)", part, text));
  };
  std::array<bool, std::size(kAxes)> given{};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin), name = part.substr(0, part.find('='));
    const auto* const axis = std::ranges::find_if(kAxes, [&](Axis each) { return name_of(each) == name; });
    if (axis == std::end(kAxes) || name.size() == part.size()) refuse(part);
    if (std::exchange(given.at(static_cast<std::size_t>(axis - std::begin(kAxes))), true))
      throw ConfigError(fmt::format("the mesh '{}' names '{}' twice; write each axis once, for example data=2,tensor=2", text, name));
    const std::string_view number = part.substr(name.size() + 1);
    int& size = size_on(sizes, *axis);
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (error != std::errc() || stop != number.data() + number.size() || size < 0) refuse(part);
    begin = end + 1;
  }
  return sizes;
}

std::string_view name_of(Axis axis) {
  constexpr std::string_view kNames[] = {"data", "pipeline", "tensor"};
  return kNames[static_cast<int>(axis)];
}

Mesh::Mesh(Communicator& everyone, const MeshSizes& sizes)
    : everyone_(&everyone), sizes_(resolved(sizes, everyone.size())), hosts_(numbered(everyone.hosts())) {
  if (sizes_.data < everyone.size()) {
    agree();
    order_ = host_by_host(hosts_);
    if (everyone.rank() == 0 && tensor_crosses_hosts())
      log::warning(
          "the tensor axis ({} ranks) crosses hosts, so every layer waits for the network; choose a size that divides the ranks of a host",
          sizes_.tensor);
  }
  const MeshPlace place = place_of(everyone.rank());
  connect(Axis::tensor, sizes_.tensor, place.pipeline * sizes_.data + place.data, place.tensor);
  connect(Axis::data, sizes_.data, place.pipeline * sizes_.tensor + place.tensor, place.data);
  connect(Axis::pipeline, sizes_.pipeline, place.data * sizes_.tensor + place.tensor, place.pipeline);
}

/// Checked because ranks with different sizes would wait for one another in different groups.
void Mesh::agree() const {
  std::vector<std::int32_t> most{sizes_.data, sizes_.pipeline, sizes_.tensor, -sizes_.data, -sizes_.pipeline, -sizes_.tensor};
  everyone_->run(allreduce(most, {.op = ReduceOp::max, .root = 0, .algorithm = {}, .deadline = {}}));
  for (std::size_t axis = 0; axis < std::size(kAxes); ++axis)
    if (const int largest = most[axis], least = -most[axis + std::size(kAxes)]; largest != least)
      throw ConfigError(
          fmt::format("ranks were given meshes of different sizes: {} is {} on one and {} on another, and rank {} has {}; "
                      "give all ranks the same",
                      name_of(kAxes[axis]), least, largest, everyone_->rank(), mesh_text(sizes_)));
}

void Mesh::connect(Axis axis, int size, int color, int key) {
  auto& own = owned_[static_cast<std::size_t>(axis)];
  if (size == 1 && everyone_->size() > 1) own = solo(*everyone_);
  else if (size < everyone_->size() || !order_.empty()) own = everyone_->split(color, key);
  axes_[static_cast<std::size_t>(axis)] = own ? own.get() : everyone_;
}

MeshPlace Mesh::place_of(int rank) const {
  int position = rank;
  if (!order_.empty()) position = static_cast<int>(std::ranges::find(order_, rank) - order_.begin());
  const int group = position / sizes_.tensor;
  return {.data = group % sizes_.data, .pipeline = group / sizes_.data, .tensor = position % sizes_.tensor};
}

int Mesh::rank_at(const MeshPlace& place) const {
  const int position = (place.pipeline * sizes_.data + place.data) * sizes_.tensor + place.tensor;
  return order_.empty() ? position : order_[static_cast<std::size_t>(position)];
}

Mesh::Group Mesh::tensor_group(int pipeline, int data) const {
  Group group;
  for (int tensor = 0; tensor < sizes_.tensor; ++tensor) {
    group.ranks.push_back(rank_at({.data = data, .pipeline = pipeline, .tensor = tensor}));
    group.hosts.insert(hosts_[static_cast<std::size_t>(group.ranks.back())]);
  }
  return group;
}

bool Mesh::tensor_in_one_process() const { return tensor().size() == 1 || engine_of(everyone_->engine()).gpu == Engine::Gpu::addresses; }

bool Mesh::tensor_crosses_hosts() const {
  for (int pipeline = 0; pipeline < sizes_.pipeline; ++pipeline)
    for (int data = 0; data < sizes_.data; ++data)
      if (sizes_.tensor > 1 && tensor_group(pipeline, data).hosts.size() > 1) return true;
  return false;
}

std::string Mesh::describe() const {
  const std::set<int> hosts(hosts_.begin(), hosts_.end());
  std::string text = fmt::format("{} ranks on {} hosts: data {} × pipeline {} × tensor {}\n", everyone_->size(), hosts.size(), sizes_.data,
                                 sizes_.pipeline, sizes_.tensor);
  for (int pipeline = 0; pipeline < sizes_.pipeline; ++pipeline)
    for (int data = 0; data < sizes_.data; ++data) {
      const Group group = tensor_group(pipeline, data);
      text += fmt::format("  pipeline {} data {}: rank {} on host {}\n", pipeline, data, fmt::join(group.ranks, " "),
                          fmt::join(group.hosts, " and "));
    }
  return text;
}

}  // namespace paceline::comm
