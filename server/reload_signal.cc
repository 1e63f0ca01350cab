#include "server/reload_signal.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace lenet {

ReloadSignal::ReloadSignal(std::function<void()> callback) : callback_(std::move(callback)) {
  // One that is blocked and waited for comes even if it is ignored.
  struct sigaction action = {};
  if (::sigaction(SIGHUP, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  // The thread blocks all signals: the others are for the threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  sigaddset(&before, SIGHUP);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ReloadSignal::~ReloadSignal() {
  if (!thread_.joinable()) return;
  stop_ = true;
  pthread_kill(thread_.native_handle(), SIGHUP);
  thread_.join();
}

void ReloadSignal::Run() {
  pthread_setname_np(pthread_self(), "reload");
  sigset_t hangup;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  for (;;) {
    int signal = 0;
    if (sigwait(&hangup, &signal) != 0) continue;
    if (stop_) return;
    callback_();
  }
}

}  // namespace lenet
