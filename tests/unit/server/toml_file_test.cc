#include "server/toml_file.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// "key|type|text|place of the key|place of the value".
std::vector<std::string> Entries(absl::string_view text) {
  const absl::StatusOr<std::vector<TomlEntry>> entries = ParseToml(text);
  EXPECT_TRUE(entries.ok()) << entries.status();
  std::vector<std::string> shown;
  if (!entries.ok()) return shown;
  for (const TomlEntry& entry : *entries) {
    shown.push_back(absl::StrCat(entry.key, "|", Described(entry.value.type), "|", entry.value.text, "|",
                                 entry.place.line, ":", entry.place.column, "|", entry.value.place.line, ":",
                                 entry.value.place.column));
  }
  return shown;
}

TEST(ParseTomlTest, GivesEveryValueWithItsPlaceInTheOrderOfTheFile) {
  EXPECT_THAT(Entries("z = 'it\\n'\n"
                      "\n"
                      "[b]\n"
                      "y = 1_000  # so many\n"
                      "  x=0.25\n"
                      "[a.c]\n"
                      "t = true\n"
                      "d = 2020-01-01\n"
                      "[a.empty]\n"),
              ElementsAre("z|a string|it\\n|1:1|1:5", "b.y|an integer|1000|4:1|4:5", "b.x|a float|0.25|5:3|5:5",
                          "a.c.t|a boolean|true|7:1|7:5", "a.c.d|a date or time||8:1|8:5", "a.empty|a table||9:4|9:1"));
  EXPECT_THAT(Entries(""), IsEmpty());
  EXPECT_THAT(Entries("# nothing\r\n"), IsEmpty());
}

TEST(ParseTomlTest, ElementsOfAnArrayHaveTheirPlaces) {
  const absl::StatusOr<std::vector<TomlEntry>> entries = ParseToml("list = [\"a\",\n  3, [nan]]");
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 1u);
  const std::vector<TomlValue>& elements = entries->front().value.elements;
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(elements[0].text, "a");
  EXPECT_EQ(elements[1].type, TomlType::kInteger);
  EXPECT_EQ(elements[1].place.line, 2);
  EXPECT_EQ(elements[1].place.column, 3);
  ASSERT_EQ(elements[2].elements.size(), 1u);
  EXPECT_EQ(elements[2].elements[0].text, "nan");
}

TEST(ParseTomlTest, AQuotedKeyIsNoOther) {
  EXPECT_THAT(Entries("\"a.b\" = 1\n'c\"' = 2\n\"d\" = 3\n\"\" = 4\n"),
              ElementsAre("\"a.b\"|an integer|1|1:1|1:9", "\"c\\\"\"|an integer|2|2:1|2:8", "d|an integer|3|3:1|3:7",
                          "\"\"|an integer|4|4:1|4:6"));
}

TEST(ParseTomlTest, WhatIsNoTomlIsAnErrorWithItsPlace) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"a = \n", "1:5: "},
      {"a = 1\nb == 2\n", "2:4: "},
      {"a = 1\na = 2\n", "2:"},
      {"[t\n", "1:3: "},
      {"[.t]\n", "1:2: "},  // this one and the next two break assertions of toml++ 3.3.0
      {"[[.t]]\n", "1:3: "},
      {"[\x01]\n", "1:2: "},
      {"a = \"x\n", "1:7: "},
      {"a = 99999999999999999999\n", "1:"},
      {"x", "1:2: "},
      {"a = 'x' 'y'\n", "1:9: "},
      {"a = 'ok'\nb = '\xff'\n", "2:"},
      {std::string("a = '\0'", 7), "1:6: "},
      {std::string(100000, '['), "1:"},
  };
  for (const auto& [text, place] : bad) {
    const absl::Status status = ParseToml(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 20);
    EXPECT_THAT(std::string(status.message()), StartsWith(place)) << text.substr(0, 20);
    EXPECT_GT(status.message().size(), 10u) << text.substr(0, 20);
  }
}

TEST(ParseTomlTest, NestingHasABound) {
  const absl::Status status = ParseToml("a = " + std::string(100000, '[')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nest"));
}

TEST(TomlStringTest, IsReadBackAsTheSame) {
  for (const std::string& text :
       {std::string(), std::string("plain"), std::string("a \"b\" 'c' \\d \\\\ \\n"), std::string("\n\t\r\x01\x1f\x7f"),
        std::string("é €"), std::string("#[=]"), std::string("nul\0nul", 7)}) {
    const absl::StatusOr<std::vector<TomlEntry>> entries = ParseToml("a = " + TomlString(text));
    ASSERT_TRUE(entries.ok()) << entries.status();
    EXPECT_EQ(entries->front().value.text, text);
  }
  EXPECT_EQ(TomlString("\"\\"), "\"\\\"\\\\\"");
  EXPECT_EQ(TomlString("a\xff"), "\"a?\"");
}

}  // namespace
}  // namespace lenet
