// TensorBoard's event file, without TensorBoard: records of the TFRecord format that hold hand-encoded Event messages.
//
//   record = u64 length | u32 masked crc of the length | data | u32 masked crc of the data        all little-endian
//   masked crc = rotr32(crc32c, 15) + 0xa282ead8
//   Event: wall_time = 1 (double), step = 2 (varint), file_version = 3 (text), summary = 5, session_log = 7; Summary: value = 1; Value:
//   tag = 1, simple_value = 2; SessionLog: status = 1 (START = 1)
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "paceline/observe/event.h"
#include "paceline/observe/output_file.h"

namespace paceline::observe {

namespace tfevents {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

std::string record(std::string_view data);
std::string version_event();  ///< the Event that opens a file; it says which format follows
/// Marks a restart of the run: TensorBoard then ignores what earlier files have from this step on.
std::string restart_event(double wall_time, std::int64_t step);
std::string scalar_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars);

}  // namespace tfevents

class TensorBoard final : public Listener {
 public:
  using WallClock = std::function<double()>;  // seconds since 1970
  static double wall_time();

  /// Writes events.out.tfevents.<time>.<host> in the folder. The clock must outlive the listener.
  TensorBoard(const std::filesystem::path& folder, const Clock& clock, WallClock wall = wall_time);

  void on(const Event& event) override;

 private:
  void write(std::int64_t step, const std::vector<tfevents::Scalar>& scalars);

  WallClock wall_;
  OutputFile out_;
  bool shows_accuracy_ = true;
  std::int64_t step_ = 0;
};

}  // namespace paceline::observe
