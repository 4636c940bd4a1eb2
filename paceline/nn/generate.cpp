#include "paceline/nn/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::nn {

std::int64_t draw_token(const at::Tensor& logits, std::int64_t vocabulary, const Sampling& sampling, RandomStream& random) {
  const at::Tensor host = logits.reshape({-1}).narrow(0, 0, vocabulary).to(at::kCPU, at::kDouble).contiguous();
  const std::span<const double> scores(host.data_ptr<double>(), static_cast<std::size_t>(vocabulary));
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    const double x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const bool greedy = sampling.temperature == 0;
  const std::int64_t kept = greedy ? 1 : sampling.top_k > 0 ? std::min(sampling.top_k, vocabulary) : vocabulary;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), likelier);
  if (!std::isfinite(scores[static_cast<std::size_t>(order[0])]))
    throw Error("the network's logits are not finite; use a checkpoint from before the run diverged");
  if (kept == 1) return order[0];
  std::vector<double> sums(static_cast<std::size_t>(kept));
  double sum = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double below = scores[static_cast<std::size_t>(order[i])] - scores[static_cast<std::size_t>(order[0])];
    sums[i] = sum += std::exp(below / sampling.temperature);
  }
  constexpr std::uint64_t kSteps = std::uint64_t{1} << 53;
  const double drawn = sum * static_cast<double>(random.below(kSteps)) / static_cast<double>(kSteps);
  const auto found = std::ranges::upper_bound(sums, drawn);
  return order[static_cast<std::size_t>(std::min(found - sums.begin(), std::ssize(sums) - 1))];
}

void generate(GraphModule& module, std::int64_t vocabulary, std::vector<std::int64_t> prompt, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int64_t token)>& told) {
  ensure(!prompt.empty(), "a text has a beginning");
  RandomStream random(sampling.seed, Purpose::data);
  Decoder decoder(module);
  // What the network reads next: first the prompt, later the token that was drawn.
  const std::ptrdiff_t first = std::min<std::ptrdiff_t>(std::ssize(prompt), decoder.positions());
  std::vector<std::int64_t> next(prompt.end() - first, prompt.end()), text = std::move(prompt);
  for (std::int64_t made = 0; made < count; ++made) {
    if (decoder.room() < std::ssize(next)) {
      decoder.clear();
      next.assign(text.end() - std::max<std::ptrdiff_t>(decoder.positions() / 2, 1), text.end());
    }
    const at::Tensor logits = decoder.read(at::tensor(next, at::kLong).unsqueeze(0).to(module.device()));
    const std::int64_t token = draw_token(logits, vocabulary, sampling, random);
    text.push_back(token);
    next = {token};
    if (!told(token)) return;
  }
}

}  // namespace paceline::nn
