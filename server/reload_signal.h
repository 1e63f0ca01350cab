// SIGHUP as the wish to read the configuration again.
#ifndef LENET_SERVER_RELOAD_SIGNAL_H_
#define LENET_SERVER_RELOAD_SIGNAL_H_

#include <atomic>
#include <functional>
#include <thread>

namespace lenet {

// Make it before any other thread: it blocks SIGHUP for this thread and all that it starts, and waits for it on a
// thread of its own. If the process was started to ignore it, as by nohup, it stays ignored.
class ReloadSignal {
 public:
  // `callback` is called on that thread: once for each signal, or for several that come during a call.
  explicit ReloadSignal(std::function<void()> callback);
  // No call is under way when this returns.
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;

 private:
  void Run();

  const std::function<void()> callback_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // none if the signal is ignored
};

}  // namespace lenet

#endif  // LENET_SERVER_RELOAD_SIGNAL_H_
