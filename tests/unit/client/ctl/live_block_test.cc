#include "client/ctl/live_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/client/ctl/fake_terminal.h"

namespace lenet::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LiveBlockTest, IsRedrawnInPlaceBelowTheLinesThatStay) {
  FakeTerminal terminal(20);
  LiveBlock block(&terminal);
  block.Show({"bar 1", "loss 1"});
  EXPECT_THAT(terminal.Screen(), ElementsAre("bar 1", "loss 1"));
  block.Print("epoch 1\n");
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "bar 1", "loss 1"));
  block.Show({"bar 2", "loss 2"});
  block.Print("epoch 2\nepoch 3\n");
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "epoch 2", "epoch 3", "bar 2", "loss 2"));
  block.Show({"b"});
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "epoch 2", "epoch 3", "b"));
  block.Clear();
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "epoch 2", "epoch 3"));
  terminal.Write("done\n");
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "epoch 2", "epoch 3", "done"));
  EXPECT_EQ(terminal.unknown(), "");
}

TEST(LiveBlockTest, ClearWithoutABlockWritesNothing) {
  FakeTerminal terminal(20);
  LiveBlock block(&terminal);
  block.Clear();
  block.Show({"a"});
  block.Clear();
  block.Clear();
  EXPECT_THAT(terminal.Screen(), IsEmpty());
}

TEST(LiveBlockTest, SurvivesAWindowThatGetsNarrowerAndWider) {
  FakeTerminal terminal(40);
  LiveBlock block(&terminal);
  block.Print("epoch 1\n");
  block.Show({std::string(39, 'a'), std::string(25, 'b')});
  terminal.Resize(10);
  EXPECT_EQ(terminal.wrapped_rows(), 5);
  block.Show({std::string(9, 'c'), "d"});
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", "ccccccccc", "d"));
  terminal.Resize(60);
  block.Show({std::string(59, 'e'), "f"});
  EXPECT_THAT(terminal.Screen(), ElementsAre("epoch 1", std::string(59, 'e'), "f"));
  EXPECT_EQ(terminal.wrapped_rows(), 0);
}

}  // namespace
}  // namespace lenet::ctl
