// A study as tables, figures and one page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paceline/perf/ccgrid2019.h"

namespace paceline::cli {

/// The one document: settings, conclusions, and the tables as lists of rows.
nlohmann::ordered_json study_json(const perf::Study& study);

/// The rows of one table, all with the keys of the first.
std::string csv_of(const nlohmann::ordered_json& rows);

/// What the terminal shows: the step times at the study's point, and the conclusions.
std::string study_text(const perf::Study& study);

struct StudyFigure {
  std::string name;     // file name without the extension
  std::string caption;  // what to see in it
  std::string svg;
};
std::vector<StudyFigure> study_figures(const perf::Study& study);

/// One HTML page with every figure and the tables that are short enough.
std::string study_page(const perf::Study& study, const std::vector<StudyFigure>& figures);

/// The tables of the document that are written as CSV files.
inline constexpr const char* kStudyTables[] = {"steps", "intensity", "fusion", "schedules"};

}  // namespace paceline::cli
