#include "client/ctl/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/ctl/exit_code.h"
#include "tests/unit/client/ctl/app_fixture.h"

namespace lenet::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ControlTest : public AppTest {
 protected:
  void PutJob(const std::string& id, v1::JobState state, const std::string& reason = "") {
    v1::Job job = ResolvedJob(id, 10);
    job.set_state(state);
    job.set_reason(reason);
    job.mutable_progress()->set_step(7);
    service_.PutJob(job);
  }
};

TEST_F(ControlTest, Stop) {
  PutJob("a", v1::RUNNING);
  EXPECT_EQ(Run("stop a", &file_), kSuccess);
  EXPECT_EQ(file_.out, "job a: stopped at step 7\n");
  FakeFile json;
  EXPECT_EQ(Run("stop a --abort --wait --json", &json), kSuccess);
  EXPECT_EQ(JsonLines(json.out)[0]["state"], "STOPPED");
  ASSERT_EQ(service_.stops().size(), 2u);
  EXPECT_EQ(service_.stops()[0].mode(), v1::StopRequest::CHECKPOINT);
  EXPECT_EQ(service_.stops()[1].mode(), v1::StopRequest::ABORT);
  EXPECT_TRUE(service_.stops()[1].wait());
  EXPECT_EQ(Run("stop x", &file_), kError);
}

TEST_F(ControlTest, PauseAndResumeTakeSeveralJobs) {
  PutJob("a", v1::RUNNING, "because");
  PutJob("b", v1::QUEUED);
  EXPECT_EQ(Run("pause a b", &file_), kSuccess) << file_.err;
  EXPECT_EQ(file_.out, "job a: paused at step 7: because\njob b: paused at step 7\n");
  FakeFile json;
  EXPECT_EQ(Run("--json resume b a", &json), kSuccess) << json.err;
  const std::vector<nlohmann::json> jobs = JsonLines(json.out);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["id"], "b");
  EXPECT_EQ(jobs[1]["state"], "QUEUED");
  EXPECT_THAT(service_.controls(), ElementsAre("pause a", "pause b", "resume b", "resume a"));
}

TEST_F(ControlTest, AJobThatIsRefusedDoesNotKeepTheOthers) {
  PutJob("a", v1::SUCCEEDED);
  PutJob("b", v1::RUNNING);
  EXPECT_EQ(Run("pause a x b", &file_), kError);
  EXPECT_EQ(file_.out, "job b: paused at step 7\n");
  EXPECT_EQ(file_.err, absl::StrCat("lenetctl: server ", server_->address(),
                                    ": job a is SUCCEEDED (FAILED_PRECONDITION)\nlenetctl: server ", server_->address(),
                                    ": no job x (NOT_FOUND)\n"));
  EXPECT_EQ(service_.jobs()[1].state(), v1::PAUSED);
}

TEST_F(ControlTest, RemoveForgetsEndedJobsAndNamesTheStateOfOthers) {
  PutJob("a", v1::SUCCEEDED);
  PutJob("b", v1::RUNNING);
  PutJob("c", v1::FAILED);
  EXPECT_EQ(Run("rm a b c", &file_), kError);
  EXPECT_EQ(file_.out, "job a: removed\njob c: removed\n");
  EXPECT_THAT(file_.err, HasSubstr("job b is RUNNING (FAILED_PRECONDITION)"));
  ASSERT_EQ(service_.jobs().size(), 1u);
  EXPECT_EQ(service_.jobs()[0].id(), "b");
  PutJob("a", v1::STOPPED);
  FakeFile json;
  EXPECT_EQ(Run("rm a --json", &json), kSuccess);
  EXPECT_THAT(json.out, IsEmpty());
}

TEST_F(ControlTest, AServerThatIsNotThereIsAskedOnce) {
  PutJob("a", v1::RUNNING);
  service_.FailCalls(1000, /*after_effect=*/false);
  EXPECT_EQ(Run("resume a b c --timeout 0.3", &file_), kUnreachable);
  EXPECT_EQ(std::count(file_.err.begin(), file_.err.end(), '\n'), 1) << file_.err;
}

TEST_F(ControlTest, PauseWaitsUnlessATimeIsGiven) {
  PutJob("a", v1::RUNNING);
  service_.HoldCalls();
  EXPECT_EQ(Run("pause a --timeout 0.3", &file_), kError);
  EXPECT_THAT(file_.err, HasSubstr("DEADLINE_EXCEEDED"));
  const int calls = service_.calls();
  std::thread user([&] {
    while (service_.calls() == calls) absl::SleepFor(absl::Milliseconds(1));
    cancelled_ = true;
  });
  FakeFile interrupted;
  EXPECT_EQ(Run("pause a", &interrupted), kInterrupted);
  user.join();
}

}  // namespace
}  // namespace lenet::ctl
