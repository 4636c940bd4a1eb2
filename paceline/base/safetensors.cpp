#include "paceline/base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"

namespace paceline::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kPrefix = 8;  // the length of the header
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::size_t size;
};
constexpr DtypeRow kDtypes[] = {{Dtype::F64, "F64", 8}, {Dtype::F32, "F32", 4},  {Dtype::F16, "F16", 2}, {Dtype::BF16, "BF16", 2},
                                {Dtype::I64, "I64", 8}, {Dtype::I32, "I32", 4},  {Dtype::I16, "I16", 2}, {Dtype::I8, "I8", 1},
                                {Dtype::U8, "U8", 1},   {Dtype::BOOL, "BOOL", 1}};

const DtypeRow& row_of(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)]; }

/// The size of a tensor in bytes; nullopt if the product overflows.
std::optional<std::uint64_t> bytes_of(Dtype dtype, std::span<const std::int64_t> shape) {
  std::uint64_t bytes = size_of(dtype);
  // A zero makes the product zero even if other factors overflow, so it is checked first.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  for (std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  return bytes;
}

/// A tensor's place in the file, before its data is looked at.
struct Placed {
  Tensor tensor;
  std::uint64_t begin = 0, end = 0;
};

/// Reads the header of one file. Every error goes through refuse().
class HeaderReader {
 public:
  HeaderReader(std::string file, std::span<const std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}

  /// The placed tensors in the order of their data, which they cover exactly.
  std::vector<Placed> read(Metadata& metadata) {
    const Json header = parse(header_text());
    if (!header.is_object()) refuse("the header is not a JSON object");
    std::vector<Placed> placed;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) metadata = read_metadata(entry);
      else placed.push_back(read_entry(name, entry));
    }
    check_cover(placed);
    return placed;
  }

  std::uint64_t data_start() const { return data_start_; }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw DataError(file_, "not a valid safetensors file: " + what); }

  std::string_view header_text() {
    if (bytes_.size() < kPrefix) refuse(fmt::format("{} bytes are too few for a header", bytes_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kPrefix);
    if (length > kLongestHeader) refuse(fmt::format("the header says it has {} bytes; at most {} are allowed", length, kLongestHeader));
    if (length > bytes_.size() - kPrefix)
      refuse(fmt::format("the header says it has {} bytes, but the file has {}; it may be cut short", length, bytes_.size()));
    data_start_ = kPrefix + length;
    return {reinterpret_cast<const char*>(bytes_.data()) + kPrefix, length};
  }

  Json parse(std::string_view text) const {
    // nlohmann keeps the last of two equal keys; here, a duplicate name is an error.
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > 3) refuse("the header is nested too deeply");
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
        refuse(fmt::format("the name '{}' occurs twice in the header", parsed.get<std::string>()));
      return true;
    };
    try {
      return Json::parse(text, watch);
    } catch (const Json::parse_error& error) {
      throw DataError(file_, static_cast<std::int64_t>(kPrefix + error.byte), "not a valid safetensors file: the header is not valid JSON");
    } catch (const Json::exception&) {  // valid JSON that no C++ type holds, like 1e999
      refuse("the header has a number that is out of range");
    }
  }

  Metadata read_metadata(const Json& entry) const {
    if (!entry.is_object()) refuse("__metadata__ is not an object");
    Metadata metadata;
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse(fmt::format("__metadata__ '{}' is not text", key));
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  const Json& member(const std::string& name, const Json& entry, const char* key) const {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    if (!entry.is_object() || found == entry.end()) refuse(fmt::format("tensor '{}' has no {}", name, key));
    return *found;
  }

  std::vector<std::uint64_t> unsigned_list(const std::string& name, const Json& entry, const char* key) const {
    const Json& list = member(name, entry, key);
    const bool sound = list.is_array() && std::ranges::all_of(list, [](const Json& item) { return item.is_number_unsigned(); });
    if (!sound) refuse(fmt::format("{} of tensor '{}' is not a list of integers of at least 0", key, name));
    return list.get<std::vector<std::uint64_t>>();
  }

  Placed read_entry(const std::string& name, const Json& entry) const {
    Placed placed;
    placed.tensor.name = name;
    const Json& dtype = member(name, entry, "dtype");
    const auto* row = std::ranges::find_if(kDtypes, [&](const DtypeRow& known) { return dtype == known.name; });
    if (row == std::end(kDtypes)) refuse(fmt::format("tensor '{}' has the unknown dtype {}", name, dtype.dump()));
    placed.tensor.dtype = row->dtype;

    for (std::uint64_t extent : unsigned_list(name, entry, "shape")) {
      if (extent > static_cast<std::uint64_t>(INT64_MAX)) refuse(fmt::format("the shape of tensor '{}' overflows", name));
      placed.tensor.shape.push_back(static_cast<std::int64_t>(extent));
    }
    const auto offsets = unsigned_list(name, entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse(fmt::format("data_offsets of tensor '{}' are not [begin, end]", name));
    placed.begin = offsets[0];
    placed.end = offsets[1];

    const auto bytes = bytes_of(row->dtype, placed.tensor.shape);
    if (!bytes) refuse(fmt::format("the shape of tensor '{}' overflows", name));
    if (*bytes != placed.end - placed.begin)
      refuse(fmt::format("tensor '{}' of shape {} and dtype {} has {} bytes, its data_offsets span {}", name, entry["shape"].dump(),
                         row->name, *bytes, placed.end - placed.begin));
    return placed;
  }

  /// Sorts by place. Every byte of the data must belong to exactly one tensor.
  void check_cover(std::vector<Placed>& placed) const {
    std::ranges::stable_sort(placed, {}, [](const Placed& p) { return std::pair(p.begin, p.end); });
    std::uint64_t covered = 0;
    for (const Placed& p : placed) {
      if (p.begin != covered)
        refuse(fmt::format("tensor '{}' begins at {} where {} was expected: the tensors {}", p.tensor.name, p.begin, covered,
                           p.begin > covered ? "leave a hole" : "overlap"));
      covered = p.end;
    }
    const std::uint64_t present = bytes_.size() - data_start_;
    if (covered != present)
      refuse(
          fmt::format("the tensors take {} bytes, the file has {}{}", covered, present, covered > present ? "; it may be cut short" : ""));
  }

  std::string file_;
  std::span<const std::byte> bytes_;
  std::uint64_t data_start_ = 0;
};

/// The tensors in the order in which they are written, and what comes before their data.
struct Layout {
  std::vector<const Tensor*> order;
  std::string beginning;
};

Layout lay_out(std::span<const Tensor> tensors, const Metadata& metadata) {
  Layout layout;
  for (const Tensor& tensor : tensors) layout.order.push_back(&tensor);
  std::ranges::stable_sort(layout.order, std::greater{}, [](const Tensor* tensor) { return size_of(tensor->dtype); });

  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::set<std::string_view> names = {kMetadata};
  std::uint64_t end = 0;
  for (const Tensor* tensor : layout.order) {
    ensure(names.insert(tensor->name).second, "two tensors of one name cannot go into a safetensors file");
    ensure(bytes_of(tensor->dtype, tensor->shape) == tensor->data.size(), "the data of a tensor must have the size of its shape");
    const std::uint64_t begin = end;
    end += tensor->data.size();
    header[tensor->name] = {{"dtype", name_of(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts aligned
  ensure(text.size() <= kLongestHeader, "the header of a safetensors file is too long");
  const std::uint64_t length = text.size();
  layout.beginning.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.beginning += text;
  return layout;
}

}  // namespace

std::string_view name_of(Dtype dtype) { return row_of(dtype).name; }
std::size_t size_of(Dtype dtype) { return row_of(dtype).size; }

File::File(const std::filesystem::path& path) : mapped_(path) {
  HeaderReader reader(path.string(), mapped_.bytes());
  for (Placed& placed : reader.read(metadata_)) {
    placed.tensor.data = mapped_.bytes().subspan(reader.data_start() + placed.begin, placed.end - placed.begin);
    by_name_.emplace(placed.tensor.name, tensors_.size());
    tensors_.push_back(std::move(placed.tensor));
  }
}

const Tensor* File::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

FileStamp write(const std::filesystem::path& path, std::span<const Tensor> tensors, const Metadata& metadata) {
  const Layout layout = lay_out(tensors, metadata);
  AtomicFile file(path);
  file.write(layout.beginning);
  for (const Tensor* tensor : layout.order) file.write(tensor->data);
  return file.commit();
}

std::string to_bytes(std::span<const Tensor> tensors) {
  Layout layout = lay_out(tensors, {});
  for (const Tensor* tensor : layout.order)
    layout.beginning.append(reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size());
  return std::move(layout.beginning);
}

std::vector<Tensor> from_bytes(std::span<const std::byte> bytes, const std::string& source) {
  Metadata metadata;
  HeaderReader reader(source, bytes);
  std::vector<Tensor> tensors;
  for (Placed& placed : reader.read(metadata)) {
    placed.tensor.data = bytes.subspan(reader.data_start() + placed.begin, placed.end - placed.begin);
    tensors.push_back(std::move(placed.tensor));
  }
  return tensors;
}

}  // namespace paceline::safetensors
