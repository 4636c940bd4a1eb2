// What a comparison found, as a table for the terminal, as JSON, and as report.md with pictures: the slides' tables 3 and 5 (error with its
// deviation and degradation against SGD; what predictors cost) and figures 4 and 6 (error by epoch; predicted and actual losses and steps),
// error against time, loss against samples and bytes, staleness.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "paceline/observe/chart.h"
#include "paceline/train/comparison.h"

namespace paceline::cli {

class CompareReport {
 public:
  /// `executor`: the one that ran the workers of servers, where the recipe leaves the choice.
  CompareReport(const train::Recipe& recipe, const std::string& executor, std::vector<train::Outcome> outcomes);

  nlohmann::ordered_json json() const;
  std::string text() const;
  void write(const std::filesystem::path& folder) const;

 private:
  /// The seeds of one algorithm with one number of workers.
  struct Group {
    std::string algorithm;
    std::int64_t workers = 1;
    std::vector<const train::Outcome*> seeds;
    bool alone() const { return seeds.front()->contestant.alone(); }
  };
  struct Spread {
    double mean = 0, deviation = 0;
  };
  static std::optional<Spread> spread(const Group& group, const std::string& statistics);      // nothing where no seed was evaluated so
  std::optional<double> against_sgd(const Group& group, const std::string& statistics) const;  // in %
  static double mean(const Group& group, double train::Outcome::*figure);  // over the seeds that did not diverge, if any
  const Group* baseline() const;                                           // plain SGD, where it was run
  std::vector<std::int64_t> worker_counts() const;
  std::vector<std::string> statistics() const;  // kinds that were evaluated
  std::string error_cell(const Group& group, const std::string& statistics) const;
  static std::string sent_cell(const Group& group);
  std::string error_table() const;
  std::string stragglers() const;  // which rows had any; empty where none had
  std::string cost_table() const;
  bool served() const;  // some run had a server
  bool sent() const;    // some run had workers that sent something
  using Curve = std::vector<double> train::Outcome::*;
  std::string figure_of(const observe::Axis& x, Curve along, const observe::Axis& y, Curve height) const;
  std::string staleness_figure() const;
  std::string prediction_figure(const train::Outcome& outcome) const;

  std::string title_, setting_;
  std::vector<train::Outcome> outcomes_;
  std::vector<Group> groups_;
};

}  // namespace paceline::cli
