// Where lenetctl writes.
#ifndef LENET_CLIENT_CTL_OUTPUT_H_
#define LENET_CLIENT_CTL_OUTPUT_H_

#include "absl/strings/string_view.h"

namespace lenet::ctl {

class Output {
 public:
  virtual ~Output() = default;

  // Whether the text goes to a terminal that can move its cursor.
  virtual bool is_terminal() const = 0;
  // The terminal's columns as they are now; 0 if it is none.
  virtual int width() const = 0;
  // Whole lines, or what moves the cursor; reaches the reader at once.
  virtual void Write(absl::string_view text) = 0;
  // To the error output. Where both go to one terminal, the caller sees to it that no progress display is in the way.
  virtual void WriteError(absl::string_view text) = 0;
  // False once a Write has failed.
  virtual bool ok() const = 0;
};

// The process's standard output and error.
class StandardOutput : public Output {
 public:
  StandardOutput();
  bool is_terminal() const override { return is_terminal_; }
  int width() const override;
  void Write(absl::string_view text) override;
  void WriteError(absl::string_view text) override;
  bool ok() const override { return ok_; }

 private:
  const bool is_terminal_;
  bool ok_ = true;
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_OUTPUT_H_
