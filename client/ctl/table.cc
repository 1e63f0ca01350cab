#include "client/ctl/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/text.h"

namespace lenet::ctl {

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  rows_.push_back(std::move(titles));
}

void Table::AddRow(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render(int width) const {
  std::vector<int> widths(columns_.size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - DisplayWidth(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ");
      if (columns_[i].align == Align::kRight) {
        absl::StrAppend(&line, space, row[i]);
      } else {
        absl::StrAppend(&line, row[i], space);
      }
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, width > 0 ? Fit(line, width) : line, "\n");
  }
  return text;
}

void FieldList::Add(absl::string_view name, absl::string_view value) {
  if (!value.empty()) fields_.emplace_back(std::string(name), Printable(value));
}

std::string FieldList::Render() const {
  size_t width = 0;
  for (const auto& [name, value] : fields_) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : fields_) {
    absl::StrAppend(&text, name, ":", std::string(width - name.size() + 2, ' '), value, "\n");
  }
  return text;
}

}  // namespace lenet::ctl
