// Lines at the bottom of a terminal that are redrawn in place, while other lines scroll away above them.
#ifndef LENET_CLIENT_CTL_LIVE_BLOCK_H_
#define LENET_CLIENT_CTL_LIVE_BLOCK_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/ctl/output.h"

namespace lenet::ctl {

// Between calls the cursor stands at the end of the block's last line. The output outlives it.
class LiveBlock {
 public:
  explicit LiveBlock(Output* output) : output_(output) {}

  // Puts whole lines (each with its line end) above the block.
  void Print(absl::string_view lines);
  // Replaces the block. Each line must fit the terminal's width less one column, so that none wraps.
  void Show(const std::vector<std::string>& lines);
  // Takes the block away; the cursor is at the start of the line where it began.
  void Clear();

 private:
  // What erases the block as the terminal shows it now: it may have become narrower and have wrapped the lines.
  std::string Erase() const;
  std::string Draw() const;

  Output* const output_;
  std::vector<std::string> lines_;
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_LIVE_BLOCK_H_
