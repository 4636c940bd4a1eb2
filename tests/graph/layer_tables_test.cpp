// Every conv and fc layer of the reference tables ($PACELINE_DATA/layer_tables.csv) against the graphs, number by number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "paceline/graph/registry.h"

namespace paceline::graph {
namespace {

// The table's name of a variant, and ours.
const std::map<std::string, std::string> kVariants = {{"alexnet-owt(torchvision)", "alexnet"},
                                                      {"alexnet-ungrouped(PyDTNN)", "alexnet_ungrouped"},
                                                      {"vgg16", "vgg16"},
                                                      {"resnet50-v1", "resnet50_v1"},
                                                      {"resnet50-v1.5", "resnet50"},
                                                      {"resnet50-v2(keras/slim)", "resnet50_v2_keras"},
                                                      {"resnet50-v2(tf_cnn)", "resnet50_v2"},
                                                      {"inception-v3(keras)", "inception_v3"},
                                                      {"inception-v3(torchvision,no aux)", "inception_v3_torchvision"}};

using Row = std::vector<std::string>;

Row split(const std::string& line) {
  Row cells(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) cells.emplace_back();
    else if (c != '\r') cells.back() += c;
  }
  return cells;
}

// The residual blocks' convolutions stand in another order in the table: "s2b1_proj" is layer2.0.downsample.0.
std::string torchvision_name(const std::string& name) {
  if (name.size() < 6 || name[0] != 's' || name[2] != 'b') return name;
  const std::map<std::string, std::string> convs = {{"a", "conv1"}, {"b", "conv2"}, {"c", "conv3"}, {"proj", "downsample.0"}};
  return fmt::format("layer{}.{}.{}", name[1], name[3] - '1', convs.at(name.substr(5)));
}

/// The graph's conv and fc layers as the table writes them: a norm counts with the convolution it follows, one that follows none (of a
/// pre-activation) with the last fully connected layer.
std::vector<std::pair<std::string, Row>> rows_of(const Graph& graph) {
  const auto& layers = graph.layers();
  std::vector<std::int64_t> norms(layers.size());
  for (const Layer& layer : layers) {
    if (layer.kind != Kind::batch_norm) continue;
    const int before = layer.inputs[0];
    norms[layers[before].kind == Kind::conv ? before : graph.logits()] += layer.parameters;
  }
  std::vector<std::pair<std::string, Row>> rows;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const bool conv = layer.kind == Kind::conv;
    if (!conv && layer.kind != Kind::fc) continue;
    const Shape pixel = {1, 1};
    const Shape& in = layers[layer.inputs[0]].output;
    const Shape from = conv ? Shape{in[1], in[2]} : pixel, to = conv ? Shape{layer.output[1], layer.output[2]} : pixel;
    const std::int64_t bias = layer.bias ? layer.channels : 0;
    Row row;
    for (std::int64_t number : {in[0], from[0], from[1], layer.channels, layer.kernel_h, layer.kernel_w, layer.stride, to[0], to[1],
                                layer.parameters - bias, bias + norms[i], layer.macs, layer.gradient_bytes + 4 * norms[i]})
      row.push_back(std::to_string(number));
    rows.emplace_back(layer.name, std::move(row));
  }
  return rows;
}

TEST(LayerTables, AgreeLayerByLayer) {
  const char* data = std::getenv("PACELINE_DATA");
  const auto path = std::filesystem::path(data ? data : "") / "layer_tables.csv";
  if (!data || !std::filesystem::exists(path)) GTEST_SKIP() << "set PACELINE_DATA to the folder of layer_tables.csv";

  std::map<std::string, std::vector<Row>> table;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  ASSERT_EQ(line.substr(0, line.find('\r')),
            "net,layer,type,cin,h_in,w_in,cout,kh,kw,stride,h_out,w_out,weights,bias_bn,macs_per_image,grad_bytes_fp32");
  while (std::getline(file, line)) {
    Row row = split(line);
    ASSERT_EQ(row.size(), 16u) << line;
    table[row[0]].push_back(std::move(row));
  }
  ASSERT_EQ(table.size(), kVariants.size());

  for (const auto& [variant, rows] : table) {
    ModelConfig config;
    config.network = kVariants.at(variant);
    const auto ours = rows_of(make_graph(config));
    ASSERT_EQ(ours.size(), rows.size()) << variant;
    const bool by_name = variant.starts_with("resnet");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string name = by_name ? torchvision_name(rows[i][1]) : ours[i].first;
      const auto found = std::find_if(ours.begin(), ours.end(), [&](const auto& layer) { return layer.first == name; });
      ASSERT_NE(found, ours.end()) << variant << " " << name;
      EXPECT_EQ(found->second, Row(rows[i].begin() + 3, rows[i].end())) << variant << " " << rows[i][1] << " = " << name;
    }
  }
}

}  // namespace
}  // namespace paceline::graph
