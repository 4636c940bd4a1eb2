// Inception v3 (Szegedy et al., "Rethinking the Inception architecture for computer vision", 2016) under torchvision's names, without the
// auxiliary head, for 299×299 images. 94 convolutions, each followed by batch norm (ε = 10⁻³) and ReLU; 5.713 GMAC. Two forms:
//
//   inception_v3              Keras': the norms have no scale (the ReLU's next convolution can scale) and averages leave padding out;
//                             23,817,352 trainable parameters, the total of the performance model
//   inception_v3_torchvision  torchvision's, whose weights load into it: the norms have a scale; 23,834,568 parameters
//
// A module sends its input through branches and concatenates their outputs along the channels.
#include <initializer_list>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

struct Step {
  const char* name;
  std::int64_t channels;
  Size kernel = 1;
  std::int64_t stride = 1;  // 2: without padding, halves the image
};

class Inception {
 public:
  Inception(Builder& net, bool keras) : net_(net), keras_(keras) {}

  void conv(const std::string& name, std::int64_t channels, Conv options) {
    options.bias = false;
    net_.conv(name + ".conv", channels, options).bn(name + ".bn", {.epsilon = 1e-3, .scale = !keras_}).relu();
  }

  // 35×35: a 5×5, and two 3×3 in a row
  void module_a(const std::string& name, std::int64_t pool_channels) {
    const int in = begin(name);
    const int one = branch(in, {{"branch1x1", 64}});
    const int five = branch(in, {{"branch5x5_1", 48}, {"branch5x5_2", 64, 5}});
    const int twice = branch(in, {{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3}});
    const int pool = branch(average(in), {{"branch_pool", pool_channels}});
    net_.concat({one, five, twice, pool}, name);
  }

  // 35×35 → 17×17
  void module_b(const std::string& name) {
    const int in = begin(name);
    const int three = branch(in, {{"branch3x3", 384, 3, 2}});
    const int twice = branch(in, {{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3, 2}});
    net_.concat({three, twice, halve(in)}, name);
  }

  // 17×17: a 7×7 factored into a row and a column, once and twice
  void module_c(const std::string& name, std::int64_t width) {
    const Size row = {1, 7}, column = {7, 1};
    const int in = begin(name);
    const int one = branch(in, {{"branch1x1", 192}});
    const int seven = branch(in, {{"branch7x7_1", width}, {"branch7x7_2", width, row}, {"branch7x7_3", 192, column}});
    const int first = branch(in, {{"branch7x7dbl_1", width}, {"branch7x7dbl_2", width, column}, {"branch7x7dbl_3", width, row}});
    const int twice = branch(first, {{"branch7x7dbl_4", width, column}, {"branch7x7dbl_5", 192, row}});
    const int pool = branch(average(in), {{"branch_pool", 192}});
    net_.concat({one, seven, twice, pool}, name);
  }

  // 17×17 → 8×8
  void module_d(const std::string& name) {
    const int in = begin(name);
    const int three = branch(in, {{"branch3x3_1", 192}, {"branch3x3_2", 320, 3, 2}});
    const int seven = branch(in, {{"branch7x7x3_1", 192}, {"branch7x7x3_2", 192, {1, 7}}, {"branch7x7x3_3", 192, {7, 1}}});
    const int both = branch(seven, {{"branch7x7x3_4", 192, 3, 2}});
    net_.concat({three, both, halve(in)}, name);
  }

  // 8×8: branches that fork again into a row and a column; one concatenation, since two steps would give the same tensor
  void module_e(const std::string& name) {
    const Size row = {1, 3}, column = {3, 1};
    const int in = begin(name);
    const int one = branch(in, {{"branch1x1", 320}});
    const int three = branch(in, {{"branch3x3_1", 384}});
    const int three_a = branch(three, {{"branch3x3_2a", 384, row}});
    const int three_b = branch(three, {{"branch3x3_2b", 384, column}});
    const int twice = branch(in, {{"branch3x3dbl_1", 448}, {"branch3x3dbl_2", 384, 3}});
    const int twice_a = branch(twice, {{"branch3x3dbl_3a", 384, row}});
    const int twice_b = branch(twice, {{"branch3x3dbl_3b", 384, column}});
    const int pool = branch(average(in), {{"branch_pool", 192}});
    net_.concat({one, three_a, three_b, twice_a, twice_b, pool}, name);
  }

 private:
  int begin(const std::string& name) { return module_ = name, net_.top(); }

  int branch(int from, std::initializer_list<Step> steps) {
    net_.from(from);
    for (const Step& step : steps) {
      const Size padding = step.stride > 1 ? Size{0} : Size{step.kernel.h / 2, step.kernel.w / 2};
      conv(module_ + "." + step.name, step.channels, {.kernel = step.kernel, .stride = step.stride, .padding = padding});
    }
    return net_.top();
  }

  int average(int from) { return net_.from(from).avg_pool({.kernel = 3, .stride = 1, .padding = 1, .count_padding = !keras_}).top(); }
  int halve(int from) { return net_.from(from).max_pool({.kernel = 3, .stride = 2}).top(); }

  Builder& net_;
  bool keras_;
  std::string module_;  // the one being written
};

Graph build_inception(const ModelConfig& config, bool keras) {
  Builder net(config, {3, 299, 299}, 1000);
  net.require_image(75);
  net.draw(Init::truncated_normal, 0.1);
  Inception inception(net, keras);

  inception.conv("Conv2d_1a_3x3", 32, {.kernel = 3, .stride = 2});   // 149×149
  inception.conv("Conv2d_2a_3x3", 32, {.kernel = 3});                // 147×147
  inception.conv("Conv2d_2b_3x3", 64, {.kernel = 3, .padding = 1});  // 147×147
  net.max_pool({.kernel = 3, .stride = 2}, "maxpool1");              // 73×73
  inception.conv("Conv2d_3b_1x1", 80, {});                           // 73×73
  inception.conv("Conv2d_4a_3x3", 192, {.kernel = 3});               // 71×71
  net.max_pool({.kernel = 3, .stride = 2}, "maxpool2");              // 35×35

  inception.module_a("Mixed_5b", 32);  // 256×35×35
  inception.module_a("Mixed_5c", 64);  // 288×35×35
  inception.module_a("Mixed_5d", 64);
  inception.module_b("Mixed_6a");       // 768×17×17
  inception.module_c("Mixed_6b", 128);  // 768×17×17
  inception.module_c("Mixed_6c", 160);
  inception.module_c("Mixed_6d", 160);
  inception.module_c("Mixed_6e", 192);
  inception.module_d("Mixed_7a");  // 1280×8×8
  inception.module_e("Mixed_7b");  // 2048×8×8
  inception.module_e("Mixed_7c");

  net.global_pool({.counted = true}, "avgpool");  // the slides count Inception's closing 8×8 average among its 14 pools
  net.dropout(dropout_or(config, 0.5), "dropout").flatten();
  return net.fc("fc", net.classes()).finish();
}

}  // namespace

Graph inception_v3(const ModelConfig& config) { return build_inception(config, true); }
Graph inception_v3_torchvision(const ModelConfig& config) { return build_inception(config, false); }

}  // namespace paceline::graph
