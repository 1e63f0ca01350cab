#include "client/ctl/live_block.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/text.h"

namespace lenet::ctl {

std::string LiveBlock::Erase() const {
  if (lines_.empty()) return "";
  const int width = std::max(output_->width(), 1);
  int rows = 0;
  for (const std::string& line : lines_) rows += std::max(1, (DisplayWidth(line) + width - 1) / width);
  // To the block's first column and row, then all below it away.
  return absl::StrCat("\r", rows > 1 ? absl::StrCat("\x1b[", rows - 1, "A") : "", "\x1b[J");
}

std::string LiveBlock::Draw() const { return absl::StrJoin(lines_, "\n"); }

void LiveBlock::Print(absl::string_view lines) { output_->Write(absl::StrCat(Erase(), lines, Draw())); }

void LiveBlock::Show(const std::vector<std::string>& lines) {
  const std::string erase = Erase();
  lines_ = lines;
  output_->Write(absl::StrCat(erase, Draw()));
}

void LiveBlock::Clear() {
  if (lines_.empty()) return;
  output_->Write(Erase());
  lines_.clear();
}

}  // namespace lenet::ctl
