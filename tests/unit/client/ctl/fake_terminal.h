// A terminal in memory: shows what a person would see of what a program writes to it.
#ifndef LENET_TESTS_UNIT_CLIENT_CTL_FAKE_TERMINAL_H_
#define LENET_TESTS_UNIT_CLIENT_CTL_FAKE_TERMINAL_H_

#include <string>
#include <vector>

#include "client/ctl/output.h"

namespace lenet::ctl {

// Understands one-column characters, line end, carriage return, cursor up and erase below; anything else is recorded
// in `unknown`. Wraps as common terminals do: the cursor stays behind a full line until the next character, and a new
// width lays wrapped lines out again. Rows are never scrolled out.
class FakeTerminal : public Output {
 public:
  explicit FakeTerminal(int width) : width_(width), rows_(1) {}

  bool is_terminal() const override { return true; }
  int width() const override { return width_; }
  void Write(absl::string_view text) override;
  void WriteError(absl::string_view text) override { Write(text); }
  bool ok() const override { return true; }

  // A change of the window.
  void Resize(int width);

  // Rows as they stand, without spaces at their ends; no empty ones at the bottom.
  std::vector<std::string> Screen() const;
  // Rows that a line too long for the terminal has run over into.
  int wrapped_rows() const;
  const std::string& unknown() const { return unknown_; }

 private:
  struct Row {
    std::string text;
    bool continues = false;  // the one above it
  };
  void Put(char c);

  int width_;
  std::vector<Row> rows_;
  size_t row_ = 0;
  size_t column_ = 0;
  std::string unknown_;
};

// A file or pipe: keeps what was written.
class FakeFile : public Output {
 public:
  bool is_terminal() const override { return false; }
  int width() const override { return 0; }
  void Write(absl::string_view text) override { out.append(text.data(), text.size()); }
  void WriteError(absl::string_view text) override { err.append(text.data(), text.size()); }
  bool ok() const override { return !full; }

  std::string out;
  std::string err;
  bool full = false;
};

}  // namespace lenet::ctl

#endif  // LENET_TESTS_UNIT_CLIENT_CTL_FAKE_TERMINAL_H_
