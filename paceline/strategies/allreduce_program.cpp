// The step of allreduce.cpp as a program (schedule/program.h): the passes, what happens to each bucket in between, and the updates.
#include <algorithm>

#include "paceline/data_parallel/exchange_program.h"
#include "paceline/schedule/program_writer.h"
#include "paceline/schedule/schedule.h"

namespace paceline::strategies {
namespace {

/// What happens to each bucket, as in Allreduce::treat.
class AllreduceProgram {
 public:
  AllreduceProgram(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings, int rank)
      : settings_(settings),
        writer_(model, settings, rank),
        stage_(settings.data > 1 ? settings.zero : 0),
        sharded_(settings.data > 1 && (stage_ > 0 || settings.sharded_update)),
        buckets_(stage_ == 3 || settings.by_unit
                     ? schedule::cut_by_unit(writer_.entries())
                     : schedule::cut_by_size(writer_.entries(), settings.bucket_bytes / settings.gradient_bytes())) {
    for (const schedule::BucketEntry& entry : writer_.entries()) private_ += entry.is_private ? entry.elements : 0;
  }

  schedule::Program write() {
    schedule::GradientListener listener{.pass_over = [this] { finish_part(); }, .each_part = stage_ >= 2};
    parts_ = stage_ >= 2 && settings_.pipeline == 1 ? writer_.parts() : 1;
    begin_part();
    if (stage_ >= 2 || settings_.overlap) {
      listener.wants = [this](int unit) { return completes(static_cast<std::size_t>(unit)); };
      listener.complete = [this](int first, int last) { complete(static_cast<std::size_t>(first), static_cast<std::size_t>(last)); };
    }
    writer_.passes(listener);
    if (!settings_.update_at_end) return writer_.take();
    std::int64_t updated = private_;
    for (const schedule::BucketCut& bucket : buckets_) updated += own(bucket.elements);
    writer_.update_all(updated, sharded_);
    for (const schedule::BucketCut& bucket : buckets_) hand_round(bucket, Lane::compute);
    return writer_.take();
  }

 private:
  using Lane = schedule::Action::Lane;
  using Exchange = schedule::Action::Exchange;
  using Work = schedule::Action::Work;

  Lane lane() const { return settings_.overlap ? Lane::exchange : Lane::compute; }
  std::size_t unit_of(std::size_t entry) const { return writer_.entries()[entry].unit; }
  std::int64_t own(std::int64_t elements) const { return sharded_ ? schedule::part(elements, settings_.data, 0).size() : elements; }

  void begin_part() {
    missing_.clear(), next_ = 0;
    for (const schedule::BucketCut& bucket : buckets_) missing_.push_back(bucket.last - bucket.first);
  }
  bool completes(std::size_t unit) const {
    return std::ranges::any_of(buckets_, [&](const schedule::BucketCut& bucket) { return unit_of(bucket.first) == unit; });
  }
  void complete(std::size_t first, std::size_t last) {
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      for (std::size_t entry = buckets_[i].first; entry < buckets_[i].last; ++entry)
        missing_[i] -= first <= unit_of(entry) && unit_of(entry) < last ? 1 : 0;
    for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_) leave(buckets_[next_]);
    treat_begun(/*but=*/1);
  }
  void finish_part() {
    for (; next_ < buckets_.size(); ++next_) leave(buckets_[next_]);
    treat_begun(/*but=*/0);
    if (lane() == Lane::exchange && !buckets_.empty()) writer_.wait(writer_.last(Lane::exchange));
    if (!settings_.update_at_end && ++part_ == parts_ && private_ > 0) writer_.compute(Lane::compute, Work::update, private_);
    begin_part();
  }

  /// For buckets that are begun when they are full, and finished when the next one is full.
  bool begins() const {
    return stage_ == 2 && !settings_.overlap && !settings_.by_unit && settings_.compressed == schedule::CompressedTraffic::none;
  }
  void leave(const schedule::BucketCut& bucket) {
    if (!begins()) return treat(bucket);
    data_parallel::write_exchange(writer_, settings_, Lane::exchange, bucket.elements, sharded_, writer_.last(Lane::compute));
    begun_.push_back(writer_.last(Lane::exchange).front());
  }
  void treat_begun(std::size_t but) {
    for (; begun_.size() > but; begun_.erase(begun_.begin())) writer_.wait({begun_.front()});
  }
  void treat(const schedule::BucketCut& bucket) {
    const std::vector<int> ready = lane() == Lane::exchange ? writer_.last(Lane::compute) : std::vector<int>();
    if (settings_.data > 1) data_parallel::write_exchange(writer_, settings_, lane(), bucket.elements, sharded_, ready);
    if (settings_.update_at_end || part_ + 1 < parts_) return;
    writer_.compute(lane(), Work::update, own(bucket.elements), settings_.data > 1 ? std::vector<int>() : ready);
    hand_round(bucket, lane());
  }
  void hand_round(const schedule::BucketCut& bucket, Lane lane) {
    if (!sharded_ || stage_ == 3) return;
    writer_.communicate(lane, Exchange::all_gather, schedule::Action::Axis::data, bucket.elements,
                        static_cast<double>(settings_.storage_bytes));
  }

  const schedule::ProgramSettings& settings_;
  schedule::ProgramWriter writer_;
  int stage_;
  bool sharded_;
  std::vector<schedule::BucketCut> buckets_;
  std::vector<std::size_t> missing_;  // by bucket: entries that are not complete yet
  std::size_t next_ = 0;              // next bucket to send
  std::vector<int> begun_{};          // exchanges that have not been waited for yet
  std::int64_t private_ = 0;          // elements in no bucket
  int part_ = 0, parts_ = 1;
};

}  // namespace

std::vector<schedule::Program> allreduce_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < settings.pipeline; ++rank) programs.push_back(AllreduceProgram(model, settings, rank).write());
  return programs;
}

}  // namespace paceline::strategies
