#include "paceline/data_parallel/exchange_program.h"

namespace paceline::data_parallel {

void write_exchange(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, schedule::Action::Lane lane,
                    std::int64_t elements, bool scatters, const std::vector<int>& ready) {
  using Kind = schedule::Action::Exchange;
  using Work = schedule::Action::Work;
  using schedule::CompressedTraffic;
  const double bytes = settings.wire_bytes;
  const std::int64_t part =
      (elements + settings.data - 1) / settings.data;  // the largest part; the buffers of the others have the same size
  const auto talk = [&](Kind exchange, std::int64_t count, double size, const std::vector<int>& after = {}) {
    writer.communicate(lane, exchange, schedule::Action::Axis::data, count, size, after);
  };
  switch (settings.compressed) {
    case CompressedTraffic::none: return talk(scatters ? Kind::reduce_scatter : Kind::allreduce, elements, bytes, ready);
    case CompressedTraffic::averaged:
      for (int round = 0; round < settings.compressed_rounds; ++round) {
        writer.compute(lane, Work::encode, elements, round == 0 ? ready : std::vector<int>());
        talk(Kind::allreduce, elements, bytes / settings.compressed_rounds);
      }
      writer.compute(lane, Work::decode, elements);
      return;
    case CompressedTraffic::sparse:
      writer.compute(lane, Work::encode, elements, ready);
      talk(Kind::all_gather, settings.data, sizeof(std::int64_t));  // the lengths of all workers' codes
      talk(Kind::all_gather, elements * settings.data, bytes);
      writer.compute(lane, Work::decode, elements);
      return;
    case CompressedTraffic::rounded:
    case CompressedTraffic::dense:
      writer.compute(lane, Work::encode, elements, ready);
      talk(Kind::all_to_all, part * settings.data, bytes);
      writer.compute(lane, Work::decode, part * settings.data);
      if (scatters) return;
      if (settings.compressed == CompressedTraffic::dense) writer.compute(lane, Work::encode, part);
      talk(Kind::all_gather, settings.compressed == CompressedTraffic::dense ? part * settings.data : elements, bytes);
      writer.compute(lane, Work::decode, elements);
      return;
  }
}

}  // namespace paceline::data_parallel
