#include "paceline/comm/nearest_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "ranks.h"
#include "tests/message_of.h"

namespace paceline::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Places = std::map<int, MeshPlace>;

/// Every rank's place, and that its communicators know it.
Places places_of(int ranks, const MeshSizes& sizes, const CommConfig& config = {}) {
  Places places;
  std::mutex mutex;
  const auto problems = play(ranks, config, [&](Communicator& comm) {
    const Mesh mesh(comm, sizes);
    const MeshPlace place = mesh.place_of(comm.rank());
    EXPECT_EQ(mesh.rank_at(place), comm.rank());
    EXPECT_EQ(mesh.data().rank(), place.data);
    EXPECT_EQ(mesh.pipeline().rank(), place.pipeline);
    EXPECT_EQ(mesh.tensor().rank(), place.tensor);
    EXPECT_EQ(mesh.data().size(), mesh.sizes().data);
    EXPECT_EQ(mesh.pipeline().size(), mesh.sizes().pipeline);
    EXPECT_EQ(mesh.tensor().size(), mesh.sizes().tensor);
    const std::lock_guard lock(mutex);
    places[comm.rank()] = place;
  });
  EXPECT_THAT(problems, Each(""));
  return places;
}

TEST(Mesh, OfDataAloneIsTheCommunicatorItself) {
  for (const int ranks : {1, 2, 4, 8}) {
    const auto problems = play(ranks, {}, [&](Communicator& comm) {
      const Mesh mesh(comm);
      EXPECT_EQ(&mesh.data(), &comm);
      EXPECT_EQ(mesh.sizes(), (MeshSizes{.data = ranks, .pipeline = 1, .tensor = 1}));
    });
    EXPECT_THAT(problems, Each(""));
  }
}

// It is not collective: a rank may make one while others do not.
TEST(Mesh, OfDataAloneExchangesNothing) {
  const auto problems = play(3, {}, [&](Communicator& comm) {
    if (comm.rank() != 1) return;
    EXPECT_EQ(Mesh(comm).data().size(), 3);
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Mesh, AnAxisOfOneIsACommunicatorOfOne) {
  const auto problems = play(2, {}, [](Communicator& comm) {
    const Mesh mesh(comm);
    for (Communicator* const alone : {&mesh.pipeline(), &mesh.tensor()}) {
      EXPECT_EQ(alone->size(), 1);
      EXPECT_EQ(alone->engine(), comm.engine());
      EXPECT_EQ(alone->name_in_run(0), comm.rank());
      std::vector<float> values{3, 5}, exchanged(2);
      alone->run(allreduce(values, {.op = ReduceOp::mean, .root = 0, .algorithm = {}, .deadline = {}}));
      alone->start(broadcast(values)).wait();
      alone->run(all_to_all(values, exchanged));
      alone->run(barrier());
      EXPECT_EQ(values, (std::vector<float>{3, 5}));
      EXPECT_EQ(exchanged, values);
      EXPECT_EQ(alone->split(4, 0)->size(), 1);
      EXPECT_THROW(alone->run(send(values, 1)), ConfigError);
    }
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Mesh, HasTensorInsideDataInsidePipeline) {
  const Places places = places_of(8, {.data = 2, .pipeline = 2, .tensor = 2});
  EXPECT_EQ(places.at(1), (MeshPlace{.data = 0, .pipeline = 0, .tensor = 1}));
  EXPECT_EQ(places.at(2), (MeshPlace{.data = 1, .pipeline = 0, .tensor = 0}));
  EXPECT_EQ(places.at(4), (MeshPlace{.data = 0, .pipeline = 1, .tensor = 0}));
  EXPECT_EQ(places.at(7), (MeshPlace{.data = 1, .pipeline = 1, .tensor = 1}));
}

TEST(Mesh, EveryShapeHasEveryRankOnce) {
  for (const int ranks : {1, 2, 4, 8})
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
      for (int pipeline = 1; pipeline <= ranks / tensor; pipeline *= 2) {
        const Places places = places_of(ranks, {.data = 0, .pipeline = pipeline, .tensor = tensor});
        std::set<std::tuple<int, int, int>> seen;
        for (const auto& [rank, place] : places) seen.insert({place.data, place.pipeline, place.tensor});
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(ranks)) << pipeline << " " << tensor;
      }
}

// As under mpirun --map-by node: ranks 0 and 2 on one host, 1 and 3 on the other.
TEST(Mesh, KeepsTheTensorAxisInsideAHostWhereRanksAreScattered) {
  CommConfig config;
  config.per_host = 2;
  const auto problems = play(4, config, [](Communicator& comm) {
    const auto cyclic = comm.split(0, comm.rank() % 2);
    const Mesh mesh(*cyclic, {.tensor = 2});
    const std::vector<int> hosts = mesh.tensor().hosts();
    EXPECT_EQ(hosts[0], hosts[1]);
    EXPECT_EQ(mesh.rank_at({.data = 0, .pipeline = 0, .tensor = 1}), 2);
    std::vector<std::int32_t> sum{cyclic->rank()};
    mesh.tensor().run(allreduce(sum));
    EXPECT_EQ(sum[0], cyclic->rank() % 2 == 0 ? 0 + 2 : 1 + 3);
    EXPECT_THAT(mesh.describe(), AllOf(HasSubstr("data 0: rank 0 2 on host 0"), HasSubstr("data 1: rank 1 3 on host 1")));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Mesh, ShowsWhoIsWhere) {
  CommConfig config;
  config.per_host = 4;
  const auto problems = play(8, config, [](Communicator& comm) {
    const Mesh mesh(comm, {.pipeline = 2, .tensor = 2});
    EXPECT_THAT(mesh.describe(),
                AllOf(HasSubstr("8 ranks on 2 hosts"), HasSubstr("data 2 × pipeline 2 × tensor 2"),
                      HasSubstr("pipeline 0 data 1: rank 2 3 on host 0"), HasSubstr("pipeline 1 data 0: rank 4 5 on host 1")));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Mesh, RefusesSizesThatDoNotMultiplyToTheNumberOfRanks) {
  play(1, {}, [](Communicator& comm) {
    const auto refusal = [&](const MeshSizes& sizes) { return message_of<ConfigError>([&] { const Mesh mesh(comm, sizes); }); };
    EXPECT_THAT(refusal({.data = 2}), AllOf(HasSubstr("data=2"), HasSubstr("1 ranks"), HasSubstr("is 2")));
    EXPECT_THAT(refusal({.data = 1, .pipeline = 0, .tensor = 0}),
                AllOf(HasSubstr("only one axis"), HasSubstr("data=1,pipeline=1,tensor=1")));
    EXPECT_THAT(refusal({.data = -1}), HasSubstr("data=-1"));
  });
  EXPECT_THAT(message_of<ConfigError>([] { resolved({}, 0); }), AllOf(HasSubstr("0 ranks"), HasSubstr("at least 1")));
  play(4, {}, [](Communicator& comm) {
    const auto refusal = [&](const MeshSizes& sizes) { return message_of<ConfigError>([&] { const Mesh mesh(comm, sizes); }); };
    EXPECT_THAT(refusal({.tensor = 3}), AllOf(HasSubstr("tensor=3"), HasSubstr("4 ranks"), HasSubstr("data=1,pipeline=1,tensor=4")));
    EXPECT_THAT(refusal({.data = 2}), AllOf(HasSubstr("data=2"), HasSubstr("4 ranks")));
    EXPECT_THAT(refusal({.data = 0, .pipeline = 8}), HasSubstr("pipeline=8"));
  });
}

TEST(Mesh, TheDefaultRestGivesWayToOneThatIsAskedFor) {
  EXPECT_EQ(resolved({.tensor = 0}, 3), (MeshSizes{1, 1, 3}));
  EXPECT_EQ(resolved({.pipeline = 0, .tensor = 2}, 6), (MeshSizes{1, 3, 2}));
  EXPECT_EQ(resolved(parse_mesh("tensor=0"), 4), (MeshSizes{1, 1, 4}));
  EXPECT_EQ(resolved({.data = 2, .tensor = 0}, 6), (MeshSizes{2, 1, 3}));
}

TEST(NearestMesh, HasSizesOfSimilarProportions) {
  const auto any = [](const MeshSizes&) { return true; };
  EXPECT_EQ(nearest_mesh({.pipeline = 8}, 8, any), (MeshSizes{1, 8, 1}));
  EXPECT_EQ(nearest_mesh({.pipeline = 3}, 8, any), (MeshSizes{2, 4, 1}));
  EXPECT_EQ(nearest_mesh({.tensor = 5}, 6, any), (MeshSizes{1, 1, 6}));
  EXPECT_EQ(nearest_mesh({.data = 2, .pipeline = 1, .tensor = 1}, 3, any), (MeshSizes{3, 1, 1}));
  EXPECT_EQ(nearest_mesh({.data = 2, .pipeline = 2, .tensor = 2}, 6, any), (MeshSizes{3, 1, 2})) << "among equally near ones";
  EXPECT_EQ(mesh_text({2, 4, 1}), "data=2,pipeline=4,tensor=1");
  EXPECT_EQ(parse_mesh(mesh_text({2, 4, 1})), (MeshSizes{2, 4, 1}));
}

TEST(NearestMesh, IsAccepted) {
  const auto four_heads = [](const MeshSizes& mesh) { return 4 % mesh.tensor == 0 && mesh.pipeline <= 7; };
  EXPECT_EQ(nearest_mesh({.tensor = 4}, 6, four_heads), (MeshSizes{3, 1, 2}));
  EXPECT_EQ(nearest_mesh({.tensor = 3}, 3, four_heads), (MeshSizes{3, 1, 1}));
  EXPECT_EQ(nearest_mesh({.pipeline = 8}, 8, four_heads), (MeshSizes{2, 4, 1}));
  EXPECT_EQ(nearest_mesh({.tensor = 0}, 6, four_heads), (MeshSizes{3, 1, 2})) << "data is 1 there";
  EXPECT_EQ(nearest_mesh({.tensor = 3}, 3, [](const MeshSizes&) { return false; }), std::nullopt);
}

TEST(Mesh, IsReadFromText) {
  EXPECT_EQ(parse_mesh("data=2,pipeline=3,tensor=4"), (MeshSizes{2, 3, 4}));
  EXPECT_EQ(parse_mesh("tensor=2"), (MeshSizes{.tensor = 2}));
  EXPECT_EQ(parse_mesh("pipeline=0,data=1"), (MeshSizes{.data = 1, .pipeline = 0}));
  for (const std::string text :
       {"", "tensor", "tensor=", "tensor=x", "tensor=2x", "tensor=-1", "rows=2", "data=2,", "data=99999999999", "data=2,tensor=2,data=2"})
    EXPECT_THAT(message_of<ConfigError>([&] { parse_mesh(text); }), AllOf(HasSubstr("'" + text + "'"), HasSubstr("data=2"))) << text;
}

TEST(Mesh, RefusesSizesThatDifferFromRankToRank) {
  const auto problems = play(
      4, {}, [](Communicator& comm) { const Mesh mesh(comm, {.pipeline = comm.rank() == 3 ? 2 : 1, .tensor = comm.rank() == 3 ? 1 : 2}); });
  EXPECT_THAT(problems, Each(AllOf(HasSubstr("pipeline is 1"), HasSubstr("and 2 on another"))));
}

TEST(Mesh, NamesRanksOfTheRunInItsErrors) {
  const auto problems = play(4, {}, [](Communicator& comm) {
    const Mesh mesh(comm, {.tensor = 2});
    if (comm.rank() == 3) throw Error("this rank has a bug");
    if (comm.rank() == 2) {
      std::vector<float> values(10);
      mesh.tensor().run(allreduce(values));
    }
  });
  EXPECT_THAT(problems[2], HasSubstr("rank 3"));
}

}  // namespace
}  // namespace paceline::comm
