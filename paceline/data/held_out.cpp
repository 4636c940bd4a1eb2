#include "paceline/data/held_out.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data/tokenizer.h"

namespace paceline::data {
namespace {

/// `count` samples of a dataset, starting at `first`, numbered from 0.
class Part final : public Dataset {
 public:
  Part(std::unique_ptr<Dataset> whole, std::int64_t first, std::int64_t count) : whole_(std::move(whole)), first_(first), count_(count) {}

  const Info& info() const override { return whole_->info(); }
  std::int64_t size() const override { return count_; }
  void prepare(Batch& batch, std::int64_t count) const override { whole_->prepare(batch, count); }
  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override {
    whole_->read(first_ + index, random, batch, slot);
  }
  std::string_view vocabulary() const override { return whole_->vocabulary(); }
  std::unique_ptr<const Tokenizer> tokenizer() const override { return whole_->tokenizer(); }

  std::optional<Pixels> pixels() const override {
    const std::optional<Pixels> all = whole_->pixels();
    if (!all) return std::nullopt;
    const std::size_t image = all->bytes.size() / all->labels.size();
    const auto first = static_cast<std::size_t>(first_), count = static_cast<std::size_t>(count_);
    return Pixels{all->bytes.subspan(first * image, count * image), all->labels.subspan(first, count)};
  }

  AugmentPlan plan(std::int64_t index, RandomStream* random) const override {
    AugmentPlan plan = whole_->plan(first_ + index, random);
    plan.sample = static_cast<std::int32_t>(index);  // its index among the pixels of this part
    return plan;
  }

 private:
  std::unique_ptr<Dataset> whole_;
  std::int64_t first_, count_;
};

}  // namespace

std::unique_ptr<Dataset> part_of(std::unique_ptr<Dataset> training, std::int64_t held_out, Split split) {
  const std::int64_t all = training->size(), between = training->info().tokens ? 1 : 0, left = all - held_out - between;
  if (left < 1)
    throw ConfigError(fmt::format("data.held_out={} leaves none of the {} training samples of '{}'; use at most {}", held_out, all,
                                  training->info().key, all - between - 1));
  if (split == Split::train) return std::make_unique<Part>(std::move(training), 0, left);
  return std::make_unique<Part>(std::move(training), all - held_out, held_out);
}

}  // namespace paceline::data
