#include "client/ctl/table.h"

#include <gtest/gtest.h>
#include <locale.h>

namespace lenet::ctl {
namespace {

TEST(TableTest, ColumnsStandBelowOneAnother) {
  setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe)
  Table table({{"ID"}, {"STEP", Table::Align::kRight}, {"STATE"}});
  table.AddRow({"a", "1,000", "running"});
  table.AddRow({"longer", "", "stopped"});
  table.AddRow({"\xc3\xa9t\xc3\xa9", "7", ""});
  EXPECT_EQ(table.Render(0),
            "ID       STEP  STATE\n"
            "a       1,000  running\n"
            "longer      -  stopped\n"
            "\xc3\xa9t\xc3\xa9         7  -\n");
}

TEST(TableTest, LinesAreCutToTheTerminal) {
  Table table({{"ID"}, {"PATH"}});
  table.AddRow({"a", "/a/long/path"});
  EXPECT_EQ(table.Render(12), "ID  PATH\na   /a/lo...\n");
}

TEST(TableTest, CellsCannotBreakTheTable) {
  Table table({{"ID"}, {"NAME"}});
  table.AddRow({"a", "x\ny\x1b[31m"});
  EXPECT_EQ(table.Render(0), "ID  NAME\na   x?y?[31m\n");
}

TEST(FieldListTest, ValuesStandBelowOneAnotherAndEmptyOnesAreLeftOut) {
  FieldList fields;
  fields.Add("id", "a");
  fields.Add("nothing", "");
  fields.Add("state", "run\nning");
  EXPECT_EQ(fields.Render(), "id:     a\nstate:  run?ning\n");
}

}  // namespace
}  // namespace lenet::ctl
