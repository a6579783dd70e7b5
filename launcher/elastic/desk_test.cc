#include "launcher/elastic/desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/transport/job_number.h"

namespace hvd::launcher::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Asks = Desk::Request;
constexpr WorkerId kOne{.host = 0, .slot = 1};
constexpr WorkerId kTwo{.host = 1, .slot = 0, .incarnation = 2};

class DeskTest : public ::testing::Test {
 protected:
  void ask(const WorkerId& worker, const std::string& request) {
    store.set(elastic_asks_key(worker), as_bytes(to_text(PlaceRequest{request, "1.0"})));
  }
  std::optional<Place> answer(const WorkerId& worker, const std::string& request) {
    const auto bytes = store.peek(elastic_place_key(worker, request));
    if (!bytes) return std::nullopt;
    return read_place(*bytes);
  }

  StoreServer store{make_job_key(), "127.0.0.1", 0};
  Desk desk{store};
};

TEST_F(DeskTest, ARequestIsTakenOnce) {
  EXPECT_THAT(desk.take_requests(), IsEmpty());
  ask(kOne, "8-1");
  ask(kTwo, "9-1");
  EXPECT_THAT(desk.take_requests(), ElementsAre(Asks{kOne, "1.0"}, Asks{kTwo, "1.0"}));
  EXPECT_THAT(desk.take_requests(), IsEmpty());
  ask(kOne, "8-2");
  EXPECT_THAT(desk.take_requests(), ElementsAre(Asks{kOne, "1.0"}));
}

TEST_F(DeskTest, WhatIsNoRequestIsIgnored) {
  store.set("elastic/asks/nobody", as_bytes("1"));
  ask(kOne, std::string(1000, 'x'));
  store.set(elastic_asks_key(kTwo), as_bytes("9-1"));
  EXPECT_THAT(desk.take_requests(), IsEmpty());
}

TEST_F(DeskTest, ADepartureIsTakenOnce) {
  EXPECT_THAT(desk.take_departures(), IsEmpty());
  store.set(elastic_leaves_key(kTwo), {});
  store.set("elastic/leaves/nobody", {});
  EXPECT_THAT(desk.take_departures(), ElementsAre(kTwo));
  EXPECT_THAT(desk.take_departures(), IsEmpty());
  EXPECT_THAT(store.matching(kElasticLeaves), IsEmpty());
}

TEST_F(DeskTest, AnAnswerReplacesTheOneBefore) {
  ask(kOne, "8-1");
  desk.take_requests();
  desk.give_place(kOne, {{"HOROVOD_RANK", "1"}});
  EXPECT_EQ(answer(kOne, "8-1")->variables.at("HOROVOD_RANK"), "1");
  ask(kOne, "8-2");
  desk.take_requests();
  desk.give_place(kOne, {{"HOROVOD_RANK", "0"}});
  EXPECT_EQ(answer(kOne, "8-1"), std::nullopt);
  EXPECT_EQ(answer(kOne, "8-2")->variables.at("HOROVOD_RANK"), "0");
}

TEST_F(DeskTest, ARefusedWorkerIsAnsweredNowAndLater) {
  ask(kOne, "8-1");
  desk.take_requests();
  desk.refuse(kOne, "removed");
  desk.refuse(kTwo, "removed too");
  EXPECT_EQ(answer(kOne, "8-1"), Place{.refusal = "removed"});
  ask(kTwo, "9-1");
  EXPECT_THAT(desk.take_requests(), IsEmpty());
  EXPECT_EQ(answer(kTwo, "9-1")->refusal, "removed too");
}

TEST_F(DeskTest, AnIgnoredWorkerIsNotAnswered) {
  ask(kOne, "8-1");
  desk.take_requests();
  desk.ignore(kOne);
  desk.ignore(kTwo);
  desk.close("the job ends");
  ask(kTwo, "9-1");
  EXPECT_THAT(desk.take_requests(), IsEmpty());
  EXPECT_EQ(answer(kOne, "8-1"), std::nullopt);
  EXPECT_EQ(answer(kTwo, "9-1"), std::nullopt);
}

TEST_F(DeskTest, AClosedDeskRefusesEverybodyForItsFirstReason) {
  ask(kOne, "8-1");
  desk.take_requests();
  desk.close("the job ends");
  desk.close("again");
  ask(kTwo, "9-1");
  EXPECT_THAT(desk.take_requests(), IsEmpty());
  const Place refused{.refusal = "the job ends", .job_ends = true};
  EXPECT_EQ(answer(kOne, "8-1"), refused);
  EXPECT_EQ(answer(kTwo, "9-1"), refused);
}

TEST_F(DeskTest, APlaceBeginsWithTheNextAnnouncement) {
  desk.announce({.added = true, .timestamp = 1});
  EXPECT_TRUE(store.peek(elastic_news_key(1)));
  ask(kOne, "8-1");
  desk.take_requests();
  desk.give_place(kOne, {});
  EXPECT_EQ(answer(kOne, "8-1")->news, 2u);
}

TEST_F(DeskTest, WhatEarlierGenerationsHadIsForgotten) {
  desk.announce({.added = true});
  store.set(store_key(job_number(1, 1), "table"), as_bytes("x"));
  store.set(store_key(job_number(2, 1), "table"), as_bytes("y"));
  desk.forget_before(2);
  EXPECT_FALSE(store.peek(elastic_news_key(1)));
  EXPECT_FALSE(store.peek(store_key(job_number(1, 1), "table")));
  EXPECT_TRUE(store.peek(store_key(job_number(2, 1), "table")));
}

}  // namespace
}  // namespace hvd::launcher::elastic
