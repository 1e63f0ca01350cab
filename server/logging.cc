#include "server/logging.h"

#include <memory>

#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace lenet {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void SetUpLogging(LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("lenetd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l [%t] %v");
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::trace);
  SetLogSink([logger](LogLevel line_level, absl::string_view message) {
    logger->log(ToSpdlog(line_level), spdlog::string_view_t(message.data(), message.size()));
  });
}

}  // namespace lenet
