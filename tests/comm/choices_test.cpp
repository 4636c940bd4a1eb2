// That `auto` still chooses what it chose: another choice adds in another order, and so changes the bits of every run that relies on it.
// A change of costs that is meant to change choices changes this table too.
#include <gtest/gtest.h>

#include <string>

#include "paceline/comm/tuning.h"

namespace paceline::comm {
namespace {

using schedule::Collective;

/// By four, sixteen, … 64 Mi bytes, the first letter of: direct, ring, bucket, tree, bUtterfly, reCursive_doubling, double_binary_tree (x),
/// hierarchical, tOrus2d.
constexpr struct {
  bool network;
  Collective collective;
  int size;
  const char* choices;
} kChoices[] = {
    {false, Collective::allreduce, 2, "ccccccddddddd"},       {false, Collective::allreduce, 3, "cddddddrrrrrr"},
    {false, Collective::allreduce, 4, "ccccccuuuuuuu"},       {false, Collective::allreduce, 5, "ccccccddrrrrr"},
    {false, Collective::allreduce, 8, "ccccccuuuuuuu"},       {false, Collective::allreduce, 12, "ccccccuoooooo"},
    {false, Collective::allreduce, 17, "ccccccuudrrrr"},      {false, Collective::reduce_scatter, 2, "ddddddddddddd"},
    {false, Collective::reduce_scatter, 3, "dddddddrrrrrr"},  {false, Collective::reduce_scatter, 4, "uuuuuuuuuuuuu"},
    {false, Collective::reduce_scatter, 5, "dddddddrrrrrr"},  {false, Collective::reduce_scatter, 8, "uuuuuuuuuuuuu"},
    {false, Collective::reduce_scatter, 12, "uoooooooooooo"}, {false, Collective::reduce_scatter, 17, "uuuuuuuurrrrr"},
    {false, Collective::all_gather, 2, "ddddddddddddd"},      {false, Collective::all_gather, 3, "ddddddddddddd"},
    {false, Collective::all_gather, 4, "udddddddddddd"},      {false, Collective::all_gather, 5, "ddddddddddddd"},
    {false, Collective::all_gather, 8, "uuuuuuuuuuuuu"},      {false, Collective::all_gather, 12, "uoooooooooooo"},
    {false, Collective::all_gather, 17, "uuuuuuudddddd"},     {false, Collective::broadcast, 2, "ddddddddddddd"},
    {false, Collective::broadcast, 3, "dddddddxxrrrr"},       {false, Collective::broadcast, 4, "ttttttttxxrrx"},
    {false, Collective::broadcast, 5, "ddddddtxbxrrx"},       {false, Collective::broadcast, 8, "ttttttttxxxxx"},
    {false, Collective::broadcast, 12, "ttttttttxxxxx"},      {false, Collective::broadcast, 17, "ttttttttbxxxx"},
    {false, Collective::reduce, 2, "ddddddddbbbbb"},          {false, Collective::reduce, 3, "ddddddxbbbbrx"},
    {false, Collective::reduce, 4, "tttttttbbbrrr"},          {false, Collective::reduce, 5, "dddddttbbbrrr"},
    {false, Collective::reduce, 8, "ttttttttbbrrr"},          {false, Collective::reduce, 12, "ttttttttbbrrr"},
    {false, Collective::reduce, 17, "ttttttttbbbrr"},         {true, Collective::allreduce, 2, "ccccccccddddd"},
    {true, Collective::allreduce, 3, "ddddddddddrrr"},        {true, Collective::allreduce, 4, "cccccccdduuuu"},
    {true, Collective::allreduce, 5, "ddddddddddrrr"},        {true, Collective::allreduce, 8, "cccccccdduuuu"},
    {true, Collective::allreduce, 12, "cccccdddddooo"},       {true, Collective::allreduce, 17, "ccccccdddddrr"},
    {true, Collective::reduce_scatter, 2, "ddddddddddddd"},   {true, Collective::reduce_scatter, 3, "dddddddddrrrr"},
    {true, Collective::reduce_scatter, 4, "ddddddddduuuu"},   {true, Collective::reduce_scatter, 5, "ddddddddddrrr"},
    {true, Collective::reduce_scatter, 8, "ddddddddduuuu"},   {true, Collective::reduce_scatter, 12, "dddddddddoooo"},
    {true, Collective::reduce_scatter, 17, "dddddddddddrr"},  {true, Collective::all_gather, 2, "ddddddddddddd"},
    {true, Collective::all_gather, 3, "ddddddddddddd"},       {true, Collective::all_gather, 4, "ddddddddddddd"},
    {true, Collective::all_gather, 5, "ddddddddddddd"},       {true, Collective::all_gather, 8, "ddddddddddddd"},
    {true, Collective::all_gather, 12, "ddddddddddddd"},      {true, Collective::all_gather, 17, "ddddddddddddd"},
    {true, Collective::broadcast, 2, "ddddddddddddd"},        {true, Collective::broadcast, 3, "ddddddddxxrrx"},
    {true, Collective::broadcast, 4, "dddddddtxxrrx"},        {true, Collective::broadcast, 5, "dddddddxbxrrx"},
    {true, Collective::broadcast, 8, "ddddddttxxxxx"},        {true, Collective::broadcast, 12, "ddddddttxxxxx"},
    {true, Collective::broadcast, 17, "ddddddtxxxxxx"},       {true, Collective::reduce, 2, "ddddddddddbbb"},
    {true, Collective::reduce, 3, "dddddddxxxrrx"},           {true, Collective::reduce, 4, "dddddddtxxrrr"},
    {true, Collective::reduce, 5, "dddddddxbxrrr"},           {true, Collective::reduce, 8, "ddddddttxxxrx"},
    {true, Collective::reduce, 12, "ddddddttxxxxx"},          {true, Collective::reduce, 17, "dddddttxxxxxx"},
};

char letter_of(const std::string& key) {
  if (key == "butterfly") return 'u';
  if (key == "recursive_doubling") return 'c';
  if (key == "double_binary_tree") return 'x';
  if (key == "torus2d") return 'o';
  return key.front();
}

TEST(Choices, AreWhatTheyWere) {
  for (const auto& row : kChoices)
    for (const int per_host : {1, 3}) {
      // Of an allreduce across hosts of several ranks, `auto` asks no costs.
      if (per_host > 1 && (row.collective == Collective::allreduce || row.size < 4)) continue;
      std::string choices;
      for (std::int64_t bytes = 4; bytes <= (64 << 20); bytes *= 4)
        choices += letter_of(cheapest(built_in_costs(row.network, {}, {}),
                                      {.collective = row.collective, .size = row.size, .count = bytes / 4, .per_host = per_host}, 4));
      EXPECT_EQ(choices, row.choices) << name_of(row.collective) << " of " << row.size << (row.network ? ", network" : ", memory");
    }
}

}  // namespace
}  // namespace paceline::comm
