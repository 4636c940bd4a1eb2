// What a comparison found, as a table for the terminal, as JSON, and as report.md with figures: the slides' tables 3 and 5 (error with its
// deviation and degradation against SGD; what predictors cost) and figures 4 and 6 (error by epoch; predicted and actual losses and steps),
// error against time, loss against samples and bytes, staleness; what was chosen on held-out data; paired differences; times to accuracies.
//
// The report marks every number as measured, or as a consequence of what [timing] assumes.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "paceline/observe/chart.h"
#include "paceline/train/comparison.h"
#include "paceline/train/paired.h"

namespace paceline::cli {

class CompareReport {
 public:
  /// `executor`: the one that ran the workers of servers, if the recipe leaves that choice open.
  CompareReport(const train::Recipe& recipe, const std::string& executor, train::Comparison found);

  nlohmann::ordered_json json() const;
  std::string text() const;
  void write(const std::filesystem::path& folder) const;

 private:
  /// All seeds of one algorithm with one worker count by one clock.
  struct Group {
    std::string algorithm, clock;
    std::int64_t workers = 1;
    std::vector<const train::Outcome*> seeds;
    bool alone() const { return seeds.front()->contestant.alone(); }
    std::string name() const;   // "asgd on 4 workers, slow"
    std::string point() const;  // the settings that were chosen for it
  };
  struct Spread {
    double mean = 0, deviation = 0;
  };
  /// An algorithm compared with a reference, seed by seed.
  struct Pairing {
    const Group *group, *reference;
    train::Difference error;                 // in percentage points of test error
    std::vector<train::Difference> seconds;  // to reach each accuracy
  };
  static std::optional<Spread> spread(const Group& group, const std::string& statistics);      // nullopt if no seed was evaluated that way
  std::optional<double> against_sgd(const Group& group, const std::string& statistics) const;  // in percent
  static double mean(const Group& group, double train::Outcome::*figure);                      // over the seeds that did not diverge
  const Group* baseline(const Group& of) const;  // plain SGD by the same clock; null if it was not run
  bool has_baseline() const;
  std::vector<Pairing> pairings() const;
  std::vector<std::pair<std::string, std::int64_t>> panels() const;  // clocks and worker counts
  std::vector<std::string> statistics() const;                       // the kinds of statistics that were evaluated
  bool served() const;                                               // whether any run had a server
  bool sent() const;                                                 // whether workers sent anything in any run
  bool clocks() const;                                               // whether there are several

  // tables, in Markdown (compare_tables.cpp)
  std::string error_cell(const Group& group, const std::string& statistics) const;
  static std::string sent_cell(const Group& group);
  std::string first_cells(const Group& group) const;                    // clock, workers, algorithm
  std::string table_head(const std::vector<std::string>& names) const;  // of the columns after those
  std::string error_table() const;
  std::string choice_table() const;
  std::string difference_table() const;
  std::string time_table() const;
  std::string cost_table() const;
  std::string predictor_table() const;
  std::string measured_and_assumed() const;
  std::string stragglers() const;  // which rows had stragglers; empty if none had

  // figures (compare_figures.cpp)
  using Curve = std::vector<double> train::Outcome::*;
  std::string figure_of(const observe::Axis& x, Curve along, const observe::Axis& y, Curve height) const;
  std::string staleness_figure() const;
  std::string prediction_figure(const train::Outcome& outcome) const;

  train::Recipe recipe_;
  std::string title_, setting_;
  train::Comparison found_;
  std::vector<Group> groups_;
};

constexpr const char* kNotMeasured = "-";

/// Column headings for the kinds of statistics.
std::string statistics_heading(const std::string& statistics);
std::string number_cell(double number, int digits);

}  // namespace paceline::cli
