#include "paceline/observe/tensorboard.h"

#include <bit>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/checksum.h"
#include "paceline/base/host.h"

namespace paceline::observe {
namespace tfevents {
namespace {

/// A number as its bytes, the lowest first.
template <class T>
std::string raw(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string masked_crc(std::string_view data) { return raw(std::rotr(crc32c(bytes_of(data)), 15) + 0xa282ead8u); }

std::string varint(std::uint64_t number) {
  std::string out;
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  return out + static_cast<char>(number);
}

enum Wire { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };
std::string key(unsigned field, Wire wire) { return varint(field << 3 | wire); }
std::string bytes_field(unsigned field, std::string_view data) { return key(field, kBytes) + varint(data.size()) + std::string(data); }

std::string place(double wall_time, std::int64_t step) {
  return key(1, kDouble) + raw(wall_time) + key(2, kVarint) + varint(static_cast<std::uint64_t>(step));
}

}  // namespace

std::string record(std::string_view data) {
  const std::string length = raw(static_cast<std::uint64_t>(data.size()));
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

std::string version_event() { return bytes_field(3, "brain.Event:2"); }

std::string restart_event(double wall_time, std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  return place(wall_time, step) + bytes_field(7, key(1, kVarint) + varint(kStart));
}

std::string scalar_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    summary += bytes_field(1, bytes_field(1, scalar.tag) + key(2, kFloat) + raw(static_cast<float>(scalar.value)));
  return place(wall_time, step) + bytes_field(5, summary);
}

}  // namespace tfevents

double TensorBoard::wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

TensorBoard::TensorBoard(const std::filesystem::path& folder, const Clock& clock, WallClock wall)
    : wall_(std::move(wall)),
      out_(folder / fmt::format("events.out.tfevents.{:010}.{}", static_cast<std::int64_t>(wall_()), host_name()), clock) {
  out_.write(tfevents::record(tfevents::version_event()));
  out_.flush();
}

void TensorBoard::on(const Event& event) {
  if (const auto* e = std::get_if<RunStarted>(&event)) {
    shows_accuracy_ = e->shows_accuracy();
    // Written to every file: a run may also start again at its first step, after the file of a run that was killed before its first
    // checkpoint.
    out_.write(tfevents::record(tfevents::restart_event(wall_(), e->first_step + 1)));
  }
  if (const auto* e = std::get_if<StepDone>(&event)) {
    step_ = e->step;
    const double duration = seconds(e->duration);
    write(e->step, {{"train/loss", e->loss},
                    {"train/accuracy", shows_accuracy_ ? e->accuracy : kUnknown},
                    {"train/rate", e->rate},
                    {"train/samples_per_s", duration > 0 ? static_cast<double>(e->samples) / duration : kUnknown},
                    {"train/communication_share", e->communication_share > 0 ? e->communication_share : kUnknown}});
  }
  if (const auto* e = std::get_if<EpochDone>(&event)) {
    write(step_, {{"epoch/loss", e->train_loss},
                  {"epoch/accuracy", shows_accuracy_ ? e->train_accuracy : kUnknown},
                  {"epoch/seconds", seconds(e->duration)}});
    out_.flush();
  }
  if (const auto* e = std::get_if<Evaluated>(&event)) {
    std::vector<tfevents::Scalar> scalars = {{"test/loss", e->loss}, {"test/accuracy", shows_accuracy_ ? e->accuracy : kUnknown}};
    for (const Measured& metric : e->metrics) scalars.push_back({"test/" + metric.name, metric.value});
    write(e->step, scalars);
    out_.flush();
  }
  if (std::holds_alternative<RunEnded>(event)) out_.flush();
}

void TensorBoard::write(std::int64_t step, const std::vector<tfevents::Scalar>& scalars) {
  std::vector<tfevents::Scalar> known;
  // A loss that is not finite is worth recording; for all other values NaN means that they were not measured.
  for (const tfevents::Scalar& scalar : scalars)
    if (!std::isnan(scalar.value) || scalar.tag.ends_with("/loss")) known.push_back(scalar);
  out_.write(tfevents::record(tfevents::scalar_event(wall_(), step, known)));
}

}  // namespace paceline::observe
