#include "server/telemetry/rpc_counters.h"

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(RpcCountersTest, AMethodIsFoundByItsPathAndAllOthersShareOne) {
  RpcCounters counters({{.service = "a.S", .method = "M"}, {.service = "a.S", .method = "N", .streams = true}});
  EXPECT_EQ(counters.Find("/a.S/M")->name.method, "M");
  EXPECT_TRUE(counters.Find("/a.S/N")->name.streams);
  RpcMethodCounters* const unknown = counters.Find("/a.S/O");
  EXPECT_EQ(unknown->name.method, "unknown");
  for (const char* path : {"", "/", "a.S/M", "/a.S/M/", "/unknown/other"}) EXPECT_EQ(counters.Find(path), unknown);
  EXPECT_EQ(counters.methods().size(), 3u);
}

}  // namespace
}  // namespace lenet
