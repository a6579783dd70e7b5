#include "core/transport/elastic_messages.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd {
namespace {

TEST(WorkerId, IsAText) {
  const WorkerId worker{.host = 3, .slot = 12, .incarnation = 1};
  EXPECT_EQ(to_text(worker), "3/12/1");
  EXPECT_EQ(worker_from("3/12/1"), worker);
  for (const char* other :
       {"", "1", "1/2", "1/2/", "1/2/3/", "1/2/3/4", "a/2/3", "1/-2/3", "1 2 3", "99999999999/1/1"})
    EXPECT_FALSE(worker_from(other)) << other;
}

TEST(ElasticMessages, ArriveAsTheyWere) {
  const PlaceRequest request{.id = "8-1", .version = "1.0.0"};
  EXPECT_EQ(place_request_from(to_text(request)), request);
  const Place place{.news = 7, .variables = {{"HOROVOD_RANK", "2"}, {"HOROVOD_SIZE", "3"}}};
  EXPECT_EQ(read_place(to_bytes(place)), place);
  const Place refused{.refusal = "this host was removed", .job_ends = true};
  EXPECT_EQ(read_place(to_bytes(refused)), refused);
  const ElasticUpdate update{.added = true, .removed = false, .timestamp = 1.5};
  EXPECT_EQ(read_elastic_update(to_bytes(update)), update);
}

TEST(ElasticMessages, RefuseOtherBytes) {
  EXPECT_EQ(place_request_from("8-1"), std::nullopt);
  EXPECT_EQ(place_request_from("8-1 " + std::string(1000, 'x')), std::nullopt);
  const ByteVector place = to_bytes(Place{.variables = {{"NAME", "value"}}});
  for (size_t size = 0; size < place.size(); ++size)
    EXPECT_THROW(read_place(ConstBytes(place).first(size)), Error) << size;
  const ByteVector update = to_bytes(ElasticUpdate{});
  for (size_t size = 0; size < update.size(); ++size)
    EXPECT_THROW(read_elastic_update(ConstBytes(update).first(size)), Error) << size;
}

TEST(ElasticMessages, HaveKeysOfTheirOwn) {
  const WorkerId worker{.host = 1, .slot = 2, .incarnation = 0};
  EXPECT_EQ(elastic_asks_key(worker), "elastic/asks/1/2/0");
  EXPECT_EQ(elastic_leaves_key(worker), "elastic/leaves/1/2/0");
  EXPECT_EQ(elastic_place_key(worker, "8-1"), "elastic/place/1/2/0/8-1");
  EXPECT_EQ(elastic_news_key(1), "elastic/news/1");
}

}  // namespace
}  // namespace hvd
