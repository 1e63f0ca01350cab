#include "server/store/job_state.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace lenet {
namespace {

constexpr v1::JobState kStates[] = {v1::QUEUED,    v1::STARTING, v1::RUNNING, v1::STOPPING,
                                    v1::SUCCEEDED, v1::FAILED,   v1::STOPPED, v1::PAUSED};

TEST(JobStateTest, LegalChangesAreExactlyThese) {
  const std::set<std::pair<v1::JobState, v1::JobState>> legal = {
      {v1::QUEUED, v1::STARTING},   {v1::QUEUED, v1::PAUSED},      {v1::QUEUED, v1::STOPPED},
      {v1::STARTING, v1::RUNNING},  {v1::STARTING, v1::QUEUED},    {v1::STARTING, v1::PAUSED},
      {v1::STARTING, v1::STOPPING}, {v1::STARTING, v1::FAILED},    {v1::RUNNING, v1::QUEUED},
      {v1::RUNNING, v1::PAUSED},    {v1::RUNNING, v1::STOPPING},   {v1::RUNNING, v1::SUCCEEDED},
      {v1::RUNNING, v1::FAILED},    {v1::PAUSED, v1::QUEUED},      {v1::PAUSED, v1::STOPPED},
      {v1::STOPPING, v1::STOPPED},  {v1::STOPPING, v1::SUCCEEDED}, {v1::STOPPING, v1::FAILED},
  };
  for (v1::JobState from : kStates) {
    for (v1::JobState to : kStates) {
      EXPECT_EQ(IsLegalChange(from, to), legal.contains({from, to})) << StateName(from) << " to " << StateName(to);
    }
  }
}

TEST(JobStateTest, NothingFollowsATerminalState) {
  int terminal = 0;
  for (v1::JobState from : kStates) {
    if (!IsTerminal(from)) continue;
    ++terminal;
    for (v1::JobState to : kStates) EXPECT_FALSE(IsLegalChange(from, to));
  }
  EXPECT_EQ(terminal, 3);
}

TEST(JobStateTest, EveryOtherStateLeadsToAnEnd) {
  for (v1::JobState from : kStates) {
    if (IsTerminal(from)) continue;
    std::set<v1::JobState> reached = {from};
    for (size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (v1::JobState via : std::set<v1::JobState>(reached)) {
        for (v1::JobState to : kStates) {
          if (IsLegalChange(via, to)) reached.insert(to);
        }
      }
    }
    EXPECT_TRUE(reached.contains(v1::STOPPED)) << StateName(from);
    EXPECT_TRUE(reached.contains(v1::FAILED)) << StateName(from);
    EXPECT_TRUE(reached.contains(v1::SUCCEEDED)) << StateName(from);
  }
}

TEST(JobStateTest, AnAttemptEndsWithItsJobOrByGivingItUp) {
  const std::set<v1::JobState> ends = {v1::SUCCEEDED, v1::FAILED, v1::STOPPED, v1::QUEUED, v1::PAUSED};
  for (v1::JobState to : kStates) EXPECT_EQ(EndsAttempt(to), ends.contains(to)) << StateName(to);
}

TEST(JobStateTest, NamesAreTheProtocols) {
  for (v1::JobState state : kStates) EXPECT_EQ(std::string(StateName(state)), v1::JobState_Name(state));
  EXPECT_EQ(StateName(static_cast<v1::JobState>(99)), "JOB_STATE_UNSPECIFIED");
}

}  // namespace
}  // namespace lenet
