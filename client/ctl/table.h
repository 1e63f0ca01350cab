// Columns of text.
#ifndef LENET_CLIENT_CTL_TABLE_H_
#define LENET_CLIENT_CTL_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lenet::ctl {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // One cell a column; made printable; an empty one shows as "-".
  void AddRow(std::vector<std::string> cells);

  // Lines with the titles first, columns two spaces apart, no space at a line's end. A line longer than `width`
  // columns is cut; 0: no limit.
  std::string Render(int width) const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "name:   value" lines, the values below one another; a field with an empty value is left out.
class FieldList {
 public:
  void Add(absl::string_view name, absl::string_view value);
  std::string Render() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_TABLE_H_
