// The fuzzer's seeds, without libFuzzer: requests that are in order.
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/convert.h"
#include "server/rpc/requests.h"
#include "trainer/base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lenet {
namespace {

TEST(RequestsSeedsTest, PassTheFuzzTargetAndAreTaken) {
  int seeds = 0;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(LENET_TEST_DATA "/requests")) {
    const std::string content = ReadFile(entry.path(), 20'000).value();
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size()), 0);
    const std::string message = content.substr(1);
    absl::Status status;
    v1::StartRequest start;
    v1::ListJobsRequest list;
    v1::StreamMetricsRequest stream;
    switch (content[0]) {
      case 0:
        ASSERT_TRUE(start.ParseFromString(message));
        status = ToTrainSpec(start.spec()).status();
        break;
      case 1:
        ASSERT_TRUE(list.ParseFromString(message));
        status = ToQuery(list).status();
        break;
      default:
        ASSERT_TRUE(stream.ParseFromString(message));
        status = ToWishes(stream).status();
    }
    EXPECT_TRUE(status.ok()) << entry.path() << ": " << status;
    ++seeds;
  }
  EXPECT_EQ(seeds, 9);
}

TEST(ToQueryTest, KeepsEachStateOnce) {
  v1::ListJobsRequest request;
  for (int i = 0; i < 100'000; ++i) request.add_states(i % 2 == 0 ? v1::QUEUED : v1::RUNNING);
  EXPECT_EQ(ToQuery(request)->states, (std::vector{v1::QUEUED, v1::RUNNING}));
}

TEST(ClientOfTest, IsTheAddressWithoutThePort) {
  EXPECT_EQ(ClientOf("ipv4:127.0.0.1:40112"), "127.0.0.1");
  EXPECT_EQ(ClientOf("ipv6:[::1]:40112"), "[::1]");
  EXPECT_EQ(ClientOf("unix:"), "unix");
  EXPECT_EQ(ClientOf("unix:/run/lenetd"), "unix");
  EXPECT_EQ(ClientOf("unix-abstract:name"), "unix");
  EXPECT_EQ(ClientOf(""), "");
}

TEST(NetworkOfTest, IsTheFirstHalfOfAnIpv6Address) {
  for (const char* address : {"2001:db8:1:2:3:4:5:6", "[2001:db8:1:2::7]", "%5B2001:db8:1:2::7%5D"}) {
    EXPECT_EQ(NetworkOf(address), "2001:db8:1:2::/64") << address;
  }
  EXPECT_EQ(NetworkOf("%5Bfe80::1%25eth0%5D"), "fe80::/64");
  EXPECT_EQ(NetworkOf("::ffff:10.0.0.1"), "10.0.0.1");
  for (const char* other : {"127.0.0.1", "unix", "unix:7", ""}) EXPECT_EQ(NetworkOf(other), other);
}

}  // namespace
}  // namespace lenet
