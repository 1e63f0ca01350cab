#include "tests/unit/client/ctl/fake_terminal.h"

#include <algorithm>
#include <cstdlib>

namespace lenet::ctl {

void FakeTerminal::Put(char c) {
  if (column_ == static_cast<size_t>(width_)) {
    ++row_;
    column_ = 0;
    if (row_ == rows_.size()) rows_.emplace_back();
    rows_[row_].continues = true;
  }
  std::string& text = rows_[row_].text;
  if (text.size() <= column_) text.resize(column_ + 1, ' ');
  text[column_++] = c;
}

void FakeTerminal::Write(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++row_;
      column_ = 0;
      if (row_ == rows_.size()) rows_.emplace_back();
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      size_t end = i + 2;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
      const std::string number(text.substr(i + 2, end - i - 2));
      const char command = end < text.size() ? text[end] : '?';
      if (command == 'A') {
        row_ -= std::min<size_t>(row_, std::atoi(number.c_str()));
      } else if (command == 'J' && number.empty()) {
        rows_.resize(row_ + 1);
        rows_[row_].text.resize(std::min(rows_[row_].text.size(), column_));
      } else {
        unknown_ += number + command;
      }
      i = end;
    } else if (c >= ' ' && c < '\x7f') {
      Put(c);
    } else {
      unknown_ += c;
    }
  }
}

void FakeTerminal::Resize(int width) {
  std::vector<std::string> lines;
  size_t cursor_line = 0;
  size_t cursor_at = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!rows_[i].continues || lines.empty()) lines.emplace_back();
    if (i == row_) {
      cursor_line = lines.size() - 1;
      cursor_at = lines.back().size() + column_;
    }
    lines.back() += rows_[i].text;
  }
  width_ = width;
  rows_.clear();
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t first = rows_.size();
    size_t at = 0;
    do {
      rows_.push_back({lines[i].substr(at, width), at > 0});
      at += width;
    } while (at < lines[i].size());
    if (i == cursor_line) {
      row_ = std::min(first + cursor_at / width, rows_.size() - 1);
      column_ = cursor_at - (row_ - first) * width;
    }
  }
}

std::vector<std::string> FakeTerminal::Screen() const {
  std::vector<std::string> screen;
  for (const Row& row : rows_) {
    std::string text = row.text;
    text.erase(text.find_last_not_of(' ') + 1);
    screen.push_back(text);
  }
  while (!screen.empty() && screen.back().empty()) screen.pop_back();
  return screen;
}

int FakeTerminal::wrapped_rows() const {
  return static_cast<int>(std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.continues; }));
}

}  // namespace lenet::ctl
